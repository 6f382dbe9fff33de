"""Sandwich: a number worked by hand, and an operator without parameters."""

import math

import mpmath
import numpy as np
from cases import F64

import posenc


def test_sandwich_by_hand():
    """d = 4, H = 2, distance 3: (cos 3/100 + cos 3/10000 - 2) / 4 for the first head, half of that for the second."""
    wanted = (math.cos(0.03) + math.cos(0.0003) - 2) / 4
    row = posenc.sandwich(2, 4).matrix(4, dtype=F64)[:, 0, 3]
    assert np.abs(row - [wanted, wanted / 2]).max() <= 1e-15


def test_sandwich_has_nothing_to_learn():
    bias = posenc.sandwich(2, 6)
    assert bias.arrays == ()
    assert bias.matrix_vjp(np.zeros((2, 3, 4)), 3, 4, align="end") == ()
    assert bias.matrix_vjp(np.zeros((2, 6)), 3, 4, align="end") == ()


def test_sandwich_at_far_positions():
    """In float64 each cosine has an angle beyond what a float64 product holds; mpmath has 50 digits."""
    heads, dim, far = 2, 6, [2**40, -(2**40) - 1, 2**52]
    with mpmath.workdps(50):
        waves = [[mpmath.cos(rel * mpmath.mpf(10) ** (-8 * t / mpmath.mpf(dim))) for t in (1, 2, 3)] for rel in far]
        wanted = np.array([float((sum(wave) - 3) / 4) for wave in waves])
    rows = posenc.sandwich(heads, dim).matrix(1, 3, q_positions=[0], k_positions=far, dtype=F64)[:, 0]
    assert np.abs(rows - [wanted, wanted / 2]).max() <= 1e-12  # below 2**53, as sinusoidal
