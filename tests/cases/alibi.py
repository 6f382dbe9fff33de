"""ALiBi: a bias of -slope |distance|."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps
from .bias import REAL, BiasCase


def make_alibi(rng, n):
    return {"slopes": rng.uniform(0, 1, 3), "n": n, "m": n + 2}


def make_alibi_placed(rng, n):
    return {
        "slopes": rng.uniform(0, 1, 3), "n": n, "m": n + 2, "q_positions": rng.uniform(-50, 50, n),
        "k_positions": rng.integers(-50, 50, n + 2),
    }  # fmt: skip


# The distance is exact or rounded once, the product once.
CASES = [
    Case(
        # The exponent, at most 8, is off by half an ulp after the division; |d 2**-x| = ln 2 d x.
        function="alibi_slopes", tolerance=ulps(8), least=1,
        make=lambda rng, n: {"heads": n}, real=lambda rng: {"heads": 112},
    ),
    BiasCase(
        function="alibi", tolerance=ulps(2), make=make_alibi,
        real=lambda rng: {"slopes": 2.0 ** -np.arange(1, 33), **REAL}, axes={"slopes": "h"}, gradients=at("slopes"),
    ),
    BiasCase(
        function="alibi", label="placed", tolerance=ulps(2), make=make_alibi_placed,
        real=lambda rng: {
            "slopes": 2.0 ** -np.arange(1, 33), **REAL, "q_positions": np.sort(rng.uniform(0, 4096, 2048)),
        },
        axes={"slopes": "h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("slopes"),
    ),
]  # fmt: skip
