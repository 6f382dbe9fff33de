"""Digits of numbers, and position ids of padded text."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case, IntegerCase, ulps


def horner(digits, base=10):
    """The sum of magnitudes, because every product and every sum is rounded."""
    return reference.from_digits(np.abs(digits), base=base)


def make_reals(rng, n):
    """Multiples of 1/8."""
    return {"numbers": rng.integers(0, 8 * 10**4, (2, n)) / 8, "width": 5}


CASES = [
    Case(
        function="digits",
        kinds="",
        tolerance=ulps(0),
        make=make_reals,
    ),
    Case(
        function="digits",
        label="integers",
        kinds="",
        tolerance=ulps(0),
        make=lambda rng, n: {"numbers": rng.integers(0, 16**4, (n,)), "width": 4, "base": 16},
    ),
    Case(
        function="from_digits",
        tolerance=ulps(8, horner),
        axes={"digits": "b d"},
        make=lambda rng, n: {"digits": rng.uniform(-9, 9, (n, 7)), "base": 7},
    ),
    IntegerCase(
        function="positions_from_mask",
        tolerance=ulps(0),
        axes={"keep": "b n"},
        make=lambda rng, n: {"keep": rng.random((3, n)) < 0.6, "start": 2},
        real=lambda rng: {"keep": rng.random((4, 256)) < 0.9},
    ),
]
