"""KERPLE: numbers worked by hand from the paper."""

import numpy as np
from cases import F64

import posenc


def test_kerple_power_by_hand():
    """Equation 5 at distance 4 with r1 = 3 and r2 = 1/2: -3 sqrt 4 = -6; at distance 0 it is 0."""
    matrix = posenc.kerple_power([3.0], [0.5]).matrix(5, dtype=F64)[0]
    assert abs(matrix[4, 0] + 6) <= 1e-15
    assert matrix[2, 2] == 0
    assert not np.signbit(matrix[2, 2])
