"""The recipes of docs/guides/recipes*.md: a check accepts a right port of each, and names the error of a wrong one."""

from functools import partial

import numpy as np
import plain
import pytest

import posenc
from posenc import check

RNG = np.random.default_rng(0)
ROW, KEY = np.arange(24)[:, None], np.arange(24)
CAUSAL = ROW >= KEY
W, W16 = plain.frequencies(32), plain.frequencies(16)
SELECTED = np.eye(24, dtype=bool) | (RNG.random((24, 24)) < 0.3)
BLOCKS = np.repeat((RNG.random((6, 24, 6)) < 0.3) | (np.arange(6) == ROW // 4), 4, axis=-1)
IMAGE = np.repeat([0, 1, 0, 2, 0], [3, 6, 2, 6, 7])
SAME_IMAGE = (IMAGE[:, None] == IMAGE) & (IMAGE > 0)
TREE = np.tril(np.ones((24, 24), bool))
TREE[20, 19] = TREE[22, 19] = TREE[22, 21] = False  # 19 and 20 are siblings, and 21 and 22 are children of 18
TEXT = np.repeat([0, 1], [10, 14])
SLOW = 2 * np.pi / W > 1024  # periods that exceed the trained length
CLIPPED, TIME = W.copy(), W16.copy()
CLIPPED[SLOW] *= (1 + np.cos(np.pi * np.linspace(0, 1, SLOW.sum()))) / 2
TIME[3] = 2 * np.pi / 66


def masked(seen, **sizes):
    """The check of a port that reads these keys."""
    return partial(check.attention, bias=posenc.dense(np.where(seen, 0, -np.inf)), n=24, **sizes)


def reads(seen):
    return partial(plain.attention, mask=seen)


def packed(q, k, v, seen):
    q, k = (plain.rope(x, 50_000 + np.arange(24), W16) for x in (q, k))
    return plain.attention(q, k, v, mask=seen)


def merged(q, k, v, base):
    parts = [posenc.attention(q, k[:, s], v[:, s], return_lse=True) for s in (slice(0, 5), slice(5, None))]
    outs, lses = zip(*parts, strict=True)
    return posenc.merge_attention(outs, [lse / np.log(base) for lse in lses])[0]


def shifted(x, p, axes):
    """Keys that were rotated five positions further on, moved back on some of the axes."""
    w = posenc.mrope_frequencies(W, (8, 4, 4))
    return posenc.rope_nd(posenc.rope_nd(x, p + 5, w, layout="half"), -5 * np.ones_like(p) * axes, w, layout="half")


def yarn(length):
    rope = {"rope_type": "yarn", "original_max_position_embeddings": 256}
    return posenc.rope_frequencies(32, factor=max(1.0, length / 256), **rope)


def differential(q1, k1, q2, k2, v, lam):
    mask = plain.causal(q1.shape[-2], k1.shape[-2])
    return plain.attention(q1, k1, v, mask=mask) - lam * plain.attention(q2, k2, v, mask=mask)


def scalable(q, k, v, count):
    """Each query before the factor, so that attention without it is right."""
    n = np.arange(k.shape[-2] - q.shape[-2], k.shape[-2])[:, None] + 2.0  # keys that a query sees, and one
    mask = plain.causal(q.shape[-2], k.shape[-2])
    return plain.attention(q / np.log(n) * np.log(n if count == "seen" else k.shape[-2] + 1.0), k, v, mask=mask)


def causal(q, k, v, **options):
    return plain.attention(q, k, v, mask=plain.causal(q.shape[-2], k.shape[-2]), **options)


CAUSALLY = partial(check.attention, causal=True)
ROPE = partial(check.rope, layout="half", dim=32)
RECIPES = {  # name: (check, right port, wrong port, words of the report)
    "selected keys": (masked(SELECTED & CAUSAL), reads(SELECTED & CAUSAL), reads(SELECTED), "reads the keys"),
    "selected blocks": (masked(BLOCKS & CAUSAL), reads(BLOCKS & CAUSAL), reads(BLOCKS[:1] & CAUSAL), "reads the key"),
    "blocks": (masked(ROW // 4 >= KEY // 4), reads(ROW // 4 >= KEY // 4), reads(CAUSAL), "reads the key"),
    "images": (masked(CAUSAL | SAME_IMAGE), reads(CAUSAL | SAME_IMAGE), reads(CAUSAL), "reads the key"),
    "tree": (masked(TREE), reads(TREE), reads(CAUSAL), "Query 20 reads the keys"),
    "packed texts": (
        partial(CAUSALLY, segments=(TEXT, TEXT), n=24, frequencies=W16, layout="half"),
        partial(packed, seen=CAUSAL & (TEXT[:, None] == TEXT)), partial(packed, seen=CAUSAL), "segments"),
    "left padding": (partial(ROPE, positions=np.arange(15)), lambda x, p: plain.rope(x, p, W),
                     lambda x, p: plain.rope(x, p + 9, W), "p + 9"),
    "StreamingLLM": (masked(CAUSAL & ((KEY < 4) | (KEY > ROW - 6))), reads(CAUSAL & ((KEY < 4) | (KEY > ROW - 6))),
                     reads(CAUSAL & (KEY > ROW - 6)), "The first 4 keys are hidden; expected"),
    "merging": (check.attention, partial(merged, base=np.e), partial(merged, base=2), "parts of keys"),
    "RIFLEx": (partial(check.frequencies, frequencies=TIME), TIME,
               np.where(np.arange(8) == 4, TIME[3], W16), "Wrong are pairs 3-4"),
    "clipped frequencies": (partial(check.frequencies, frequencies=CLIPPED), CLIPPED.copy(),
                            np.where(SLOW, 0, W), "The frequency of pair 9 is 0"),
    "p-RoPE": (partial(ROPE, frequencies=posenc.rope_frequencies(
                   32, rope_type="proportional", partial_rotary_factor=0.75)),
               lambda x, p: plain.rope(x, p, W * (np.arange(16) < 12)),
               lambda x, p: plain.rope(x, p, plain.frequencies(24)), "Cause: channels"),
    "PoPE": (partial(check.rope, frequencies=10000.0 ** (-np.arange(32) / 32), layout="half", dim=64),
             lambda x, p: plain.rope(x, p, 10000.0 ** (-np.arange(32) / 32)),
             lambda x, p: plain.rope(x, p, 10000.0 ** (-2 * np.arange(32) / 32)), "exponents are 4 k / dim"),
    "dynamic YaRN": (partial(check.frequencies, frequencies=yarn(1024)), yarn(1024), yarn(2048),
                     "attention factor is 1.2"),
    "shifted M-RoPE": (partial(ROPE, sections=(8, 4, 4)), partial(shifted, axes=np.ones((3, 1))),
                       partial(shifted, axes=np.array([[1], [0], [0]])), "Cause: coordinates"),
    "NoPE layer": (CAUSALLY, causal, lambda q, k, v: causal(
        *(plain.rope(x, np.arange(x.shape[-2]), W16) for x in (q, k)), v), "products"),
    "MLA": (partial(check.rope, layout="interleaved", dim=16), lambda x, p: plain.rope(x, p, W16, "interleaved"),
            lambda x, p: plain.rope(x, p, W16), "Cause: layout"),
    "differential attention": (CAUSALLY, lambda q, k, v: differential(q, k, 0 * q, k, v, 0),
                               lambda q, k, v: differential(0 * q, k, q, k, v, -1), "sum of weights"),
    "gated attention": (CAUSALLY, causal, lambda q, k, v: causal(q, k, v, after=True), "softmax"),
    "scalable softmax": (CAUSALLY, partial(scalable, count="seen"), partial(scalable, count="all"), "the queries are"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_right_port_is_accepted_and_a_wrong_one_is_explained(name):
    judge, right, wrong, words = RECIPES[name]
    judge(right).assert_right()
    assert words in str(judge(wrong))
