"""Swin: a table indexed by the differences of rows and of columns of an image window."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import BiasCase


def make_swin(rng, n):
    height = 11 + n // 10
    table = rng.standard_normal(((2 * height - 1) * 19, 3))
    return {"table": table, "height": height, "width": 10, "n": n, "m": n + 2}


def make_swin_placed(rng, n):
    return {
        **make_swin(rng, n), "q_positions": rng.integers(0, 110, n), "k_positions": rng.integers(0, 110, (n + 2)),
    }  # fmt: skip


CASES = [
    BiasCase(
        # a number of the table, rounded to the storage dtype
        function="swin", tolerance=ulps(0.5), make=make_swin, axes={"table": "k! h"},
        real=lambda rng: {
            "table": rng.standard_normal((63 * 63, 32)), "height": 32, "width": 32, "n": 1024,
        },
        gradients=at("table"),
    ),
    BiasCase(
        function="swin", label="placed", tolerance=ulps(0.5), make=make_swin_placed,
        real=lambda rng: {
            "table": rng.standard_normal((13 * 13, 32)), "height": 7, "width": 7, "n": 49, "k_positions": np.arange(49),
        },
        axes={"table": "k! h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("table"),
    ),
]  # fmt: skip
