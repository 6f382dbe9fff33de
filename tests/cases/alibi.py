"""ALiBi: a bias of -slope |distance|."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps
from .bias import REAL, BiasCase, with_placed


def make_alibi(rng, n):
    return {"slopes": rng.uniform(0, 1, 3), "n": n, "m": n + 2}


# The distance is exact or rounded once, the product once.
CASES = [
    Case(
        # The exponent, at most 8, is off by half an ulp after the division; |d 2**-x| = ln 2 d x.
        function="alibi_slopes",
        tolerance=ulps(8),
        least=1,
        make=lambda rng, n: {"heads": n},
    ),
    *with_placed(
        BiasCase(
            function="alibi",
            tolerance=ulps(2),
            make=make_alibi,
            axes={"slopes": "h"},
            gradients=at("slopes"),
            real=lambda rng: {"slopes": 2.0 ** -np.arange(1, 33), **REAL},
        )
    ),
]
