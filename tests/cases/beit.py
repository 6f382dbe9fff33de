"""BEiT: Swin's table with rows for a class token."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import BiasCase


def make_beit(rng, n):
    height = 11 + n // 10
    return {
        "table": rng.standard_normal(((2 * height - 1) * 19 + 3, 3)), "height": height, "width": 10, "n": n, "m": n + 2,
    }  # fmt: skip


def make_beit_placed(rng, n):
    positions = {"q_positions": rng.integers(0, 12, n), "k_positions": rng.integers(0, 12, n + 2)}
    return {**make_beit(rng, n), **positions}


CASES = [
    BiasCase(
        # a number of the table, rounded to storage
        function="beit", tolerance=ulps(0.5), make=make_beit, axes={"table": "k! h"},
        real=lambda rng: {"table": rng.standard_normal((27 * 27 + 3, 12)), "height": 14, "width": 14, "n": 197},
        gradients=at("table"),
    ),
    BiasCase(
        function="beit", label="placed", tolerance=ulps(0.5), make=make_beit_placed,
        real=lambda rng: {
            "table": rng.standard_normal((27 * 27 + 3, 12)), "height": 14, "width": 14, "n": 1,
            "q_positions": np.zeros(1, int), "k_positions": np.arange(197), "m": 197,
        },
        axes={"table": "k! h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("table"),
    ),
]  # fmt: skip
