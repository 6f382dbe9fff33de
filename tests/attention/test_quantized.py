"""Keys and values as int8 codes: the rounding itself, its bound in attention, caches as views, and every error."""

import numpy as np
import pytest
from cases import BF16, F16, F32, F64
from cases.attention import ANY, WALLS, qkv
from cases.layouts import LAYOUTS, same_bits

import posenc

HALVES = [d for d in (F16, BF16) if d is not None]


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", [*HALVES, F32, F64], ids=str)
def test_codes_and_scale(axis, dtype, rng):
    x = (rng.standard_normal((3, 5, 70)) * np.exp(rng.standard_normal((3, 5, 1)))).astype(dtype)
    found, exact = posenc.quantize(x, axis=axis), x.astype(F64)
    assert (found.codes.dtype, found.scale.dtype, found.codes.shape) == (np.int8, F32, x.shape)
    largest = np.abs(exact).max(axis)
    assert np.array_equal(found.scale, (largest.astype(F64 if dtype == F64 else F32) / 127).astype(F32))
    assert np.array_equal(np.abs(found.codes).max(axis), np.full(largest.shape, 127))
    error = np.abs(found.dequantize() - exact)
    assert found.dequantize().dtype == F32
    # half a step, the rounding of x / scale (at most 127), of the scale and of the product
    assert np.all(error <= np.expand_dims(largest / 254, axis) * (1 + 2.0**-14))
    assert np.all(error <= np.expand_dims(largest / 253, axis))


def test_ties_go_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.0])
    assert posenc.quantize(x).codes.tolist() == [0, 2, 2, 0, -2, 127]


def test_zeros_and_tiny_numbers(rng):
    x = np.zeros((3, 4))
    x[1] = 2e-43  # its scale is subnormal, and rounded to one bit
    x[2] = 1e-45  # its scale rounds to 0
    found = posenc.quantize(x)
    assert found.scale[0] == found.scale[2] == 0
    assert not found.codes[0].any()
    assert not found.codes[2].any()
    assert np.abs(found.codes.astype(int)).max() <= 127
    assert posenc.quantize(np.zeros((2, 0))).scale.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_the_largest_numbers_stay_finite(dtype):
    """The quotient of the largest float32 by 127 rounds up, to a scale whose product with 127 is infinite."""
    largest = float(np.finfo(F32).max)
    x = np.array([largest, -largest, np.nextafter(F32.type(largest), F32.type(0)), 0], dtype)
    found = posenc.quantize(x).dequantize()
    assert np.isfinite(found).all()
    assert np.abs(found - x.astype(F64)).max() <= largest / 253


def exact_logits(q, k):
    return np.einsum("hnd,hmd->hnm", q, np.repeat(k, len(q) // len(k), 0)) * q.shape[-1] ** -0.5


@pytest.mark.parametrize(("n", "m", "width"), [(1, 97, 8), (3, 300, 64), (20, 130, 24), (70, 100, 128)])
@pytest.mark.parametrize("dtype", [*HALVES, F32], ids=str)
def test_attention_reads_dequantised_rows(n, m, width, dtype, rng, isa):
    """The same as for dequantised float32 keys and values, up to rounding: a score is off by some roundings of its
    terms, and the result by as many roundings of the values."""
    arguments = ANY.cast(qkv(rng, n, m, 4, 2, width=width, value_width=width), dtype)
    k, v = (posenc.quantize(arguments[a]) for a in "kv")
    for quantised in ((k, v), (k, arguments["v"]), (arguments["k"], v)):
        plain = [x.dequantize() if isinstance(x, posenc.Quantized) else x.astype(F32) for x in quantised]
        ours = posenc.attention(arguments["q"], *quantised, return_lse=True)
        wanted = posenc.attention(arguments["q"].astype(F32), *plain, return_lse=True)
        assert ours[0].dtype == dtype
        largest = np.abs(plain[1]).max()
        bound = 64 * 2.0**-24 * largest + (0 if dtype == F32 else float(np.spacing(np.asarray(largest, dtype))))
        assert np.abs(ours[0].astype(F64) - wanted[0]).max() <= bound
        assert np.abs(ours[1] - wanted[1]).max() <= 64 * 2.0**-24 * np.abs(wanted[1]).max(initial=1)


@pytest.mark.parametrize("exponent", [-60, 100])
@pytest.mark.parametrize(("n", "width"), [(1, 64), (3, 5), (40, 64)])
def test_error_bound_of_values_of_any_size(exponent, width, n, rng, isa):
    """The bound of the docstring. The product of a weight and a value may underflow: each of 200 keys then loses at
    most 2**-126, divided by the sum of the weights."""
    q, k = rng.standard_normal((4, n, 16)).astype(F32), rng.standard_normal((2, 200, 16)).astype(F32)
    size = 2.0 ** (exponent + rng.integers(0, 1 if exponent > 0 else 3, (2, 200, 1)))
    signs = np.insert(rng.choice([-1, 1, 0.125], (2, 200, width - 1)), 0, 1, -1)
    v = (rng.uniform(1, 1.9, (2, 200, width)) * signs * size).astype(F32)
    wanted, lse = posenc.attention(q.astype(F64), k.astype(F64), v.astype(F64), return_lse=True)
    codes, sums = posenc.quantize(v), np.exp(lse - exact_logits(q.astype(F64), k).max(-1))
    assert codes.scale.min() >= 2.0**-80
    for invariant in (False, True):
        found = posenc.attention(q, k, codes, invariant=invariant)
        assert np.abs(found - wanted).max() <= np.abs(v).max() / 253 + 200 * 2.0**-126 / sums.min()


def test_error_bound_of_attention(rng):
    """The bound of the docstring, for numbers with heavy tails."""
    q, k, v = (x.astype(F32) for x in rng.standard_t(3, (3, 6, 500, 64)))
    q = q[:, :4]
    wanted = posenc.attention(q.astype(F64), k.astype(F64), v.astype(F64))
    of_logit = np.abs(q).sum(-1).max(-1) * np.abs(k).max((-1, -2)) / 253 * 64**-0.5
    largest = np.abs(v).max((-1, -2))
    for keys, values, bound in (
        (k, posenc.quantize(v), largest / 253),
        (posenc.quantize(k), v, np.expm1(2 * of_logit) * largest),
    ):
        error = np.abs(posenc.attention(q, keys, values) - wanted).max((-1, -2))
        assert np.all(error <= bound + 64 * 2.0**-24 * largest)


def test_operators_read_dequantised_keys(rng, isa):
    arguments = ANY.cast(qkv(rng, 5, 60, width=16, value_width=16), F32)
    k, v = (posenc.quantize(arguments[a]) for a in "kv")
    bias = posenc.shaw(rng.standard_normal((9, 16)), rng.standard_normal((9, 16)))
    both = (bias, posenc.transformer_xl(*(rng.standard_normal(s) for s in ((2, 9, 16), (2, 16), (2, 16)))))
    for terms in (bias, both):
        ours = posenc.attention(arguments["q"], k, v, bias=terms, align="end")
        assert same_bits(
            ours, posenc.attention(arguments["q"], k.dequantize(), v.dequantize(), bias=terms, align="end")
        )


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.parametrize("n", [1, 9])
def test_wall(kind, n, rng, isa):
    """A scale of NaN at a masked key changes no bit: unused rows of a cache may hold anything."""
    m = 200
    arguments = ANY.cast(qkv(rng, n, m, width=16), F32)
    bad = rng.random(m) > 0.5
    k, v = (posenc.quantize(arguments[a]) for a in "kv")
    dirty = [posenc.Quantized(x.codes, np.where(bad, np.nan, x.scale).astype(F32)) for x in (k, v)]
    clean = [posenc.Quantized(x.codes, np.where(bad, 0, x.scale).astype(F32)) for x in (k, v)]
    options = {**WALLS[kind](n, m, bad), "return_lse": True}
    ours, wanted = (ANY.call({"q": arguments["q"], "k": x[0], "v": x[1], **options}) for x in (dirty, clean))
    assert np.isfinite(ours[0]).all()
    for a, b in zip(ours, wanted, strict=True):  # a row that the first pass leaves out is computed by the other kernel
        assert np.abs(a - b).max() <= 64 * 2.0**-24 * 5


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_layouts(layout, rng):
    arguments = ANY.cast(qkv(rng, 2, 50, 4, 2, width=32, value_width=32), F32)
    k, v = (posenc.quantize(arguments[a]) for a in "kv")
    moved = [posenc.Quantized(layout(x.codes), layout(x.scale)) for x in (k, v)]
    copied = [posenc.Quantized(np.array(x.codes), np.array(x.scale)) for x in moved]
    assert same_bits(posenc.attention(arguments["q"], *moved), posenc.attention(arguments["q"], *copied))


def test_sinks_groups_and_batches(rng):
    """Options work as for float32; the batch axes of codes and scales broadcast against those of q."""
    arguments = ANY.cast(qkv(rng, 2, 50, 8, 2, width=16), F32)
    q = np.stack([arguments["q"], -arguments["q"]])
    k, v = (posenc.quantize(arguments[a]) for a in "kv")
    options = {"sink": rng.standard_normal(8), "causal": True, "align": "end", "softcap": 3.0}
    ours, wanted = (posenc.attention(q, *kv, **options) for kv in ((k, v), (k.dequantize(), v.dequantize())))
    assert np.abs(ours - wanted).max() <= 64 * 2.0**-24 * 5


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("heads", "groups", "n", "width"),
    [(4, 4, 1, 1), (4, 4, 1, 24), (4, 1, 1, 16), (32, 1, 1, 64), (4, 4, 7, 576), (2, 2, 15, 64)],
)
def test_half_caches_give_the_bits_of_float32(dtype, heads, groups, n, width, rng, isa):
    """Widening is exact and sums have one order: float16 and bfloat16 keys and values, subnormal ones too, give the
    bits of the same numbers in float32."""
    q, k, v = qkv(rng, n, 301, heads, groups, width=width, value_width=width).values()
    scales = np.exp2(rng.integers(-26, 3, (301, 1)))
    k, v = (k * scales).astype(dtype), (v * scales).astype(dtype)
    q = q.astype(F32)
    ours = posenc.attention(q, k, v, return_lse=True)
    assert all(map(same_bits, ours, posenc.attention(q, k.astype(F32), v.astype(F32), return_lse=True)))


Q = np.ones((2, 1, 8), F32)
GOOD = posenc.quantize(np.ones((2, 3, 8), F32))
CODES, SCALE = GOOD.codes, GOOD.scale
ERRORS = [
    (lambda: posenc.quantize([1.0, np.nan]), ValueError, "quantize: x has NaN or infinity; expected finite"),
    (lambda: posenc.quantize([1.0, -np.inf]), ValueError, "quantize: x has NaN or infinity; expected finite"),
    (lambda: posenc.quantize([1e39]), ValueError, "quantize: x has numbers beyond float32; expected"),
    (lambda: posenc.quantize(1.0), ValueError, "quantize: x has 0 axes; expected at least 1"),
    (lambda: posenc.quantize([1.0], axis=-2), ValueError, "quantize: axis is -2; expected at least -1"),
    (lambda: posenc.Quantized([1], SCALE), TypeError, "Quantized: codes has type list; expected a NumPy"),
    (lambda: posenc.Quantized(np.ma.zeros(3, np.int8), SCALE), TypeError, "Quantized: codes has type MaskedArray"),
    (lambda: posenc.Quantized(CODES * 1.0, SCALE), TypeError, "Quantized: codes has dtype float64; expected int8"),
    (lambda: posenc.Quantized(CODES, SCALE.astype(F64)), TypeError, "Quantized: scale has dtype float64; expected fl"),
    (lambda: posenc.Quantized(CODES, SCALE[:1]), ValueError,
     r"Quantized: scale has shape \(1, 3\); expected \(2, 3\), codes without axis 2"),
    (lambda: posenc.Quantized(CODES, SCALE, 3), ValueError, "Quantized: axis is 3; expected at most 2$"),
    (lambda: posenc.attention(Q.astype(F64), GOOD, GOOD), TypeError,
     "attention: q has dtype float64; expected at most float32, because k is quantised"),
    (lambda: posenc.attention(Q, posenc.quantize(np.ones((2, 3, 8)), axis=-2), GOOD), ValueError,
     "attention: axis of k is -2; expected -1, a scale for each token and head"),
    (lambda: posenc.attention(Q, GOOD, posenc.quantize(np.ones((3, 8)))), ValueError,
     "attention: v has 2 axes; expected at least 3"),
    (lambda: posenc.attention(Q[..., :4], GOOD, GOOD), ValueError,
     "attention: k has 8 channels; expected 4, as q"),
    (lambda: posenc.attention_vjp(Q, Q, GOOD, GOOD, out=Q, lse=Q[..., 0]), TypeError,
     r"attention_vjp: k has type Quantized; expected an array, as dequantize\(\) returns"),
    (lambda: posenc.attention(GOOD, GOOD, GOOD), TypeError, "attention: q has"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_core_refuses_codes_where_they_have_no_meaning():
    """Float64 has no codes."""
    from posenc import _core

    codes, scale, q = np.ones((1, 2, 8), np.int8), np.ones((1, 2), F32), np.ones((1, 2, 8))
    with pytest.raises(TypeError, match="f: k has dtype int8"):
        _core.attention("f", q=q, k=codes, v=codes, k_scale=scale, v_scale=scale, out=q, scale=1.0)
