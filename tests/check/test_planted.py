"""Errors planted in plain implementations: does posenc.check name them?"""

from functools import partial

import ml_dtypes
import numpy as np
import plain
import pytest
from settings import DEEPSEEK, DYNAMIC, LLAMA3, LONGROPE, PARTS, PLAIN, YARN

import posenc
from posenc import check, reference

RNG = np.random.default_rng(7)
W = plain.frequencies(32)
Y = plain.yarn(32, 500000.0, 8.0, 64)
A = (0.1 * 0.8 * np.log(8) + 1) / (0.1 * 0.4 * np.log(8) + 1)
TABLE = RNG.standard_normal((32, 6))
WINDOW = RNG.standard_normal((77, 3))
CLASSES = RNG.standard_normal((80, 3))
ALIBI = posenc.alibi(plain.get_slopes(12))
T5, T5_CAUSAL = posenc.t5(TABLE, bidirectional=True), posenc.t5(TABLE, bidirectional=False)
SWIN = posenc.swin(WINDOW, 4, 6)
LAYOUT = {"dim": 32, "layout": "half"}


def rope(w=W, **errors):
    return lambda x, p: plain.rope(x, p, w, **errors)


def one_side(side, **errors):
    """A rotation with errors in the queries or the keys alone."""
    return lambda *both: tuple(
        plain.rope(x, both[2], W, **(errors if name == side else {}))
        for x, name in zip(both, ("queries", "keys"), strict=False)
    )


def in_place(x, p):
    cos, sin = (t[:, :16] for t in plain.tables(p, W, "half"))
    x1, x2 = np.split(x := x.copy(), 2, -1)
    x1[:] = x1 * cos - x2 * sin
    x2[:] = x2 * cos + x1 * sin
    return x


def product_in_place(x, p):
    cos, sin = plain.tables(p, W, "half")
    return x * cos + sin * plain.rotate_half(x * cos, "half")


def single(x, p, dtype=np.float32, of_factors=np.float32, tables=np.float64):
    p, w = (factor.astype(of_factors).astype(np.float32) for factor in (p, W))
    angle = (p[:, None] * w).astype(dtype).astype(np.float64)
    cos, sin = (np.tile(t, 2).astype(tables).astype(np.float64) for t in (np.cos(angle), np.sin(angle)))
    return x * cos + plain.rotate_half(x, "half") * sin


def waves(angle):
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(angle), -1)


def t5_matrix(n, m=None, shift=None, **errors):
    m = m or n
    rel = np.arange(m) - np.arange(n)[:, None] - (m - n if shift is None else shift)
    return TABLE[np.minimum(plain.bucket(rel, **errors), 31)].transpose(2, 0, 1)


def alibi_matrix(n, slopes=None, sign=-1.0, m=None, shift=None):
    m = m or n
    rel = np.arange(m) - np.arange(n)[:, None] - (m - n if shift is None else shift)
    return sign * np.asarray(plain.get_slopes(12) if slopes is None else slopes)[:, None, None] * abs(rel)


def swin_matrix(**errors):
    return WINDOW[plain.swin_index(4, 6, **errors)].transpose(2, 0, 1)


def unshifted(q, k, v):
    """The sink is not shifted by the maximum of the logits."""
    logits = q @ k.swapaxes(-1, -2) / 4
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / (weights.sum(-1, keepdims=True) + np.exp(SINK)[:, None, None]) @ v


def by_columns():
    x, y = np.meshgrid(np.arange(4), np.arange(6))
    rows = (x.ravel()[:, None] - x.ravel() + 3) * 11 + y.ravel()[:, None] - y.ravel() + 5
    return WINDOW[rows].transpose(2, 0, 1)


def attention(m=None, rotate=None, mask=None, n=9, **errors):
    """Attention with a mask, and with the rotations of queries and keys."""

    def function(q, k, v):
        turn_q, turn_k = rotate or (lambda x: x, lambda x: x)
        return plain.attention(turn_q(q), turn_k(k), v, mask=mask, **errors)

    return function


def turn(w, first=0, **errors):
    return lambda x: plain.rope(x, np.arange(x.shape[-2]) + first, w, **errors)


W16 = plain.frequencies(16)
T6 = t5_matrix(9)
SLOPES6 = posenc.alibi(plain.get_slopes(6))
BIAS6 = -np.array(plain.get_slopes(6))[:, None, None] * abs(np.arange(9) - np.arange(9)[:, None])
CAUSAL = {"causal": True}
CAUSAL_MASK = partial(check.mask, **CAUSAL)
BF16 = ml_dtypes.bfloat16
PADDED = np.arange(9) > 2
SINK = np.linspace(-2, 3, 6)
SHAW = {"rel_k": RNG.standard_normal((7, 16)), "rel_v": RNG.standard_normal((7, 16))}
DEBERTA = RNG.standard_normal((2, 8, 16))

LATER = {"frequencies": W16, "layout": "half"}
FIRE = {
    "w1": RNG.standard_normal((8, 1)),
    "b1": RNG.standard_normal(8),
    "w2": RNG.standard_normal((6, 8)),
    "b2": RNG.standard_normal(6),
    "c": 0.3,
}


def cut_early(rel):
    n = abs(rel)
    large = 8 + np.floor(np.log(np.maximum(n, 1) / 8) / np.log(16)) * 8
    return 16 * (rel > 0) + np.where(n < 8, n, np.minimum(large, 15))


def decode(**options):
    """A cache of numbers of rows: `options` are the positions of queries and keys in a chunk, and a mask."""
    stored = {}
    at = {**dict.fromkeys("qk", lambda start, end: start), "mask": plain.causal, "bias": lambda n, m: 0.0, **options}

    def step(q, k, v, start):
        end = start + q.shape[-2]
        q, k = (plain.rope(x, np.arange(x.shape[-2]) + at[name](start, end), W16) for x, name in ((q, "q"), (k, "k")))
        for name, new in (("k", k), ("v", v)):
            stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
        return plain.attention(
            q, stored["k"], stored["v"], mask=at["mask"](end - start, end), bias=at["bias"](end - start, end)
        )

    return step


def preallocated(size):
    """A cache of rows of zeros, which are not masked in a step of one token."""
    stored = np.zeros((2, 6, size, 16))

    def step(q, k, v, start):
        end = start + q.shape[-2]
        stored[:, :, start:end] = k, v
        mask = np.arange(size) <= np.arange(start, end)[:, None] if end - start > 1 else None
        return plain.attention(q, *stored, mask=mask)

    return step


def first_window(n, m):
    """All queries of a chunk have the window of its first query, 3 keys back."""
    return plain.causal(n, m) & (np.arange(m) >= m - n - 3)


def along(*axes, w=W, sections=(4, 6, 6)):
    """A rotation whose sections of pairs read these coordinates."""
    pairs = np.repeat(axes, sections)
    return lambda x, p: turned(x, p[pairs].T * w)


def turned(x, angle):
    cos, sin = (np.concatenate([t, t], -1) for t in (np.cos(angle), np.sin(angle)))
    return x * cos + plain.rotate_half(x, "half") * sin


def xpos(keys=-1):
    zeta = (np.arange(16) / 16 + 0.4) / 1.4

    def both(q, k, p):
        size = np.tile(zeta ** (p[:, None] / 512), 2)
        return plain.rope(q, p, W) * size, plain.rope(k, p, W) * size**keys

    return both


def with_shaw(row):
    """Shaw's attention whose table has these rows at the distances -9 .. 9."""
    tables = {name: table[row(np.arange(-9, 10) + 3)] for name, table in SHAW.items()}
    return partial(plain.shaw, **tables)


def xl(q, k, v):
    """Transformer-XL whose shift drops the last row."""
    n, m = q.shape[-2], k.shape[-2]
    r, bias_u, bias_v = XL["r"][:, 12 - (m - 1) : 13], XL["u"][:, None], XL["v"][:, None]
    shifted = (q + bias_v) @ r.swapaxes(-1, -2)
    shifted = np.concatenate([np.zeros((3, n, 1)), shifted], -1).reshape(3, m + 1, n)[:, :-1].reshape(3, n, m)
    logits = ((q + bias_u) @ k.swapaxes(-1, -2) + shifted) / 4
    return plain.softmax(np.where(plain.causal(n, m), logits, -np.inf)) @ v


XL = {"r": RNG.standard_normal((3, 25, 16)), "u": RNG.standard_normal((3, 16)), "v": RNG.standard_normal((3, 16))}
MIXED = np.random.default_rng(0).standard_normal((3, 3))
KERPLE = RNG.uniform(0.2, 3, (2, 3))
DIAGONALS = RNG.standard_normal((2, 31))
TISA = RNG.standard_normal((3, 2, 4))
AWAY = abs(np.arange(16) - np.arange(16)[:, None])
SLOPES = np.array(plain.get_slopes(12))[:, None, None]
LINEAR = {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
LONG, SHORT = (plain.frequencies(32, 5e4) / LONGROPE["rope_scaling"][f"{name}_factor"] for name in ("long", "short"))
READ = np.array([0, 2, 2, 1, 0, 3, 2])


def tisa_matrix(rel):
    a, b, c = TISA[:, :, None, None]
    return (a * np.exp(-abs(b) * (rel[..., None] - c) ** 2)).sum(-1)


def last_read(grad, table):
    found = np.zeros_like(table)
    found[READ] = grad
    return found


def large_logits(grad, x):
    """The gradient of a softmax in float32."""
    grad, p = np.float32(grad), plain.softmax(np.float32(30) * np.float32(x))
    return np.float32(30) * p * (grad - (grad * p).sum(-1, keepdims=True))


def rows(check_of, planted):
    """(cause, call) of implementations that are checked in one way."""
    return [(cause, partial(check_of, implementation)) for cause, implementation in planted.items()]


PLANTED = [  # (names of causes or parts of their sentences, call)
    *rows(partial(check.rope, **LAYOUT), {
        "product in place": product_in_place,
        "positions in bfloat16": lambda x, p: plain.rope(x, p.astype(BF16).astype(float), W),
        "direction": rope(sign=(1, -1)),
        "minus": rope(sign=(1, 1)),
        "position p is taken for p + 1": rope(offset=1),
        "cos and sin exchanged": rope(exchanged=True),
        "exponent doubled": rope(plain.frequencies(32, over=16)),
        "exponent from one": rope(plain.frequencies(32, first=1)),
        "in place": in_place,
        "angles in bfloat16": partial(single, dtype=BF16),
        "rotated by one position: batch 0, head 0 by 0, batch 0, head 1 by 1": lambda x, p: plain.rope(
            x.swapaxes(1, 2), np.arange(x.shape[1]), W).swapaxes(1, 2),
        "rotated twice": lambda x, p: plain.rope(plain.rope(x, p, W), p, W),
        "layout + base": rope(plain.frequencies(32, 5e5), pairs="interleaved"),
    }),
    *rows(partial(check.rope, dim=32, rotary_dim=16, layout="half"), {
        "Channels 0-31 are rotated; expected 0-15.": rope(),
    }),
    *rows(partial(check.rope, frequencies=YARN, layout="half"), {
        "cos only": rope(Y, factor=A, sin_factor=1.0),
        "mscale without division": rope(Y, factor=0.1 * 0.8 * np.log(8) + 1),
        "other factor": rope(Y, factor=1.3),
        "scaling ignored": rope(plain.frequencies(32, 500000.0)),
        "linear": rope(plain.frequencies(32, 500000.0) / 8, factor=A),
        "tables + attention factor": rope(Y, table_pairs="interleaved"),
    }),
    ("tables of cos and sin are rounded to bfloat16", partial(check.rope, partial(single, tables=BF16),
        positions=4096, **LAYOUT)),
    ("tables of cos and sin are rounded to float16", partial(check.rope, partial(single, tables=np.float16),
        positions=512, **LAYOUT)),
    ("coordinate 0: pairs 8-15; coordinate 1: pairs 0-7;",
        partial(check.rope, along(1, 0, w=np.tile(W16, 2), sections=(8, 8)), axes="concat", **LAYOUT)),
    ("grows by -0.0024468 for each position",
        partial(check.rope, xpos(1), inputs=("q", "k"), scale_base=512, **LAYOUT)),
    ("positions in float16", partial(check.rope, lambda x, p: plain.rope(x, p.astype(np.float16), W),
        positions=np.arange(2040, 2060), **LAYOUT)),
    ("positions, frequencies and angles in bfloat16", partial(check.rope, partial(single, dtype=BF16,
            of_factors=BF16), positions=np.arange(4000, 4009), dtype="bfloat16", **LAYOUT)),
    ("Channels 16-31 are rotated; expected 0-15.", partial(check.rope, rope(W16, first=16),
        frequencies={"head_dim": 32, "rope_theta": 1e4, "partial_rotary_factor": 0.5}, layout="half")),
    ("Of k: No channel is", partial(check.rope, lambda q, k, p: (plain.rope(q, p, W), k), inputs=("q", "k"), **LAYOUT)),
    ("token n is rotated by n",
        partial(check.rope, lambda x, p: plain.rope(x, np.arange(len(p)), W), positions=[5, 9, 2, 40], **LAYOUT)),
    ("float32", partial(check.rope, single, positions=np.arange(10**6, 10**6 + 9), dtype="float64", **LAYOUT)),
    *rows(partial(check.rope, sections=(4, 6, 6), **LAYOUT), {
        "coordinate 1: pairs 10-15; coordinate 2: pairs 4-9; expected": along(0, 2, 1),
        "Pairs read coordinate 0: pairs 0-15;": along(0, 0, 0),
        "coordinate 1 have the frequencies 0-5; expected 4-9. The pairs 10-15 of coordinate 2 have":
            along(0, 1, 2, w=W[np.r_[:4, :6, :6]]),
    }),
    *rows(partial(check.rope, inputs=("q", "k"), **LAYOUT), {
        "Of k: Position 0 is taken for 1: position p is taken for p + 1": one_side("keys", offset=1),
        "layout": one_side("queries", pairs="interleaved"),
    }),
    *rows(partial(check.frequencies, frequencies=LONGROPE, seq_len=512), {
        "attention factor without its root": lambda: (LONG, 1 + np.log(8) / np.log(128)),
        "other factor": lambda: (LONG, np.sqrt(1 + np.log(8) / np.log(1024))),
    }),
    *rows(partial(check.frequencies, dim=32), {
        "exponent of integers": np.ones(16),
        "wavelengths": 1 / W,
        "The frequency of pair 0 is 1.00005; expected 1. Wrong are pairs 0.": W * (1 + 5e-5 * (np.arange(16) == 0)),
        "The frequencies are in reverse order. + The base is 500000; expected 10000.": plain.frequencies(32, 5e5)[::-1],
    }),
    *rows(partial(check.frequencies, frequencies=YARN), {
        "beta_fast and beta_slow": plain.yarn(32, 500000.0, 8.0, 64, 1, 32),
        "original length": plain.yarn(32, 500000.0, 8.0, 512),
        "turns without 2 pi": plain.yarn(32, 500000.0, 8.0, 64 * 2 * np.pi),
        "factor of the scaling": plain.yarn(32, 500000.0, 4.0, 64),
    }),
    ("no blend", partial(check.frequencies,
        np.where(plain.frequencies(32, 5e5) < 2 * np.pi / 128, 1 / 8, 1) * plain.frequencies(32, 5e5),
        frequencies=LLAMA3)),
    ("scaling where none belongs", partial(check.frequencies, Y, frequencies=PLAIN)),
    ("exponent over the rotated pairs", partial(check.frequencies, np.append(W16, np.zeros(8)),
        frequencies=posenc.rope_frequencies(32, rope_type="proportional", partial_rotary_factor=0.5))),
    ("scaling inverted", partial(check.frequencies, W * 4,
        frequencies={"head_dim": 32, "rope_theta": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 4.0}})),
    ("base", partial(check.frequencies, plain.frequencies(32, 5e4 * 16 ** (16 / 15)), frequencies=DYNAMIC,
        seq_len=512)),
    ("exponent over the head", partial(check.frequencies, plain.frequencies(16, 5e5, over=32),
        frequencies={**PLAIN, "partial_rotary_factor": 0.5})),
    *rows(partial(check.frequencies, frequencies=DYNAMIC, seq_len=300), {
        "stretch without factor - 1": plain.frequencies(32, 5e4 * (4 * 300 / 128) ** (16 / 15)),
        "trained length times the factor": plain.frequencies(32, 5e4 * (4 * 4 * 128 / 128 - 3) ** (16 / 15)),
        "length times the factor": plain.frequencies(32, 5e4 * (4 * 4 * 300 / 128 - 3) ** (16 / 15)),
    }),
    ("list at the trained length", partial(check.frequencies, LONG, frequencies=LONGROPE, seq_len=128)),
    ("list at the trained length", partial(check.frequencies, SHORT, frequencies=LONGROPE, seq_len=129)),
    ("long and short factor", partial(check.frequencies, SHORT, frequencies=LONGROPE, seq_len=256)),
    ("frequencies in float16", partial(check.frequencies, W.astype(np.float16), dim=32)),
    ("frequencies in bfloat16", partial(check.frequencies, W.astype(BF16), dim=32)),
    *rows(partial(check.sinusoid, dim=32), {
        "layout": partial(plain.sinusoid, dim=32, layout="half"),
        "Channel c has the frequency base**(-1 c / dim)": partial(plain.sinusoid, dim=32, by_channel=1),
        "exponent halved": partial(plain.sinusoid, dim=32, step=1),
        "exponent over pairs less one": partial(plain.sinusoid, dim=32, over=30),
    }),
    *rows(partial(check.sinusoid, dim=32, layout="half", order="cossin"), {
        "Sines and cosines are exchanged; expected the order cossin.": partial(plain.sinusoid, dim=32, layout="half"),
        "order + exponent over pairs less one": partial(plain.sinusoid, dim=32, layout="half", over=30),
        "layout + order": partial(plain.sinusoid, dim=32),
        "The angles are negated + order": lambda p: plain.sinusoid(-p, 32, layout="half"),
    }),
    *rows(partial(check.sinusoid, dim=32, positions=np.arange(5, 29)), {
        "order": lambda p: waves(np.pi / 2 - p[:, None] * W),
        "layout": partial(plain.sinusoid, dim=32, layout="half"),
        "The angles are negated + The base is 500000; expected 10000.": lambda p: plain.sinusoid(-p, 32, 5e5),
    }),
    *rows(partial(check.sinusoid, dim=64), {
        f"The frequencies (or the positions) are {factor} times the right ones.":
            lambda p, factor=factor: plain.sinusoid(factor * p, 64) for factor in (0.001, 4, 64, 1000)
    }),
    ("power over dim", partial(check.sinusoid,
        lambda p: waves(p[:, None] / (10000.0 ** (2.0 * np.arange(32)) / 64)), dim=64)),
    *rows(partial(check.rope, **LAYOUT), {
        f"The frequencies (or the positions) are {factor} times the right ones.": rope(factor * W)
        for factor in (0.25, 4, 64, 1000)
    }),
    ("are 0.31831 times the right ones (1 / pi).", partial(check.sinusoid, lambda p: waves(p[:,
            None] * 2.0 ** np.arange(6)), frequencies=np.pi * 2.0 ** np.arange(6))),
    *rows(partial(check.slopes, heads=12), {
        "odd places": lambda h: plain.get_slopes(h, slice(1, None, 2)),
        "consecutive places": lambda h: plain.get_slopes(h, slice(None)),
        "slopes of the next power": lambda h: plain.get_slopes(16)[:h],
        "geometric for any number + The slopes are negative": lambda h: -(2.0 ** (-8 * np.arange(1, h + 1) / h)),
    }),
    *rows(check.buckets, {
        "The distances below 4 have a bucket each; expected below 8.": partial(plain.bucket, less=4),
        "The last bucket of a side is 14; expected 15.": lambda rel: plain.bucket(rel) - (plain.bucket(rel) % 16 == 15),
        "cut before the product": cut_early,
        "direction": partial(plain.bucket, direction=-1),
        "causal": partial(plain.bucket, bidirectional=False),
        "The distances below 7 have a bucket each; expected below 8.": partial(plain.bucket, less=1),
        "The distances below 16 have a bucket each; expected below 8.": partial(plain.bucket, early=True),
        "rounded up": partial(plain.bucket, ceil=True),
        "divisor": partial(plain.bucket, log_of=128),
        "Distance 0 has the bucket 16; expected 0: half of all is": partial(plain.bucket, strict=False),
        "causal + All buckets are 1 too large.": lambda rel: plain.bucket(rel, bidirectional=False) + 1,
        "max_distance is 100; expected 128.": partial(plain.bucket, max_distance=100),
        "The number of buckets of a side is 32; expected 16.": partial(plain.bucket, buckets=64),
        "is 32; expected 16. max_distance is 512; expected 128.": partial(plain.bucket, buckets=64, max_distance=512),
        "logarithm to base 2 above": partial(plain.bucket, log_of=16 ** np.log(2)),
    }),
    ("bidirectional", partial(check.buckets, plain.bucket, bidirectional=False)),
    ("The last bucket of a side is 18;", partial(check.buckets, partial(plain.bucket, limit=False),
        bidirectional=True)),
    *rows(partial(check.positions, parts=PARTS, style="qwen2_5_vl", tokens_per_second=3), {
        "height and width exchanged": plain.mrope_model(PARTS, 3, order=(0, 2, 1)),
        "advance by one": plain.mrope_model(PARTS, 3, largest=lambda *sizes: 1),
        "advance one more": plain.mrope_model(PARTS, 3, extra=1),
        "advance without time": plain.mrope_model(PARTS, 3, largest=lambda t, h, w: max(h, w)),
        "temporal scale on stills": plain.mrope_model(PARTS, 3, stills=True),
        "time in steps": plain.mrope_model(PARTS),
        "seconds cut": plain.mrope_model(PARTS, 3, whole_seconds=True),
        "chunk not cut": plain.mrope_model(PARTS, 3, cut=False),
        "offset lost": plain.mrope_model(PARTS, 3, offset=False),
    }),
    *rows(partial(check.bias, bias=posenc.fire(**FIRE, threshold=5.0), n=20), {
        "normalised by the last position": lambda n, m: posenc.fire(**FIRE, threshold=m - 1).matrix(n, m, align="end"),
        "normalised by the length": lambda n, m: posenc.fire(**FIRE, threshold=m).matrix(n, m, align="end"),
    }),
    *rows(partial(check.bias, bias=ALIBI, n=20), {
        "geometric for any number": alibi_matrix(20, 2.0 ** (-8 * np.arange(1, 13) / 12)),
        "All numbers are -1 times the right ones.": alibi_matrix(20, sign=1.0),
        "The bias is slope * j, by the key alone.": np.broadcast_to(SLOPES * np.arange(20), (12, 20, 20)),
        "The bias is slope * (j - 19), by the key alone.": np.broadcast_to(SLOPES * np.arange(-19, 1), (12, 20, 20)),
    }),
    *rows(partial(check.bias, bias=T5, n=40), {
        "reshaped table": TABLE.reshape(6, 32)[:, plain.bucket(np.arange(40) - np.arange(40)[:, None])],
    }),
    *rows(partial(check.bias, bias=T5, n=5, m=40), {
        "alignment": t5_matrix(5, 40, shift=0),
        "j - i is taken for -(j - i) - 35.":
            TABLE[plain.bucket(np.arange(5)[:, None] - np.arange(40))].transpose(2, 0, 1),
    }),
    *rows(partial(check.bias, bias=SWIN, n=24), {
        "with tokens numbered down the columns; expected": by_columns(),
        "The matrix is transposed: queries and keys are exchanged.": swin_matrix(sign=-1),
    }),
    *rows(partial(check.bias, bias=posenc.beit(CLASSES, 4, 6), n=25), {
        "Class to patch reads the rows (78)": posenc.beit(CLASSES[[*range(77), 78, 77, 79]], 4, 6).matrix(25),
    }),
    ("no threshold", partial(check.bias, lambda n, m: posenc.fire(**FIRE, threshold=1e-9).matrix(n, m, align="end"),
        bias=posenc.fire(**FIRE, threshold=5.0), n=20, causal=True)),
    ("parameters exchanged", partial(check.bias, -KERPLE[1][:, None, None] * np.log1p(KERPLE[0][:, None, None] * AWAY),
        bias=posenc.kerple_log(*KERPLE), n=16)),
    ("distance outside of the logarithm", partial(check.bias,
        -(KERPLE[0] * np.log1p(KERPLE[1]))[:, None, None] * AWAY, bias=posenc.kerple_log(*KERPLE), n=16)),
    ("is reshaped to (heads, queries, keys)",
        partial(check.bias, lambda n, m: np.moveaxis(t5_matrix(n), 0, -1).reshape(6, n, m), bias=T5, n=24)),
    ("max_distance is 64; expected 128.", partial(check.bias, t5_matrix(200, max_distance=64), bias=T5, n=200)),
    ("is 7 dy + 1 dx + 26 for the steps dy and dx", partial(check.bias, WINDOW[plain.swin_index(6,
            4) - 2 * 7 + 2].transpose(2, 0, 1), bias=posenc.swin(WINDOW, 6, 4), n=24)),
    ("bidirectional", partial(check.bias, t5_matrix(40), bias=T5_CAUSAL, n=40)),
    ("offset +1", partial(check.bias, alibi_matrix(5, m=20, shift=16), bias=ALIBI, n=5, m=20)),
    *rows(partial(check.bias, bias=posenc.toeplitz(DIAGONALS), n=16), {
        "Keys after the query have the numbers of keys before it": DIAGONALS[:, -AWAY + 15],
        "Keys before the query have the numbers of keys after it": DIAGONALS[:, AWAY + 15],
    }),
    *rows(partial(check.bias, bias=posenc.tisa(*TISA), n=16), {
        "Keys after the query have the numbers of keys before it": tisa_matrix(-AWAY),
        "Keys before the query have the numbers of keys after it": tisa_matrix(AWAY),
    }),
    *rows(partial(CAUSAL_MASK, n=9), {
        "True marks the pairs to leave out": ~plain.causal(9, 9),
        "diagonal": plain.causal(9, 9, diagonal=-1),
    }),
    ("no window", partial(CAUSAL_MASK, plain.causal(9, 9), n=9, window=(3, None))),
    *rows(partial(CAUSAL_MASK, n=9, segments=(np.ones(9), PADDED)), {
        "segments of the query": plain.causal(9, 9) & PADDED[:, None],
        "padding on the other side": plain.causal(9, 9) & PADDED[::-1],
    }),
    ("segments or causal", partial(CAUSAL_MASK, plain.causal(9, 9) | (PADDED[:, None] == PADDED), n=9,
        segments=(PADDED, PADDED))),
    ("ones added", partial(CAUSAL_MASK, np.tri(8), n=8)),
    ("window in place of chunks", partial(CAUSAL_MASK, plain.causal(12, 12, left=3), n=12,
        segments=(np.arange(12) // 4,) * 2)),
    ("reaches 8 keys back and 0 ahead; expected 3 and 0.", partial(CAUSAL_MASK, plain.causal(12, 12, left=8), n=12,
        window=(3, None))),
    *rows(check.softmax, {
        "Logits are 0.7 times the right ones.": lambda q, k: plain.softmax(0.175 * q @ k.swapaxes(-1, -2)),
        "scale squared": lambda q, k: plain.softmax(q @ k.swapaxes(-1, -2) / 16),
        "The weights of a key sum to 1 over the queries": lambda q, k: plain.softmax(q @ k.swapaxes(-1, -2) / 4, -2),
        "The weights of a key sum to 1 over the heads": lambda q, k: plain.softmax(q @ k.swapaxes(-1, -2) / 4, 0),
    }),
    *rows(partial(check.attention, kv_heads=2), {
        "Head h of the output is the result of head (0, 3, 1, 4, 2, 5); expected of h.":
            lambda q, k, v: attention()(q, k, v).reshape(2, 3, 9, 16).swapaxes(0, 1).reshape(6, 9, 16),
        "reads the values of head h mod 2;":
            lambda q, k, v: plain.attention(q, np.repeat(k, 3, 0), np.tile(v, (3, 1, 1))),

                   "Logits are 4 (1 / the scale) times the right ones. + Query head h reads the keys of head h mod 2;":
            attention(scale=1.0, repeat="tile"),
    }),
    *rows(check.attention, {
        "is reshaped to (heads, queries, dim)": lambda q, k, v: attention()(q, k, v).swapaxes(0, 1).reshape(q.shape),
        "Query head h reads the keys of head h mod 2; expected h // 3.": attention(repeat="tile"),
        "Logits are 1.5 times the right ones.": attention(scale=0.375),
    }),
    *rows(partial(check.attention, **CAUSAL), {
        "no causal mask": attention(),
        "The window reaches all keys back and 1 ahead;": attention(mask=plain.causal(9, 9, diagonal=1)),
        "the mask multiplies the weights after the softmax": attention(mask=plain.causal(9, 9), after=True),
    }),
    *rows(partial(check.attention, bias=SLOPES6), {
        "Its numbers are 0.25 (the scale) times the right ones.": attention(bias=BIAS6, bias_inside=True),
        "Its numbers are 0 times the right ones.": attention(),
        "Its numbers are -1 times the right ones.": attention(bias=-BIAS6),
    }),
    *rows(partial(check.attention, softcap=2.0), {
        "cap without division": attention(cap=2.0, cap_divides=False),
        "cap before the scale": lambda q, k, v: plain.softmax(np.tanh(q @ k.swapaxes(-1, -2) / 2) / 2) @ v,
    }),
    *rows(partial(check.attention, sink=SINK), {
        "exp(sink) is added to a sum of exp(logit - maximum)": unshifted,
        "sink of 0": attention(sink=0 * SINK),
        "sink scaled": attention(sink=SINK / 4),
        "sign of the sink": attention(sink=-SINK),
    }),
    ("drops the last row of the padded matrix",
        partial(check.attention, xl, causal=True, heads=3, n=4, m=9, bias=posenc.transformer_xl(**XL))),
    ("softmax factor", partial(check.attention, attention(rotate=(turn(plain.yarn(16, 1e4, 40.0, 4096)),) * 2),
        frequencies=DEEPSEEK, layout="half")),
    ("The base is 30000; expected 10000.",
        partial(check.attention, attention(rotate=(turn(plain.frequencies(16, 3e4)),) * 2), **LATER)),
    ("0.25 (1 / sqrt(the width of heads)) times", partial(check.attention, attention(bias=T6), bias=T5, scale=1.0)),
    ("direction of p2c", partial(
        check.attention, partial(posenc.attention, bias=posenc.deberta(*DEBERTA, p2c_index="paper")),
        bias=posenc.deberta(*DEBERTA))),
    ("their logit is -2; expected -inf.",
        partial(check.attention, attention(mask=plain.causal(9, 9), cap=2.0, cap_last=True), softcap=2.0, **CAUSAL)),
    ("sink capped", partial(check.attention, attention(cap=2.0, sink=2 * np.tanh(SINK / 2)), softcap=2.0, sink=SINK)),
    ("base", partial(check.attention, attention(rotate=(turn(W16),) * 2), frequencies=plain.frequencies(16, 1e6),
        layout="half")),
    ("alignment in the rotation", partial(check.attention,
        attention(rotate=(turn(W16), turn(W16)), mask=plain.causal(4, 9)), n=4, m=9, **LATER, **CAUSAL)),
    ("direction of the keys", partial(check.attention, attention(rotate=(turn(W16), turn(W16, sign=(1, -1)))),
        **LATER)),
    ("alignment + are 0.25 (the scale) times",
        partial(check.attention, attention(bias=alibi_matrix(4, plain.get_slopes(6), m=9), bias_inside=True,
        mask=plain.causal(4, 9, 0)), n=4, m=9, bias=SLOPES6, **CAUSAL)),
    *rows(partial(check.attention, bias=posenc.shaw(**SHAW)), {
        "last row of the table not used": with_shaw(lambda row: np.clip(row, 0, 5)),
        "first row of the table not used": with_shaw(lambda row: np.clip(row, 1, 6)),
        "negative rows": with_shaw(lambda row: np.where(row < 0, row % 7, np.minimum(row, 6))),
        "direction (bias)": partial(plain.shaw, **SHAW, sign=-1),
        "clipped one earlier": partial(plain.shaw, **SHAW, clip=2),
        "Its numbers are 4 (1 / the scale) times the right ones.": partial(plain.shaw, **SHAW, outside=True),
        "no rel_v": partial(plain.shaw, rel_k=SHAW["rel_k"], rel_v=0 * SHAW["rel_v"]),
    }),
    *rows(partial(check.cache, **LATER), {
        "offset of the queries": plain.decoder(W16, lambda start: 0, lambda start: start),
        "cached keys rotated again": plain.decoder(W16, again=True),
        "cached before the rotation": plain.decoder(W16, raw=True),
        "cached keys lost": plain.decoder(W16, cached=lambda old, new: new),
        "alignment": plain.decoder(W16, shift=0),
        "offset twice": decode(q=lambda start, end: 2 * start, k=lambda start, end: 2 * start),
        "queries at the offset after the update": decode(q=lambda start, end: end),
        "no causal mask after the first chunk": plain.decoder(W16, mask=None),
        "4 (1 / the scale) times the right ones for queries 4-8": plain.decoder(W16, scale=1.0),
    }),
    *rows(partial(check.cache, **LATER, window=(3, None)), {
        "window of the last query": plain.decoder(
            W16, left=3, cached=lambda old, new: np.concatenate([old, new], -2)[:, -4:]),
        "offset + no window": plain.decoder(W16, lambda start: 0),
    }),
    ("rows of zeros of a cache of 32 rows that are not masked", partial(check.cache, preallocated(32))),
    ("0 times the right ones for queries 4-8", partial(check.cache, decode(bias=lambda n, m: t5_matrix(
        n, bidirectional=False) if n == m else 0.0), bias=T5_CAUSAL, **LATER)),
    ("not reset", partial(check.cache, plain.decoder(W16, cached=lambda old, new: np.concatenate([old, new], -2),
        first=False), **LATER)),
    ("cached keys at the new position", partial(check.cache, plain.decoder(W16, late=True), chunks=(4, 1, 1, 1),
        **LATER)),
    ("window of the first query", partial(check.cache, decode(mask=first_window), window=(3, None), **LATER)),
    ("is the cotangent itself",
        partial(check.gradient, lambda g, x: g, lambda x: 2 * np.tanh(x / 2), RNG.standard_normal((4, 5)))),
    ("the cotangents of the results 4; expected 0, 4.",
        partial(check.gradient, last_read, lambda table: table[READ], RNG.standard_normal((5, 3)))),
    ("the function applied to the cotangent", partial(check.gradient, lambda g, x: plain.rope(g, np.arange(5), W16),
            lambda x: plain.rope(x, np.arange(5), W16), RNG.standard_normal((5, 16)))),
    ("a product with a matrix along axis 0;", partial(check.gradient,
        lambda g, v: MIXED @ g @ MIXED.T, lambda v: MIXED @ v @ MIXED, RNG.standard_normal((3, 3)))),
    ("one divided by the number of results that read the entry", partial(check.gradient,
        lambda g, t: np.array([g[0] + g[1], g[2]]) / [[2], [1]], lambda t: t[[0, 0, 1]], RNG.standard_normal((2, 3)))),
    ("a softmax p without its row sum", partial(check.gradient, lambda g, x: plain.softmax(x) * g, plain.softmax,
        RNG.standard_normal((2, 5)))),
    ("is 0.16667 times the right one.",
        partial(check.gradient, lambda g, x: 2 * x * g / 6, lambda x: x**2, RNG.standard_normal((2, 3)))),
    ("argument 0 is 0.5 times + argument 1 is -1 times",
        partial(check.gradient, lambda g, a, b: (g * b / 2, -g * a), lambda a, b: a * b, *RNG.standard_normal((2, 3)))),
]  # fmt: skip


@pytest.mark.parametrize(("planted", "run"), PLANTED, ids=[f"{run.func.__name__}: {cause}" for cause, run in PLANTED])
def test_a_planted_error_is_named(planted, run):
    report = run()
    assert not report
    for one in planted.split(" + ") if "p + 1" not in planted and "dx + " not in planted else [planted]:
        assert any(one == cause.name or one in cause.sentence for cause in report.causes), str(report)


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (partial(check.frequencies, plain.frequencies(32, 5e5), LINEAR), ["scaling ignored"]),
        (
            partial(check.frequencies, SHORT, LONGROPE, seq_len=512),
            ["length of longrope ignored", "original length", "long and short factor"],
        ),
    ],
)
def test_no_cause_is_of_another_scheme(run, names):
    assert sorted(cause.name for cause in run().causes) == sorted(names)


RIGHT = [
    partial(check.rope, rope(), **LAYOUT),
    partial(check.rope, rope(pairs="interleaved"), dim=32, layout="interleaved"),
    partial(check.rope, rope(Y, factor=A), YARN, layout="half"),
    partial(check.frequencies, (Y, A), YARN),
    partial(check.slopes, plain.get_slopes, 12),
    partial(check.buckets, partial(plain.bucket, bidirectional=False), bidirectional=False),
    partial(check.bias, t5_matrix, T5, 12, 40),
    partial(check.bias, swin_matrix(), SWIN, 24),
    partial(CAUSAL_MASK, plain.causal, 5, 9, align="end"),
    partial(check.positions, plain.mrope_model(PARTS, 3), PARTS, style="qwen2_5_omni", tokens_per_second=3),
    partial(check.positions, plain.mrope([3, (1, 4, 6), 2])[0], [3, (1, 4, 6), 2], style="qwen3_vl"),
    partial(check.positions, np.tile(np.arange(5), (3, 1)), [3], style="qwen2_vl"),
    partial(check.positions, np.tile(np.arange(5), (3, 1, 1)), [3], style="qwen2_vl"),
    partial(check.positions, lambda i, j: np.tile(np.arange(i, j), (3, 1, 1)), [9], style="qwen2_vl"),
    partial(check.softmax, lambda q, k: plain.softmax(q @ k.swapaxes(-1, -2) / 4)),
    partial(check.attention, attention(bias=BIAS6, cap=2.0, mask=plain.causal(9, 9)), bias=SLOPES6, softcap=2.0,
            **CAUSAL),
    partial(check.attention, attention(rotate=(turn(W16, 5), turn(W16)), mask=plain.causal(4, 9)), n=4, m=9, kv_heads=2,
            **LATER, **CAUSAL),
    partial(check.attention, partial(plain.shaw, **SHAW), bias=posenc.shaw(*SHAW.values())),
    partial(check.cache, plain.decoder(W16), **LATER),
    partial(check.sinusoid, partial(plain.sinusoid, dim=32), 32),
    partial(check.gradient, lambda g, x: [2 * g * x], lambda x: x**2, np.ones(3)),  # a list of one
    partial(check.gradient, lambda g, x: 1e6 * g * np.cos(1e6 * x), lambda x: np.sin(1e6 * x), np.linspace(0, 1, 7)),
    partial(check.gradient, lambda g, x: g * (x > 0), lambda x: np.maximum(x, 0), np.array([-1.0, 0, 2])),  # a kink
    partial(check.gradient, lambda g, x: g / np.cosh(x / 50) ** 2, lambda x: 50 * np.tanh(x / 50), 60 + np.arange(9.0)),
    partial(check.gradient, large_logits, lambda x: plain.softmax(30 * x), RNG.normal(size=(2, 5)), dtype="float32"),
    partial(check.gradient, lambda g, x: plain.rope(g, -np.arange(5), W16),
            lambda x: reference.rope(x, 5, W16, layout="half"), RNG.standard_normal((5, 16))),
]  # fmt: skip


@pytest.mark.parametrize("run", RIGHT)
def test_an_implementation_without_an_error_is_not_accused(run):
    assert run()


def test_what_is_added_to_a_bias_is_read_by_key_query_and_distance():
    gates = -(np.linspace(0.1, 0.9, 12)[None] ** 2)
    fox, rng = posenc.fox(gates), np.random.default_rng(3)
    own = check.bias(fox.matrix(12) + gates[:, None], fox, 12, causal=True, dtype="float64")
    assert "What is added depends on the key alone: (-0.01, " in own.causes[0].sentence
    assert own.causes[0].sentence.endswith(" It is log_forget.")
    alibi = posenc.alibi(4).matrix(12)
    row = check.bias(alibi + rng.standard_normal((4, 12, 1)), posenc.alibi(4), 12)
    assert "depends on the query alone" in row.causes[0].sentence
    power = posenc.kerple_power(np.full(2, 0.5), np.full(2, 1.5))
    linear = check.bias(-0.25 * abs(np.subtract.outer(np.arange(12), np.arange(12))) * np.ones((2, 1, 1)), power, 12)
    assert linear.causes[0].sentence.endswith("The bias of head 0 is d / -4 for the distance d.")
