"""TUPE: numbers worked by hand from the paper."""

import math

import numpy as np
import pytest
from cases.content import column

import posenc


def test_tupe():
    """Equations 7, 8 and 10: column 0 is reset, then row 0, so row 0 decides the corner."""
    pos_q, pos_k = column(1, 2) * math.sqrt(2), column(1, 2)  # over sqrt(2 D): 1 2, 2 4
    one, other = {"any_to_cls": [7.0]}, {"cls_to_any": [9.0]}
    for resets, wanted in (
        ({}, [[1, 2], [2, 4]]),
        (one, [[7, 2], [7, 4]]),
        (other, [[9, 9], [2, 4]]),
        ({**one, **other}, [[9, 9], [7, 4]]),
    ):
        matrix = posenc.tupe(pos_q, pos_k, **resets).matrix(2, dtype=np.float64)[0]
        assert matrix == pytest.approx(np.array(wanted, float), rel=1e-15)


def test_gradients_of_a_batch_are_sums_over_the_batch():
    """As many rows of a batch as heads: a sum over the wrong one of the two axes would have the right shape."""
    rng = np.random.default_rng(3)
    pos_q, pos_k = rng.standard_normal((2, 2, 5, 3))
    grad, q, k, v = rng.standard_normal((4, 2, 2, 5, 4))
    bias = posenc.tupe(pos_q, pos_k)
    whole = posenc.attention_vjp(grad, q, k, v, bias=bias).bias[0]
    rows = [posenc.attention_vjp(grad[b], q[b], k[b], v[b], bias=bias).bias[0] for b in range(2)]
    for name in ("pos_q", "pos_k"):
        expected = sum(getattr(row, name) for row in rows)
        np.testing.assert_allclose(getattr(whole, name), expected, rtol=0, atol=1e-13 * np.abs(expected).max())


def test_a_sum_at_positions_of_a_batch(rng):
    """TUPE reads no positions: its matrix is the same in each row of the batch, and its gradient is the sum of all."""
    tupe, alibi = posenc.tupe(*rng.standard_normal((2, 2, 3, 4))), posenc.alibi([0.5, 0.25])
    where, bias = {"q_positions": rng.integers(0, 9, (5, 3))}, tupe + alibi
    expected = alibi.matrix(3, **where, dtype=np.float64) + tupe.matrix(3, dtype=np.float64)
    assert np.array_equal(bias.matrix(3, **where, dtype=np.float64), expected)
    grad = rng.standard_normal((5, 2, 3, 3))
    found, alone = bias.matrix_vjp(grad, 3, **where)[0], tupe.matrix_vjp(grad.sum(0), 3)
    assert all(np.allclose(one, other, rtol=1e-13, atol=1e-13) for one, other in zip(found[:2], alone[:2], strict=True))
