"""Names of other libraries and of the papers: what people type works, or is told the way."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc._core_api import foreign

Q = np.ones((2, 4, 16, 8), np.float32)
W, SLOPES, TABLE = posenc.rope_frequencies(8), posenc.alibi_slopes(4), np.zeros((32, 4))
TOLD = {
    "sinusoidal_encoding(16, 64)": "posenc.sinusoidal(",
    "sinusoidal(max_len=16, d_model=64)": "expected positions",
    "rope_frequencies(8, theta=1e6)": "expected base",
    "rope(Q, 16)": "frequencies is missing; expected rope(x, positions, frequencies)",
    "rope(Q, position_ids=16, layout='half')": "position_ids is unknown; expected positions",
    "rope_frequencies(8, rope_scaling={'factor': 2.0})": "rope_frequencies(dim, **rope_scaling)",
    "attention(Q, Q, Q, output_attentions=True)": "attention_weights",
    "attention(Q, Q, Q, key_value_seq_lengths=[5])": "expected keep",
    "attention_vjp(Q, Q, Q, dout=Q)": "expected grad, the first argument",
    "MultiheadAttention(64, 8)": "posenc.attention(q, k, v)",
    "get_alibi_slopes(8)": "posenc.alibi_slopes(H)",
    "get_timestep_embedding(3, 64)": 'posenc.sinusoidal(t, dim, layout="half")',
    "alibi(4).toarray()": "matrix(N) has the number of each pair",
    "rope(Q, Q, 16, layout='half')": "a call of its own",
    "rope(Q, Q, 16, W, layout='half')": "k is rotated by a second call",
    "rope(Q, Q, np.arange(8), layout='half')": "a call of its own",
    "rope(Q, 16, W)": "layout",
    "rope(Q, 16, W, interleaved=True)": 'layout="interleaved"',
    "rope(Q, 16, W, layout='half', offset=5)": "expected start",
    "rope(np.swapaxes(Q, 1, 2), 16, W, layout='half')": "seq_axis=-3",
    "learned(TABLE, 3, 4)": "expected table, positions",
    "learned(TABLE, 3, position_ids=4)": "expected positions",
    "apply_rotary_pos_emb(Q, Q, 1, 1)": "posenc.rope(",
    "mrope(Q)": "posenc.rope_nd(",
    "rope_backward(Q)": "posenc.rope_vjp",
    "attention_backward(Q)": "posenc.attention_vjp(grad, q, k, v)",
    "attention_grad(Q)": "posenc.attention_vjp",
    "alibi(4, 16)": "matrix(n, m)",
    "alibi_bias(4, 16)": "posenc.alibi(",
    "alibi_slopes(num_heads=8)": "expected heads",
    "t5_bias(TABLE)": "posenc.t5(",
    "t5(TABLE, num_buckets=32, bidirectional=False)": "the rows of the table are the buckets",
    "t5_buckets(3)": "posenc.t5_bucket(",
    "relative_position_bucket(3)": "posenc.t5_bucket(",
    "attention(Q, Q, Q, is_causal=True)": "expected causal",
    "attention(Q, Q, Q, attn_mask=Q)": "expected keep (True = this key may be seen)",
    "attention(Q, Q, Q, mask=Q)": "expected keep (True = this key may be seen)",
    "attention(Q, Q, Q, key_padding_mask=Q)": "expected keep=~mask",
    "attention(Q, Q, Q, scale=0.3, dropout_p=0.1)": "expected dropout",
    "attention(Q, Q, Q, enable_gqa=True)": "heads may share keys",
    "attention(Q, Q, Q, window=4)": "(left, right)",
    "attention(Q, Q, Q, window_size=(4, 0))": "expected window",
    "attention(Q, Q, Q, bias=TABLE)": "dense(array)",
    "attention(Q, Q, Q, layout='bshd')": "the axes are (..., H, N, D)",
    "attention(Q, Q, Q, posenc.alibi(4))": "options go by name",
    "attention(Q, Q, Q, segment_ids=1)": "expected q_segments",
    "attention(Q, Q, Q, cu_seqlens=[0, 16])": "expected q_segments",
    "attention(Q[:, :, :1], Q, Q, causal=True)": "align",
    "attention(Q, Q)": "v is missing; expected attention(q, k, v)",
    "sinusoidal(16, 64, flip_sin_to_cos=True)": 'order="cossin"',
    "Q + posenc.alibi(4)": "alibi.matrix(N)",
    "posenc.alibi(4) * 2": "alibi.matrix(N)",
    "np.asarray(posenc.alibi(4) + posenc.alibi(4))": "(alibi + alibi).matrix(N)",
    "np.add(posenc.alibi(4), Q)": "alibi.matrix(N)",
    "check.alibi(1)": "posenc.check.slopes",
    "check.t5(1)": "posenc.check.buckets",
}
WORKS = (
    "sinusoidal(16, 64)", "rope_frequencies(dim=64, base=10000.0)", "rope(Q, 16, W, layout='interleaved')",
    "rope(Q, positions=16, frequencies=W, layout='half', inverse=True)", "alibi_slopes(4)", "alibi(4)",
    "attention(Q, Q, Q)", "attention(Q, Q[:, :2], Q[:, :2])", "attention(Q, Q, Q, return_lse=True)",
    "attention(Q.astype(np.float16), Q, Q)",
)  # fmt: skip


def typed(text):
    text = text if text.startswith(("Q ", "np.", "posenc.")) else f"posenc.{text}"
    return eval(text, {"posenc": posenc, "np": np, "Q": Q, "W": W, "TABLE": TABLE})


@pytest.mark.parametrize("text", TOLD)
def test_what_takes_its_place_is_told(text):
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        typed(text)
    assert TOLD[text] in str(caught.value)


@pytest.mark.parametrize("text", WORKS)
def test_first_guesses_work(text):
    assert typed(text) is not None


def test_sentences_name_what_there_is():
    """A name or a call is a function, and its keywords are its own; an argument belongs to some function."""
    arguments = {p for name in posenc.__all__ if callable(getattr(posenc, name)) for p in parameters(name)}
    for sentence in foreign.words("name").values():
        for name, inside in re.findall(r"(\w+)\(([^()]*)\)", sentence):
            if name != "matrix":
                assert set(re.findall(r"(\w+)=", inside)) <= {*parameters(name), "rope_type"}
    for word, sentence in foreign.words("argument").items():
        first = re.match(r"\w+", sentence)[0]
        assert first in {*arguments, "m", "nothing", "a"}, word  # m of `matrix`
    assert not foreign.words("name").keys() & set(posenc.__all__)


def test_sentences_of_checks_begin_with_their_arguments():
    kinds = [getattr(posenc.check, name) for name in posenc.check.__all__ if name.islower()]
    arguments = {p for kind in kinds for p in inspect.signature(kind).parameters}
    for word, sentence in foreign.words("check").items():
        assert re.match(r"\w+", sentence)[0] in {*arguments, "nothing"}, word


def parameters(name):
    return inspect.signature(getattr(posenc, name)).parameters


def test_the_manual_has_the_tables():
    page = (Path(__file__).parents[2] / "docs/guides/errors.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)) == {
        **foreign.words("argument"),
        **foreign.words("name"),
    }
