"""Masks, the softmax, and heads."""

import numpy as np
import plain

from posenc import check

from . import reported

SINK = np.linspace(-1.0, 1.5, 6)


def causal(q, k, v, **errors):
    return plain.attention(q, k, v, mask=plain.causal(q.shape[-2], k.shape[-2]), **errors)


def masked(make, **options):
    """A check of attention with the mask that a function makes of the numbers of queries and keys."""
    return check.attention(lambda q, k, v: plain.attention(q, k, v, mask=make(q.shape[-2], k.shape[-2])), **options)


@reported("onnx/onnx#8054", "The mask puts query i at position i; expected i + 5.")
def first_row():
    """With an external cache, the causal mask of a block of queries begins at its first row."""
    return masked(lambda n, m: plain.causal(n, m, 0), causal=True, n=4, m=9)


@reported("gittensor-ai-lab/sparkinfer#3", "The mask puts query i at position i; expected i + 5.")
def no_offset():
    """Query i sees the keys up to i, also if there are more keys than queries."""
    return masked(lambda n, m: plain.causal(n, m, 0), causal=True)


@reported("huggingface/transformers#39408", "The window holds one key more.")
def window_of_flash_attention():
    """flash-attention gets the window W, which counts keys before the query, instead of W - 1."""
    return masked(lambda n, m: plain.causal(n, m, left=4), causal=True, window=(3, None))


@reported("ml-explore/mlx-lm#390", "The window holds one key more.")
def one_key_too_many():
    """The mask keeps W keys before the query; expected W with the query's own."""
    return masked(lambda n, m: plain.causal(n, m, left=5), causal=True, window=(4, None))


@reported("AI-Hypercomputer/maxtext#4289", "The window holds one key more.")
def inclusive_left():
    """The window of a kernel includes its left end, and gets the number of tokens."""
    return masked(lambda n, m: plain.causal(n, m, left=3), causal=True, window=(2, None), n=5, m=12)


@reported("huggingface/transformers#41228", "Query 0 reads the keys 0, 4-8; expected 0.", "localised")
def window_added():
    """The window is added to the diagonal, and the mask of the window replaces the causal one."""

    def mask(n, m):
        hidden = np.triu(np.ones((n, m)), m - n + 1)
        return np.tril(hidden, m - n + 3) == 0

    return masked(mask, causal=True, window=(2, None), n=9, m=9)


@reported("huggingface/transformers#47010", "The window reaches 6 keys back and 3 ahead; expected 6 and 4.")
def right_side():
    """The right side of a window is compared by <, so it has one key less."""

    def mask(n, m):
        rel = np.arange(m) - np.arange(n)[:, None] - (m - n)
        return (rel >= -6) & (rel < 4)

    return masked(mask, window=(6, 4), n=12)


@reported("mlc-ai/mlc-llm#3426", "The logits are not scaled")
def default_scale():
    """The fallback of attention is called without the scale, whose default is 1."""
    return check.attention(lambda q, k, v: plain.attention(q, k, v, scale=1.0))


@reported("vllm-project/vllm-metal#665", "The softcap is not applied.")
def cap_of_zero():
    """The kernel gets the cap 0, which means none; Gemma 2 sets one."""
    return check.attention(causal, causal=True, softcap=1.5)


@reported("kekzl/imp#688", "The softcap is not applied.")
def cap_of_one_path():
    """The path of the first pass with float32 logits skips the cap."""
    return check.attention(lambda q, k, v: plain.attention(q, k, v), softcap=1.0, n=7, m=11)


@reported("unslothai/unsloth-zoo#593", "Of the products s the logits are 1 s tanh(s / 2.01); expected 2 tanh(s / 2).")
def cap_times_the_logits():
    """The cap is s tanh(s / c); expected c tanh(s / c). Planted in attention; in the report it caps the last logits."""

    def attention(q, k, v):
        logits = q @ k.swapaxes(-1, -2) / 4
        return plain.softmax(logits * np.tanh(logits / 2)) @ v

    return check.attention(attention, softcap=2.0)


@reported("vllm-project/vllm-metal#550", "The sink is missing.")
def sinks_not_bound():
    """The sinks never reach the kernel."""
    return check.attention(causal, causal=True, sink=SINK)


@reported("ROCm/rocm-libraries#12229", "exp(sink) is added 2 times.")
def sink_counted_twice():
    """Two splits of the keys both add the sink to the sum."""
    return check.attention(lambda q, k, v: causal(q, k, v, sink=SINK + np.log(2)), causal=True, sink=SINK)


@reported(
    "kyegomez/AttentionIsOFFByOne#5",
    "exp(sink) is added to a sum of exp(logit - maximum); expected exp(sink - maximum).",
)
def one_beside_shifted():
    """1 is added to a sum of exp(s - maximum); expected exp(-maximum)."""

    def weights(q, k):
        logits = q @ k.swapaxes(-1, -2) / 4
        found = np.exp(logits - logits.max(-1, keepdims=True))
        return found / (1 + found.sum(-1, keepdims=True))

    return check.softmax(weights, sink=np.zeros(3))


@reported("nerdai/llms-from-scratch-rs#30", "The weights of a key sum to 1 over the queries")
def softmax_of_another_axis():
    """The softmax is over the queries; expected over the keys."""
    return check.attention(lambda q, k, v: plain.softmax(q @ k.swapaxes(-1, -2) / 4, -2) @ v)


@reported("onnx/onnx#7274", "Query head h reads the keys of head h mod 2; expected h // 3.")
def tiled_heads():
    """Heads of keys and values are tiled; expected each repeated in a row."""
    return check.attention(lambda q, k, v: plain.attention(q, k, v, repeat="tile"), kv_heads=2)


@reported("tenstorrent/tt-metal#54833", "The denominator holds 23 more than the sum over the keys, as rows of zeros")
def padded_columns():
    """Keys are padded with zeros to a multiple of 32, and the mask's padding hides none of them."""

    def attention(q, k, v):
        more = -k.shape[-2] % 32
        mask = np.pad(plain.causal(q.shape[-2], k.shape[-2]), ((0, 0), (0, more)), constant_values=True)
        k, v = (np.pad(x, ((0, 0), (0, more), (0, 0))) for x in (k, v))
        return plain.attention(q, k, v, mask=mask)

    return check.attention(attention, causal=True)


NOTHING = (np.array([0, 1, 1, 1, 2]), np.array([1, 1, 1, 1, 2]))
"""Segments in which query 0 sees no key."""


def with_segments(softmax):
    def attention(q, k, v):
        logits = q @ k.swapaxes(-1, -2) / 4
        return softmax(logits, NOTHING[0][:, None] == NOTHING[1]) @ v

    return check.attention(attention, segments=NOTHING, n=5)


@reported("robertknight/rten#1321", "The queries 0 see no key, and their output is NaN; expected 0.", "named")
def nan_of_no_key():
    """A query that sees no key gets NaN: -inf - -inf."""

    def softmax(logits, mask):
        with np.errstate(invalid="ignore"):
            logits = np.where(mask, logits, -np.inf)
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            return weights / weights.sum(-1, keepdims=True)

    return with_segments(softmax)


@reported(
    "NVIDIA/apex#1390", "The queries 0 see no key, but the softmax gives all keys the same weight; expected 0.", "named"
)
def mean_of_no_key():
    """A query that sees no key gets the mean of all values, because hidden logits are -10000."""

    def softmax(logits, mask):
        weights = np.exp(np.where(mask, logits, -10000.0) - np.where(mask, logits, -10000.0).max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    return with_segments(softmax)


@reported("timtoole02/Camelid#535", "they are rotated; expected as they are.")
def rotated_without_positions():
    """Every layer is rotated, also each fourth one, which has no positions."""
    w = plain.frequencies(16)

    def attention(q, k, v):
        n, m = q.shape[-2], k.shape[-2]
        return causal(plain.rope(q, np.arange(m - n, m), w), plain.rope(k, np.arange(m), w), v)

    return check.attention(attention, causal=True)


@reported("Comfy-Org/ComfyUI#11409", "The base is 1000000; expected 10000.")
def exchanged_layers():
    """A local layer has the base of the global ones, and no window."""
    w = plain.frequencies(16, 1e6)

    def attention(q, k, v):
        n, m = q.shape[-2], k.shape[-2]
        return causal(plain.rope(q, np.arange(m - n, m), w), plain.rope(k, np.arange(m), w), v)

    return check.attention(attention, causal=True, window=(3, None), frequencies=plain.frequencies(16), layout="half")
