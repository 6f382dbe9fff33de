"""KERPLE: a bias that is a logarithm or a power of the distance."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import REAL, BiasCase, with_placed

CASES = [
    BiasCase(
        # The product and the sum before the logarithm cost 2 ulps, the logarithm and the product after it one each.
        function="kerple_log",
        tolerance=ulps(4),
        make=lambda rng, n: {"r1": rng.uniform(0.1, 2, 3), "r2": rng.uniform(0, 1, 3), "n": n, "m": n + 2},
        real=lambda rng: {"r1": np.linspace(0.1, 2, 32), "r2": np.linspace(0.01, 1, 32), **REAL},
        axes={"r1": "h", "r2": "h"},
        gradients=at("r1", "r2"),
    ),
    *with_placed(
        BiasCase(
            # The power costs 2 + r2 ulps (elementary.h), r2 <= 2, that of NumPy one, the product after it one.
            function="kerple_power",
            tolerance=ulps(6),
            axes={"r1": "h", "r2": "h"},
            gradients=at("r1", "r2"),
            make=lambda rng, n: {"r1": rng.uniform(0.1, 2, 3), "r2": np.array([0.1, 1.3, 2.0]), "n": n, "m": n + 2},
            real=lambda rng: {"r1": np.linspace(0.1, 2, 32), "r2": np.linspace(0.01, 2, 32), **REAL},
        )
    ),
]
