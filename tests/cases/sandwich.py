"""Sandwich: the inner product of two sinusoids, which is a function of the distance."""

from __future__ import annotations

from . import ulp
from .bias import REAL, BiasCase, with_placed


def sandwich_tolerance(expected, work, arguments):
    """2 dim float64 products and sums of numbers of at most 1, over the smallest divisor 8 / H, and one rounding."""
    size = arguments["dim"] * arguments["heads"] / 8
    return tuple(2 * arguments["dim"] * 2.0**-53 * size + ulp(e, work) for e in expected)


CASES = [
    *with_placed(
        BiasCase(
            function="sandwich",
            precise=("dim",),
            tolerance=sandwich_tolerance,
            make=lambda rng, n: {"heads": 3, "dim": 10, "n": n, "m": n + 2},
            real=lambda rng: {"heads": 32, "dim": 64, **REAL},
        )
    )
]
