"""BEiT: Swin's table with rows for a class token."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import BiasCase, with_placed


def make_beit(rng, n):
    height = 11 + n // 10
    return {
        "table": rng.standard_normal(((2 * height - 1) * 19 + 3, 3)), "height": height, "width": 10, "n": n, "m": n + 2,
    }  # fmt: skip


def real_beit(rng):
    return {"table": rng.standard_normal((27 * 27 + 3, 12)), "height": 14, "width": 14, "n": 197}


CASES = [
    *with_placed(
        BiasCase(
            # a number of the table, rounded to storage
            function="beit", tolerance=ulps(0.5), make=make_beit, axes={"table": "k! h"}, real=real_beit,
            gradients=at("table"),
        ),
        low=0, high=12, whole=True, real=lambda rng: {
            **real_beit(rng), "n": 1, "q_positions": np.zeros(1, int), "k_positions": np.arange(197), "m": 197,
        },
    ),
]  # fmt: skip
