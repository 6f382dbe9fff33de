"""Errors of public projects, planted again from their descriptions: the sentence that posenc.check prints."""

from functools import partial

import numpy as np
import plain
import pytest

from posenc import check

W = plain.frequencies(32)
W16 = plain.frequencies(16)
YARN = {
    "head_dim": 32,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 128.0,
        "original_max_position_embeddings": 32,
        "attention_factor": 0.1 * np.log(128) + 1,
    },
}
LAGUNA = {**YARN, "rope_scaling": {**YARN["rope_scaling"], "factor": 64.0, "attention_factor": 1.25}}
DECODER = {"frequencies": W16, "layout": "half"}


def rope(w=W, **errors):
    return lambda x, p: plain.rope(x, p, w, **errors)


def concatenated(x, p):
    """The rotated pairs are right, but all first channels come before all second ones."""
    y = plain.rope(x, p, W, pairs="interleaved")
    return np.concatenate([y[..., 0::2], y[..., 1::2]], -1)


def cached_by_length():
    """A decoder whose table of angles is stored by the length of the chunk, without its offset."""
    tables = {}

    def turn(x, start):
        table = tables.setdefault(x.shape[-2], np.arange(x.shape[-2]) + start)
        return plain.rope(x, table, W16)

    stored = {}

    def step(q, k, v, start):
        for name, new in (("k", turn(k, start)), ("v", v)):
            stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
        return plain.attention(
            turn(q, start), stored["k"], stored["v"], mask=plain.causal(q.shape[-2], stored["k"].shape[-2])
        )

    return step


def top_left(q, k, v):
    return plain.attention(q, k, v, mask=plain.causal(q.shape[-2], k.shape[-2], 0))


def of_precedence(positions):
    """exp(2 i (-log(10000) // (d / 2))): the floor of a negative number is -1."""
    angle = np.asarray(positions)[:, None] * np.exp(np.arange(0, 32, 2) * (-np.log(10000.0) / 32 // 2))
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(-1, 32)


# The comment is the error in our words.
ISSUES = {
    # A chapter expands its tables by adjacent pairs, and rotates the two halves of the channels.
    "raiyanyahya/how-to-train-your-gpt#6": (
        "rotation", partial(check.rope, rope(table_pairs="interleaved"), dim=32, layout="interleaved")),
    # A speech model's tables became concatenated halves, while its rotation still has adjacent pairs.
    "huggingface/transformers#47328": (
        "tables", partial(check.rope, rope(pairs="interleaved", table_pairs="half"), dim=32, layout="interleaved")),
    # The 8-bit path rotates adjacent pairs of the rotary channels, the other paths the two halves.
    "ohdearquant/lattice#392": (
        "layout", partial(check.rope, rope(W16, pairs="interleaved"), dim=32, rotary_dim=16, layout="half")),
    # Rotated even and odd channels are concatenated instead of interleaved.
    "vllm-project/vllm-metal#44": (
        "order of results", partial(check.rope, concatenated, dim=32, layout="interleaved")),
    # The base is fixed at 10000, and Code Llama's config has 1000000.
    "vllm-project/vllm#1096": (
        "base", partial(check.rope, rope(), {"head_dim": 32, "rope_theta": 1e6}, layout="half")),
    # attention_factor is multiplied with YaRN's own factor, although it is the final number.
    "sgl-project/sglang#33558": (
        "attention factor squared", partial(check.rope, rope(
            plain.yarn(32, 1e4, 128.0, 32), factor=(0.1 * np.log(128) + 1) ** 2), YARN, layout="half")),
    # attention_factor is passed on as mscale, so 0.1 mscale ln(factor) + 1 is computed of it.
    "NVIDIA/TensorRT-LLM#16379": (
        "mscale of mscale", partial(check.rope, rope(
            plain.yarn(32, 1e4, 64.0, 32), factor=0.1 * 1.25 * np.log(64) + 1), LAGUNA, layout="half")),
    # Slopes of ALiBi are one geometric sequence for any number of heads.
    "ml-explore/mlx#3071": (
        "geometric for any number", partial(
            check.slopes, lambda heads: 2.0 ** (-8 / heads * np.arange(1, heads + 1)), 12)),
    # The exponent of ALiBi's slopes counts heads from 0, so the first slope is 1.
    "paiml/aprender#2143": (
        "exponent from zero", partial(check.slopes, lambda heads: 2.0 ** (-8 * np.arange(heads) / heads), 8)),
    # The fallback of attention is called without the scale, whose default is 1.
    "mlc-ai/mlc-llm#3426": (
        "no scale", partial(check.attention, lambda q, k, v: plain.attention(q, k, v, scale=1.0))),
    # With an external cache, the causal mask of a block of queries begins at its first row.
    "onnx/onnx#8054": (
        "alignment", partial(check.attention, top_left, causal=True, n=4, m=9)),
    # flash-attention gets the window W, which counts keys before the query, instead of W - 1.
    "huggingface/transformers#39408": (
        "window one wider", partial(
            check.attention, lambda q, k, v: plain.attention(q, k, v, mask=plain.causal(9, 9, left=4)), causal=True,
            window=(3, None))),
    # The table of angles is cached by its length, without the offset.
    "lucidrains/rotary-embedding-torch#11": (
        "offset", partial(check.cache, cached_by_length(), chunks=(3, 3, 3), **DECODER)),
    # The count of cached tokens grows before later layers read it, so decoding rotates by one position too much.
    "fla-org/flash-linear-attention#766": (
        "offset one too large", partial(check.cache, plain.decoder(W16, lambda start: start + (start > 0)), **DECODER)),
    # After the prompt, the offset grows by the length of the prompt once more.
    "skyzh/tiny-llm#46": (
        "first chunk twice", partial(
            check.cache, plain.decoder(W16, lambda start: start + 4 * (start > 0)), **DECODER)),
    # Each channel has an exponent, so a sine and its cosine have different frequencies.
    "shenweichen/DeepCTR#379": (
        "frequency of channels", partial(check.sinusoid, partial(plain.sinusoid, dim=32, by_channel=2), 32)),
    # a / b // 2 rounds the negative exponent of the frequencies down to -1: a base of e**32.
    "zju3dv/LoFTR#41": (
        "base", partial(check.sinusoid, of_precedence, 32)),
}  # fmt: skip


@pytest.mark.parametrize("issue", ISSUES)
def test_the_cause_of_a_public_issue_is_named(issue):
    name, run = ISSUES[issue]
    report = run()
    assert not report
    assert [cause.name for cause in report.causes] == [name], str(report)
