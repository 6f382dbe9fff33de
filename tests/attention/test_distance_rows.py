"""Biases of distance where positions count up by one have the bits of a number for each pair."""

import numpy as np
import pytest
from cases import F32, F64
from cases.layouts import same_bits

import posenc

HEADS = 4


RNG = np.random.default_rng(0)
OPERATORS = [
    posenc.alibi(posenc.alibi_slopes(HEADS)),
    posenc.kerple_log(np.ones(HEADS), np.full(HEADS, 0.3)),
    posenc.kerple_power(np.ones(HEADS), np.full(HEADS, 0.7)),
    posenc.t5(RNG.standard_normal((32, HEADS)), bidirectional=True),
    posenc.tisa(*RNG.standard_normal((3, HEADS, 5))),
    posenc.sandwich(HEADS, 16),
    posenc.distance_function(lambda rel: np.sin(np.outer(np.arange(1, 5), rel)), HEADS),
]
"""One operator for each DISTANCE row of csrc/ops.def."""
CALLS = [(70, 300, (), {"align": "end"}), (40, 40, (2,), {"causal": True}), (33, 200, (2, 3), {"align": "start"})]
"""Queries, keys, batch axes and options; more queries than decoding has, and more than one block of them."""


def qkv(n, m, batch, dtype):
    rng = np.random.default_rng(1)
    return [rng.standard_normal((*batch, HEADS, length, 16)).astype(dtype) for length in (n, m, m)]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(("n", "m", "batch", "options"), CALLS)
@pytest.mark.parametrize("bias", OPERATORS, ids=lambda bias: bias.name)
def test_bits_are_those_of_pairs(bias, n, m, batch, options, dtype):
    """At positions that are floats, every pair has its own number."""
    arrays = qkv(n, m, batch, dtype)
    same = {"bias": bias, "return_lse": True, "causal": options.get("causal", False)}
    first = float(m - n) if options.get("align") == "end" else 0.0
    found = posenc.attention(*arrays, **{**same, **options})
    expected = posenc.attention(*arrays, **same, q_positions=np.arange(n) + first, k_positions=np.arange(m))
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


def test_distances_beyond_all_positions():
    """Keys at 0 would have queries beyond 2**53."""
    q, k, v = qkv(40, 50, (), F64)
    q_positions, k_positions = np.arange(2**53 - 39, 2**53 + 1), np.arange(-(2**53), -(2**53) + 50)
    bias = posenc.alibi(np.full(HEADS, 2.0**-54))
    placed = bias.at(q_positions=q_positions, k_positions=k_positions)
    found = posenc.attention(q, k, v, bias=placed)
    assert same_bits(found, posenc.attention(q, k, v, bias=bias, q_positions=q_positions, k_positions=k_positions))
