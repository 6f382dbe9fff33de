"""FoX: sums of the logarithms of forget gates."""

from __future__ import annotations

import numpy as np

from . import at, ulp
from .bias import REAL, BiasCase


def fox_tolerance(expected, work, arguments):
    """The same sums in the same order in float64, and one rounding."""
    total = np.abs(arguments["log_forget"]).sum(-1).max(initial=0)
    return tuple(4 * ulp(total, np.dtype(np.float64)) + ulp(e, work) for e in expected)


def make_fox(rng, n):
    return {"log_forget": -rng.uniform(0, 2, (3, n + 4)), "n": n, "m": n + 2}


def make_fox_placed(rng, n):
    return {
        "log_forget": -rng.uniform(0, 2, (2, 3, n + 4)),
        "n": n,
        "m": n + 2,
        "q_positions": rng.integers(0, n + 4, n),
        "k_positions": rng.integers(0, n + 4, (2, n + 2)),
    }


CASES = [
    BiasCase(
        function="fox",
        tolerance=fox_tolerance,
        make=make_fox,
        axes={"log_forget": "h t"},
        real=lambda rng: {"log_forget": -rng.uniform(0, 1, (32, 2048)), **REAL},
        gradients=at("log_forget"),
    ),
    BiasCase(
        function="fox",
        label="placed",
        tolerance=fox_tolerance,
        make=make_fox_placed,
        axes={"log_forget": "b h t", "q_positions": "n!", "k_positions": "b m!"},
        gradients=at("log_forget"),
    ),
]
