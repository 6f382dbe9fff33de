"""KERPLE: numbers worked by hand from the paper."""

import math

import numpy as np
from cases import F64

import posenc


def test_kerple_power_by_hand():
    """Equation 5 at distance 4 with r1 = 3 and r2 = 1/2: -3 sqrt 4 = -6; at distance 0 it is 0."""
    matrix = posenc.kerple_power([3.0], [0.5]).matrix(5, dtype=F64)[0]
    assert abs(matrix[4, 0] + 6) <= 1e-15
    assert matrix[2, 2] == 0
    assert not np.signbit(matrix[2, 2])


def test_far_positions():
    """Powers of two have exact logarithms and roots: log2(1 + 2**40 (1 - 2**-40)) = 40, and (2**40)**(1/4) = 2**10."""
    q, k = [0], [2**40, -(2**40), 2**53]
    near_one = 1 - 2.0**-40
    rows = posenc.kerple_log([1 / math.log(2)], [near_one]).matrix(1, 2, q_positions=q, k_positions=k[:2], dtype=F64)
    assert np.abs(rows / -40.0 - 1).max() <= 1e-15
    rows = posenc.kerple_power([1.0], [0.25]).matrix(1, 3, q_positions=q, k_positions=k, dtype=F64)[0, 0]
    assert np.abs(rows / -np.array([2.0**10, 2.0**10, 2.0**13.25]) - 1).max() <= 1e-15
