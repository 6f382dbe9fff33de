"""Biases of distance where positions count up by one: attention has one number for all pairs of a distance."""

import numpy as np
import pytest
from cases import F32, F64
from cases.layouts import same_bits

import posenc
from posenc import _core

HEADS = 4


def operators():
    """One operator for each DISTANCE row of csrc/ops.def."""
    rng = np.random.default_rng(0)
    return {
        "alibi": posenc.alibi(posenc.alibi_slopes(HEADS)),
        "kerple_log": posenc.kerple_log(np.ones(HEADS), np.full(HEADS, 0.3)),
        "kerple_power": posenc.kerple_power(np.ones(HEADS), np.full(HEADS, 0.7)),
        "t5": posenc.t5(rng.standard_normal((32, HEADS))),
        "tisa": posenc.tisa(*rng.standard_normal((3, HEADS, 5))),
        "sandwich": posenc.sandwich(HEADS, 16),
        "distance_function": posenc.distance_function(lambda rel: np.sin(np.outer(np.arange(1, 5), rel)), HEADS),
    }


OPERATORS = operators()
TRAINED = [name for name in OPERATORS if name not in ("distance_function", "sandwich")]
CALLS = [(70, 300, (), {"align": "end"}), (40, 40, (2,), {"causal": True}), (33, 200, (2, 3), {"align": "start"})]
"""Queries, keys, batch axes and options; more queries than decoding has, and more than one block of them."""


STEEPEST = 400.0
"""Largest derivative of a bias by a parameter: that of alibi is the distance, less than n + m."""


def qkv(n, m, batch, dtype):
    rng = np.random.default_rng(1)
    return [rng.standard_normal((*batch, HEADS, length, 16)).astype(dtype) for length in (n, m, m)]


def test_every_row_of_distance_is_here():
    rows = {row for row, signature in _core.table().items() if "rel@" in signature and not row.endswith("_vjp")}
    assert rows == set(OPERATORS)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(("n", "m", "batch", "options"), CALLS)
@pytest.mark.parametrize("name", OPERATORS)
def test_bits_are_those_of_pairs(name, n, m, batch, options, dtype):
    """At positions that are floats, every pair has its own number."""
    arrays = qkv(n, m, batch, dtype)
    same = {"bias": OPERATORS[name], "return_lse": True, "causal": options.get("causal", False)}
    first = float(m - n) if options.get("align") == "end" else 0.0
    found = posenc.attention(*arrays, **{**same, **options})
    expected = posenc.attention(*arrays, **same, q_positions=np.arange(n) + first, k_positions=np.arange(m))
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


@pytest.mark.parametrize(("n", "m", "batch", "options"), CALLS)
@pytest.mark.parametrize("name", TRAINED)
def test_gradient_is_that_of_pairs(name, n, m, batch, options):
    """Sums along diagonals, and then one derivative for each, against one for each pair."""
    q, k, v = qkv(n, m, batch, F64)
    bias, is_causal = OPERATORS[name], options.get("causal", False)
    out, lse = posenc.attention(q, k, v, bias=bias, return_lse=True, **options)
    found = posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=bias, **options).bias[0]
    at = {"q_positions": np.arange(n) + (m - n if options.get("align") == "end" else 0.0), "k_positions": np.arange(m)}
    saved = {"out": out, "lse": lse, "causal": is_causal}
    expected = posenc.attention_vjp(out, q, k, v, bias=bias, **at, **saved).bias[0]
    # Both add a product of dS and a derivative for each pair, in some order. Weights of a row add up to 1, so |dS| does
    # to at most twice the largest product of out and v; no derivative at these distances is larger than STEEPEST.
    rows = int(np.prod(batch)) * n
    size = rows * 2 * q.shape[-1] * np.abs(out).max() * np.abs(v).max() * STEEPEST
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2.0**-53 * rows * m * size)
    placed = bias.at(q_positions=at["q_positions"].astype(int) + 7, k_positions=at["k_positions"] + 7)
    row = posenc.toeplitz(np.zeros((HEADS, n + m - 1)))
    both = posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=(placed, row), **options).bias
    assert all(map(same_bits, both[0], found))
    assert both[1].diagonals.shape == (HEADS, n + m - 1)


def test_calls_without_pairs():
    for n, m in ((0, 3), (3, 0)):
        q, k, v = qkv(n, m, (), F64)
        out, lse = posenc.attention(q, k, v, bias=OPERATORS["alibi"], align="end", return_lse=True)
        assert not out.any()
        d = posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=OPERATORS["alibi"], align="end")
        assert not d.bias[0].slopes.any()


def test_distances_beyond_all_positions():
    """Keys at 0 would have queries beyond 2**53."""
    q, k, v = qkv(40, 50, (), F64)
    q_positions, k_positions = np.arange(2**53 - 39, 2**53 + 1), np.arange(-(2**53), -(2**53) + 50)
    bias = posenc.alibi(np.full(HEADS, 2.0**-54))
    placed = bias.at(q_positions=q_positions, k_positions=k_positions)
    found = posenc.attention(q, k, v, bias=placed)
    assert same_bits(found, posenc.attention(q, k, v, bias=bias, q_positions=q_positions, k_positions=k_positions))
