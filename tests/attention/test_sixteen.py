"""Products of 16-bit numbers: attention of float16 and bfloat16 queries, with keys and values of 16 bits or int8.

The variant "amx-emulated" has the bits of AMX on every machine. Bounds are those of the page "Sixteen bits".
"""

import numpy as np
import pytest
from cases import BF16, F16, F32, F64
from cases.attention import pairs_of, sixteen_errors
from cases.layouts import same_bits

import posenc
from posenc import reference

HALVES = [d for d in (F16, BF16) if d is not None]
LISTED = [name for name in ("avx512bf16", "amx") if name in posenc.runtime.isas()]
VARIANTS = [*LISTED, "amx-emulated"]
UNIT = {F16: 2.0**-11, BF16: 2.0**-8}
"""Largest relative error of rounding to nearest."""


@pytest.fixture(params=VARIANTS)
def variant(request):
    with posenc.runtime.use_isa(request.param):
        yield request.param


@pytest.fixture(params=HALVES, ids=str)
def half(request):
    return request.param


@pytest.fixture
def bfloat16():
    return BF16 or pytest.skip("ml_dtypes is not installed, so there is no bfloat16")


def qkv(rng, dtype, n=70, m=200, width=64, value_width=64, heads=2, groups=2, spread=1.0):
    q, k, v = rng.standard_normal((heads, n, width)), *rng.standard_normal((2, groups, m, max(width, value_width)))
    return (spread * q).astype(dtype), (spread * k[..., :width]).astype(dtype), v[..., :value_width].astype(dtype)


def wide(x):
    return x.dequantize().astype(F64) if isinstance(x, posenc.Quantized) else x.astype(F64)


def error_bounds(q, k, v, precision, scale=None, **options):
    """The exact result, and the bound of the page "Sixteen bits" for its error, final rounding included."""
    of_halves = F16 in {x.dtype for x in (q, k, v) if not isinstance(x, posenc.Quantized)}
    is_low, unit = precision == "low" and q.dtype == BF16, UNIT[q.dtype]
    q, k, v = map(wide, (q, k, v))
    exact, lse = reference.attention(q, k, v, **options, scale=scale, return_lse=True)
    size = reference.attention(q, k, np.abs(v), **options, scale=scale)
    of_products, _ = sixteen_errors(pairs_of(q, k, v, **options, scale=scale), lse, is_low, of_halves)
    before = of_products + size * (k.shape[-2] + 60) * 2.0**-24
    return exact, before + unit * (np.abs(exact) + before) + 2.0**-24


CAUSAL, CAP = {"causal": True, "align": "end"}, {"softcap": 2.0}
WINDOW, SCALE = {"window": (20, 3), "align": "start"}, {"scale": -0.37}
CALLS = {
    "one tile": ({"n": 96, "m": 96}, CAUSAL), "chunks and rest": ({"n": 70, "m": 203}, CAP),
    "several blocks": ({"n": 200, "m": 130}, WINDOW), "one channel": ({"n": 40, "m": 40, "width": 1}, {}),
    "few of everything": ({"n": 33, "m": 3, "width": 5, "value_width": 7}, SCALE),
    "wide": ({"n": 35, "m": 100, "width": 200, "value_width": 72}, WINDOW),
    "groups": ({"n": 40, "m": 64, "heads": 6, "groups": 2}, CAUSAL), "sharp": ({"n": 40, "m": 100, "spread": 3.0}, {}),
    "decoding": ({"n": 5, "m": 203}, CAP), "decoding in groups": ({"n": 1, "m": 203, "heads": 8}, SCALE),
}  # fmt: skip
"""Shapes of the arrays, and options."""


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("call", CALLS)
def test_within_bounds(call, precision, half, variant, rng):
    shape, options = CALLS[call]
    arrays = qkv(rng, half, **shape)
    found = posenc.attention(*arrays, **options, precision=precision)
    exact, bound = error_bounds(*arrays, precision, **options)
    assert np.all(np.abs(found.astype(F64) - exact) <= bound)


@pytest.mark.parametrize(("heads", "n"), [(1, 3), (3, 1), (1, 4), (4, 1)])
def test_tiles_from_four_queries(heads, n, bfloat16, variant, rng):
    """Count the queries of heads that share keys. In float32 products, `precision` changes no bit."""
    arrays = qkv(rng, bfloat16, n=n, m=3000, heads=heads, groups=1)
    high, low = (posenc.attention(*arrays, precision=name) for name in ("high", "low"))
    uses_tiles = variant != "avx512bf16" and heads * n >= 4
    assert same_bits(high, low) != uses_tiles


@pytest.mark.parametrize(("quantised", "precision"), [("k", "low"), ("v", "high"), ("kv", "low"), ("kv", "high")])
def test_codes(quantised, precision, half, variant, rng):
    q, k, v = qkv(rng, half, n=64, m=150, heads=4)
    k, v = (posenc.quantize(x.astype(F32)) if name in quantised else x for name, x in (("k", k), ("v", v)))
    found = posenc.attention(q, k, v, precision=precision, causal=True, align="end")
    exact, bound = error_bounds(q, k, v, precision, causal=True, align="end")
    assert np.all(np.abs(found.astype(F64) - exact) <= bound)


@pytest.mark.parametrize(("n", "bad"), [(1, np.nan), (64, np.nan), (64, np.inf)])
def test_masked_values_of_infinite_scale(bad, n, bfloat16, variant, rng):
    """Mask a value whose scale is infinity or NaN: 0 times the scale would be NaN."""
    q, k, v = qkv(rng, bfloat16, n=n, m=100, heads=8)
    v = posenc.quantize(v.astype(F32))
    scale = np.array(v.scale)
    scale[:, 50] = bad
    keep = np.arange(100) < np.where(np.arange(n) % 2, 60, 40)[:, None]  # queries 1, 3, ... see key 50
    found, usual = (
        posenc.attention(q, k, posenc.Quantized(v.codes, x), keep=keep).astype(F64) for x in (scale, v.scale)
    )
    assert np.abs(found - usual)[:, ::2].max() <= 2.1 * UNIT[BF16] * np.abs(usual).max()
    assert not np.isfinite(found[:, 1::2]).any()


def test_gradient_beyond_float32(bfloat16, variant, rng):
    """Return no finite dq and dk if products of cotangents and values overflow, as in float32."""
    q, k, v = qkv(rng, bfloat16, n=40, m=100)
    v, grad = ((x.astype(F32) * 1e25).astype(bfloat16) for x in (v, qkv(rng, bfloat16, n=40)[0]))
    found = posenc.attention_vjp(grad, q, k, v)
    with posenc.runtime.use_isa("base"):
        wanted = posenc.attention_vjp(grad, q, k, v)
    for name in ("q", "k"):
        assert not np.isfinite(getattr(wanted, name).astype(F64)).any()
        assert not np.isfinite(getattr(found, name).astype(F64)).any()


@pytest.mark.parametrize("scale", [1e-30, 1e30, 0.0])
def test_any_scale(scale, half, variant, rng):
    """The power of two of a large scale multiplies the queries, as it does in float32."""
    q, k, v = qkv(rng, half)
    if scale == 1e30:
        q, k = (x.astype(F32) * 1e-3 for x in (q, k))
        q, k = q.astype(half), np.zeros_like(k.astype(half))
    found = posenc.attention(q, k, v, scale=scale)
    exact, bound = error_bounds(q, k, v, "high", scale=scale)
    assert np.all(np.abs(found.astype(F64) - exact) <= bound)


def test_queries_of_any_size(bfloat16, variant, rng):
    q, k, v = qkv(rng, bfloat16, n=40, m=100)
    for power in (100, -100):
        large, small = ((x.astype(F32) * 2.0**p).astype(bfloat16) for x, p in ((q, power), (k, -power)))
        assert same_bits(posenc.attention(large, small, v), posenc.attention(q, k, v))


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_masked_numbers_reach_no_query(bad, half, variant, rng):
    q, k, v = qkv(rng, half, n=150, m=150)
    hidden = np.arange(150) % 7 == 3
    clean = [np.where(hidden[:, None], 0, x.astype(F32)).astype(half) for x in (k, v)]
    dirty = [np.where(hidden[:, None], bad, x.astype(F32)).astype(half) for x in (k, v)]
    bias = posenc.dense(np.where(hidden, -np.inf, 0)[None, None])
    for options in ({"keep": ~hidden}, {"keep": ~hidden, "causal": True}, {"bias": bias}):
        assert same_bits(posenc.attention(q, *dirty, **options), posenc.attention(q, *clean, **options))


@pytest.mark.parametrize(("operand", "bad"), [("q", np.inf), ("k", np.nan), ("k", -np.inf), ("v", np.inf)])
@pytest.mark.parametrize("content", [False, True], ids=["plain", "shaw"])
def test_visible_nonfinite_numbers(content, operand, bad, half, variant, rng):
    """Each entry is NaN, infinite or finite as it is in float32: a key of -inf has weight 0 where q is positive."""
    arrays = {name: x.astype(F32) for name, x in zip("qkv", qkv(rng, half, n=130, m=130), strict=True)}
    arrays["q"][..., 3] = np.abs(arrays["q"][..., 3]) + 0.1
    arrays[operand][:, [5, 90], 3] = bad
    if operand == "q":  # infinite scores of one sign
        arrays["k"][..., 3] = np.abs(arrays["k"][..., 3]) + 0.1
    rows = rng.standard_normal((9, 64)).astype(F32)
    rows[:, 3] = 0
    q, k, v = (x.astype(half) for x in arrays.values())
    for options in ({}, {"causal": True}, {"softcap": 2.0}, {"scale": -0.3}):
        if content:
            options["bias"] = posenc.shaw(rows)
        for precision in ("high", "low"):
            found = posenc.attention(q, k, v, return_lse=True, precision=precision, **options)
            wanted = posenc.attention(*(x.astype(F32) for x in (q, k, v)), return_lse=True, **options)
            for x, y in zip(found, wanted, strict=True):
                x, usual = x.astype(F32), np.isfinite(y)
                assert np.array_equal(x[~usual], y[~usual], equal_nan=True)
                assert np.abs(x[usual] - y[usual]).max(initial=0) < 0.2


def test_float16_subnormals_are_kept(rng):
    """Subnormal float32 numbers are flushed; a float16 below 2**-14 is a normal float32 and bfloat16 number."""
    q, k, v = qkv(rng, F16, n=40, m=100)
    v, k = (wide(v) * 2.0**-18).astype(F16), (wide(k) * 2.0**-16).astype(F16)
    for name in (*posenc.runtime.isas(), *VARIANTS):
        for scale in (None, 2.0**13):
            with posenc.runtime.use_isa(name):
                found = posenc.attention(q, k, v, scale=scale).astype(F64)
            exact, _ = error_bounds(q, k, v, "high", scale=scale)
            assert np.abs(found - exact).max() <= 0.51 * 2.0**-24, name


@pytest.mark.parametrize("precision", ["high", "low"])
def test_bits_depend_on_the_row_alone(precision, half, variant, rng):
    """Blocks of queries share a tile of keys; chunks of keys are skipped. Neither changes a bit."""
    q, k, v = qkv(rng, half, n=400, m=400)
    options = {"causal": True, "precision": precision, "invariant": True}
    wanted = posenc.attention(q, k, v, **options)
    with posenc.threads(7):
        assert same_bits(posenc.attention(q, k, v, **options), wanted)
    for first, last in ((0, 1), (5, 75)):
        part = posenc.attention(q[:, first:last], k, v, q_positions=np.arange(first, last), **options)
        assert same_bits(part, wanted[:, first:last])
    cut = posenc.attention(q[:, :200], k[:, :200], v[:, :200], **options)
    assert same_bits(cut, wanted[:, :200])
    kept = posenc.attention(q, k, v, precision=precision, invariant=True, keep=np.tri(400, dtype=bool))
    assert same_bits(kept, wanted)


def test_strided_rows_have_the_same_bits(half, variant, rng):
    """Rows 4096 bytes apart, beside NaNs."""
    q, k, v = qkv(rng, half, n=64, m=96)
    far = [np.concatenate([x, np.full((2, x.shape[1], 2048 - 64), np.nan, half)], -1)[..., :64] for x in (q, k, v)]
    assert same_bits(posenc.attention(*far), posenc.attention(q, k, v))


def test_low_precision_is_of_bfloat16_only(variant, rng):
    """Two float16 operands of 11 bits would lose three of them in weights of 8 bits."""
    arrays = qkv(rng, F16)
    assert same_bits(posenc.attention(*arrays, precision="low"), posenc.attention(*arrays))
    arrays = [x.astype(F32) for x in arrays]
    assert same_bits(posenc.attention(*arrays, precision="low"), posenc.attention(*arrays))


@pytest.mark.skipif("amx" not in posenc.runtime.isas(), reason="this machine has no AMX")
@pytest.mark.parametrize("seed", range(20))
def test_the_emulation_has_the_bits_of_the_hardware(seed):
    """Rows of whole chunks are read in place; int8 codes, an operator on q and k, and the gradient have passes of their
    own."""
    rng = np.random.default_rng(seed)
    n, m, *widths = rng.integers(1, (200, 300, 140, 140))
    if seed % 3 == 0:
        widths, m = [32 * (w % 4 + 1) for w in widths], 32 * (m // 32 + 1)
    q, k, v = qkv(rng, HALVES[seed % len(HALVES)], n, m, *widths, spread=rng.uniform(0.1, 4))
    options = {"causal": bool(seed & 2), "align": "end", "precision": "low" if seed & 4 else "high"}
    if seed % 5 == 0:
        options["bias"] = posenc.shaw(rng.standard_normal((9, widths[0])).astype(F32))
    codes = [posenc.quantize(x.astype(F32)) for x in (k, v)]
    results = []
    for name in ("amx", "amx-emulated"):
        with posenc.runtime.use_isa(name):
            out, lse = posenc.attention(q, k, v, **options, invariant=bool(seed & 8), return_lse=True)
            gradient = posenc.attention_vjp(out, q, k, v, **options, out=out, lse=lse)
            results.append([out, lse, *gradient[:3], posenc.attention(q, *codes, **options)])
    for one, other in zip(*results, strict=True):
        assert same_bits(one, other)
