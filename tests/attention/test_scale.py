"""Queries, keys and scales near the ends of the range, whose logits are ordinary."""

import numpy as np
import pytest
from cases import F32, F64
from cases.layouts import same_bits

import posenc

TINY, HUGE = 2.0**-126, 2.0**127
EXTREMES = {
    "query and scale large": (3e37, 1.2e-38, 20.0),
    "query and scale small": (1e-3, 1e38, 1e-36),
    "scale large": (1e9, 1.2e-38, 4e28),
    "scale below float32": (1e20, 1e20, 1e-40),
    "query small": (1e-37, 1e38, 0.01),
    "all ends": (HUGE, TINY, 0.25),
}
OPTIONS = {
    "plain": {}, "causal": {"causal": True, "align": "end"}, "softcap": {"softcap": 3.0},
    "alibi": {"bias": posenc.alibi([0.1, 0.3, 0.0, 1.0]), "align": "end"}, "sink": {"sink": np.array([0.5, 0, -1, 2])},
}  # fmt: skip


def inputs(rng, n, m, q, k, width):
    def normal(*shape):
        return rng.uniform(1, 1.9, shape) * rng.choice([-1, 1], shape)

    queries, keys = normal(4, n, width) * q, normal(2, m, width) * k
    return queries.astype(F32), keys.astype(F32), normal(2, m, 5).astype(F32)


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("option", ["plain", "causal", "softcap", "alibi", "sink"])
@pytest.mark.parametrize(("n", "m"), [(1, 200), (3, 70), (70, 130)])
def test_ordinary_logits_of_extreme_queries(kind, option, n, m, rng, isa):
    """Against float64, where q scale is finite. The bound is that of the logits' rounding: 40 units of 2**-24 times
    the sum of the sizes of the products, for a score and the softmax."""
    q, k, scale = EXTREMES[kind]
    arrays, options = inputs(rng, n, m, q, k, 19), {**OPTIONS[option], "scale": scale}
    wanted, wanted_lse = posenc.attention(*(x.astype(F64) for x in arrays), **options, return_lse=True)
    size = 1 + 19 * 3.61 * q * k * scale
    for invariant in (False, True):
        found, lse = posenc.attention(*arrays, **options, invariant=invariant, return_lse=True)
        assert np.abs(found - wanted).max() <= 40 * 2.0**-24 * size
        assert np.abs(lse - wanted_lse).max() <= 40 * 2.0**-24 * (size + np.abs(wanted_lse).max())


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("option", ["plain", "causal", "softcap", "alibi", "sink"])
def test_gradient_of_extreme_queries(kind, option, rng, isa):
    q, k, scale = EXTREMES[kind]
    arrays, options = inputs(rng, 70, 130, q, k, 19), {**OPTIONS[option], "scale": scale}
    grad = rng.standard_normal((4, 70, 5)).astype(F32)
    exact_arrays = [x.astype(F64) for x in arrays]
    out, lse = posenc.attention(*exact_arrays, **options, return_lse=True)
    wanted = posenc.attention_vjp(grad.astype(F64), *exact_arrays, out=out, lse=lse, **options)
    found = posenc.attention_vjp(grad, *arrays, out=out.astype(F32), lse=lse.astype(F32), **options)
    size = 1 + 19 * 3.61 * q * k * scale
    for name, operand in zip("qkv", arrays, strict=True):
        exact, ours = getattr(wanted, name), getattr(found, name).astype(F64)
        if np.abs(exact).max() > np.finfo(F32).max / 8 or np.abs(exact).max() < TINY:
            continue  # beyond the range of float32
        assert np.isfinite(ours).all()
        assert np.abs(ours - exact).max() <= 400 * 2.0**-24 * size * np.abs(exact).max() + operand.size * TINY


@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_queries_change_no_bit_of_others(kind, rng, isa):
    """With invariant=True, the bits of a query depend on the query and its keys alone. So every other query of a block
    may be extreme, and a text may come token by token."""
    q, k, scale = EXTREMES[kind]
    for options in ({}, {"softcap": 3.0}, {"bias": posenc.alibi([0.1, 0.3, 0.0, 1.0])}):
        queries, keys, values = inputs(rng, 70, 70, q, k, 19)
        queries[:, ::2] = rng.standard_normal((4, 35, 19)) * min(1 / scale, 1e30)
        call = {"scale": scale, "causal": True, "invariant": True, **options}
        whole = posenc.attention(queries, keys, values, **call)
        for i in (0, 1, 34, 35, 69):
            at = {"q_positions": [i], "k_positions": np.arange(i + 1)}
            one = posenc.attention(queries[:, [i]], keys[:, : i + 1], values[:, : i + 1], **call, **at)
            assert same_bits(one, whole[:, [i]])
        queries[:, 1::2] = 1
        assert same_bits(posenc.attention(queries, keys, values, **call)[:, ::2], whole[:, ::2])
