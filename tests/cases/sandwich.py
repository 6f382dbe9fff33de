"""Sandwich: the inner product of two sinusoids, which is a function of the distance."""

from __future__ import annotations

import numpy as np

from . import ulp
from .bias import REAL, BiasCase, on_positions


def sandwich(q, k, heads, dim):
    """Chi et al. 2023, section 4: (sum over t = 1 .. d/2 of cos((i - j) / 10000**(2t/d)) - d/2) / (8h/H), h from 1."""
    rel = (k[..., None, :] - q[..., :, None]).astype(np.longdouble)
    sums = sum(np.cos(rel * np.longdouble(10000) ** (-np.longdouble(2 * t) / dim)) for t in range(1, dim // 2 + 1))
    slopes = 8 * np.arange(1, heads + 1) / heads
    return np.asarray(np.expand_dims(sums - dim // 2, -3) / slopes[:, None, None], np.float64)


def sandwich_tolerance(expected, work, arguments):
    """2 dim float64 products and sums of numbers of at most 1, over the smallest divisor 8 / H, and one rounding."""
    size = arguments["dim"] * arguments["heads"] / 8
    return tuple(2 * arguments["dim"] * 2.0**-53 * size + ulp(e, work) for e in expected)


CASES = [
    BiasCase(
        function="sandwich", oracle=on_positions(sandwich), tolerance=sandwich_tolerance,
        make=lambda rng, n: {"heads": 3, "dim": 10, "n": n, "m": n + 2},
        real=lambda rng: {"heads": 32, "dim": 64, **REAL},
    ),
    BiasCase(
        function="sandwich", label="placed", oracle=on_positions(sandwich), tolerance=sandwich_tolerance,
        make=lambda rng, n: {
            "heads": 3, "dim": 10, "n": n, "m": n + 2, "q_positions": rng.uniform(-50, 50, n),
            "k_positions": rng.integers(-50, 50, n + 2),
        },
        real=lambda rng: {"heads": 8, "dim": 64, **REAL, "k_positions": np.arange(2048) * 3},
        axes={"q_positions": "n!", "k_positions": "m!"},
    ),
]  # fmt: skip
