"""The gradient of attention in products of 16-bit numbers, within the bounds of the page "Sixteen bits"."""

import numpy as np
import pytest
from cases import BF16, F16, F32, F64
from cases.layouts import same_bits
from test_sixteen import CALLS, UNIT, bfloat16, half, qkv, variant, wide  # noqa: F401

import posenc
from posenc import reference


def drawn(rng, dtype, **shape):
    """Return q, k, v and the cotangent."""
    q, k, v = qkv(rng, dtype, **shape)
    return q, k, v, rng.standard_normal((*q.shape[:-1], v.shape[-1])).astype(dtype)


def saved(q, k, v, **options):
    """The results of a forward in float64, as float32."""
    out, lse = posenc.attention(*map(wide, (q, k, v)), return_lse=True, **options)
    return {"out": out.astype(F32), "lse": lse.astype(F32)}


def exact_and_bounds(arrays, results, precision, scale=None, softcap=None, **masks):
    """The exact gradients of q, k and v, and the bounds of their errors, final rounding included."""
    dtypes = [x.dtype for x in arrays[:3]]
    low_parts = 2.0**-16 if F16 in {x.dtype for x in arrays} else 0.0
    of_weight = (2.0**-8 if precision == "low" and dtypes[0] == BF16 else 2.0**-17) + low_parts
    q, k, v, g = map(wide, arrays)
    share, n, m = q.shape[-3] // k.shape[-3], q.shape[-2], k.shape[-2]
    width, value_width = q.shape[-1], v.shape[-1]
    k, v = (np.repeat(x, share, -3) for x in (k, v))
    out, lse = results["out"].astype(F64), np.nan_to_num(results["lse"].astype(F64), neginf=0)[..., None]
    factor, unit = width**-0.5 if scale is None else scale, 2.0**-24

    def transposed(x):
        return x.swapaxes(-1, -2)

    s, slope = factor * q @ transposed(k), 1.0
    of_s = abs(factor) * (np.abs(q) @ transposed(np.abs(k))) * (width * unit + low_parts)
    if softcap:
        s = softcap * np.tanh(s / softcap)
        slope = 1 - (s / softcap) ** 2
    p = np.where(reference.attention_weights(0 * q, 0 * k, **masks) > 0, np.exp(s - lse), 0)
    delta = (g * out).sum(-1, keepdims=True)
    dp = g @ transposed(v)
    of_p = np.expm1(of_s + 8 * unit * (np.abs(s) + np.abs(lse) + 1))
    of_dp = np.abs(g) @ transposed(np.abs(v)) * (value_width * unit + low_parts)
    ds = p * (dp - delta) * slope
    # dS is at most p (|dp| + |delta|); tanh has an error of some units, which 1 - tanh**2 doubles
    of_slope = 8 * unit + (2 * of_s / softcap if softcap else 0)
    of_ds = p * ((1 + of_p) * of_dp + (of_p + of_slope + 4 * unit) * (np.abs(dp) + np.abs(delta)))

    def product(w, of_w, x, terms, dtype):
        size = np.abs(w) @ np.abs(x)
        error = of_w @ np.abs(x) * (1 + of_weight) + size * (of_weight + (terms + 60) * unit)
        return w @ x, error, UNIT[dtype]

    def summed(x):
        return x.reshape(*x.shape[:-3], -1, share, *x.shape[-2:]).sum(-3)

    found = []
    for w, of_w, x, by, terms, dtype, of_keys in (
        (ds, of_ds, k, factor, m, dtypes[0], False),
        (transposed(ds), transposed(of_ds), q, factor, share * n, dtypes[1], True),
        (transposed(p), transposed(p * of_p), g, 1.0, share * n, dtypes[2], True),
    ):
        value, error, of_result = product(w, of_w, x, terms, dtype)
        if of_keys:
            value, error = summed(value), summed(error)
        error = abs(by) * error
        found.append((by * value, error + of_result * (np.abs(by * value) + error) + 2.0**-24))
    return found


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("call", CALLS)
def test_within_bounds(call, precision, half, variant, rng):  # noqa: F811
    shape, options = CALLS[call]
    q, k, v, grad = arrays = drawn(rng, half, **shape)
    results = saved(q, k, v, **options)
    found = posenc.attention_vjp(grad, q, k, v, **results, **options, precision=precision)
    for x, (exact, bound) in zip(found[:3], exact_and_bounds(arrays, results, precision, **options), strict=True):
        assert np.all(np.abs(x.astype(F64) - exact) <= bound)


def test_options(half, variant, rng):  # noqa: F811
    """Every mask and operator, beside the same call in float64."""
    q, k, v, grad = drawn(rng, half, n=150, m=130, heads=4)
    tables = rng.standard_normal((9, 64)), rng.standard_normal((9, 64))
    for options in (
        {"keep": rng.random((150, 130)) < 0.7},
        {"q_segments": np.arange(150) // 40, "k_segments": np.arange(130) // 40},
        {"sink": rng.standard_normal(4)},
        {"dropout": 0.3, "seed": 5},
        {"grad_lse": rng.standard_normal((4, 150))},
        {"bias": posenc.alibi(np.linspace(0.1, 0.5, 4)), "causal": True, "align": "end"},
        {"bias": posenc.dense(rng.standard_normal((150, 130))), "softcap": 3.0},
        {"bias": posenc.dense(rng.standard_normal((4, 150, 130)))},
        {"bias": posenc.shaw(*tables), "causal": True, "align": "end"},
    ):
        found = posenc.attention_vjp(grad, q, k, v, **options)
        wanted = posenc.attention_vjp(*map(wide, (grad, q, k, v)), **options)
        found, wanted = ([*x[:3], *(y for y in (x.sink, *sum(x.bias, ())) if y is not None)] for x in (found, wanted))
        for x, y in zip(found, wanted, strict=True):
            assert np.abs(x.astype(F64) - y).max() <= (UNIT[half] + 2.0**-12) * np.abs(y).max(), options


def test_scales_of_any_size(bfloat16, variant, rng):  # noqa: F811
    """A power of two that leaves a product's factors leaves no bit of its gradient."""
    q, k, v, grad = drawn(rng, bfloat16, n=40, m=100)
    wanted = posenc.attention_vjp(grad, q, k, v)
    for power in (60, -60):
        large, small = ((x.astype(F32) * 2.0**p).astype(bfloat16) for x, p in ((q, power), (k, -power)))
        found = posenc.attention_vjp(grad, large, small, v)
        for x, y, p in zip(found[:3], wanted[:3], (-power, power, 0), strict=True):
            assert same_bits(x, (y.astype(F32) * 2.0**p).astype(bfloat16))


@pytest.mark.parametrize(("operand", "bad"), [(0, np.inf), (1, np.nan), (1, -np.inf), (2, np.inf), (3, np.nan)])
def test_visible_nonfinite_numbers(operand, bad, half, variant, rng):  # noqa: F811
    """Each entry is NaN, infinite or finite as it is in float32."""
    arrays = drawn(rng, half, n=130, m=130)
    arrays[operand][0, [5, 90], 3] = bad
    q, k, v, grad = arrays
    for options in ({}, {"causal": True}, {"softcap": 2.0, "scale": -0.3}):
        found = posenc.attention_vjp(grad, q, k, v, **options)
        wanted = posenc.attention_vjp(*(x.astype(F32) for x in (grad, q, k, v)), **options)
        for x, y in zip(found[:3], wanted[:3], strict=True):
            x, usual = x.astype(F32), np.isfinite(y)
            assert np.array_equal(x[~usual], y[~usual], equal_nan=True)
            assert np.abs(x[usual] - y[usual]).max(initial=0) < 0.1


def test_masked_numbers_reach_no_gradient(half, variant, rng):  # noqa: F811
    q, k, v, grad = drawn(rng, half, n=150, m=150)
    hidden = np.arange(150) % 7 == 3
    clean, dirty = ([np.where(hidden[:, None], bad, x.astype(F32)).astype(half) for x in (k, v)] for bad in (0, np.nan))
    usual, found = (posenc.attention_vjp(grad, q, *kv, keep=~hidden) for kv in (clean, dirty))
    for x, y in zip(found[:3], usual[:3], strict=True):
        assert np.abs(x.astype(F64) - y.astype(F64)).max() <= 4 * UNIT[half] * np.abs(y.astype(F64)).max()


@pytest.mark.parametrize("precision", ["high", "low"])
def test_bits(precision, half, variant, rng):  # noqa: F811
    """Neither threads, nor the other rows of the batch, nor the layout change a bit."""
    arrays = drawn(rng, half, n=333, m=200, heads=4)
    q, k, v, grad = (np.stack([x, x[:, ::-1]]) for x in arrays)
    options = {"causal": True, "align": "end", "precision": precision}
    wanted = posenc.attention_vjp(grad, q, k, v, **options)
    for count in (1, 3):
        with posenc.threads(count):
            one = posenc.attention_vjp(grad[0], q[0], k[0], v[0], **options)
        far = [np.concatenate([x, np.full((*x.shape[:-1], 41), np.nan, half)], -1)[..., :64] for x in (grad, q, k, v)]
        for x, y, z in zip(wanted[:3], one[:3], posenc.attention_vjp(*far, **options)[:3], strict=True):
            assert same_bits(x[0], y)
            assert same_bits(x, z)


def test_sums_of_gradients_do_not_depend_on_threads(half, variant, rng):  # noqa: F811
    """Heads share the arrays of FIRE's network, and blocks of a kv head are summed."""
    q, k, v, grad = drawn(rng, half, n=512, m=512, heads=8, groups=2)
    width, heads = 8, 8
    network = posenc.fire(*(rng.standard_normal(s) for s in ((width, 1), width, (heads, width), heads)), 1.0, 100.0)
    found = []
    for count in (1, 4):
        with posenc.threads(count):
            found.append(posenc.attention_vjp(grad, q, k, v, bias=network).bias[0])
    for one, four in zip(*found, strict=True):
        assert np.array_equal(one, four)


def test_low_precision_is_of_sixteen_bits_only(variant, rng):  # noqa: F811
    """float16 operands have no "low", and a cotangent of float32 has no 16-bit products."""
    for dtype, of_grad in ((F16, F16), (F32, F32), (BF16 or F16, F32)):
        q, k, v, grad = drawn(rng, dtype)
        results = saved(q, k, v)
        low, high = (
            posenc.attention_vjp(grad.astype(of_grad), q, k, v, **results, precision=name) for name in ("low", "high")
        )
        assert all(same_bits(x, y) for x, y in zip(low[:3], high[:3], strict=True))
