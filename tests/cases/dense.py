"""A bias given as an array."""

from __future__ import annotations

from . import at, ulps
from .bias import REAL, BiasCase

# The numbers are copied, and rounded to the storage dtype.
CASES = [
    BiasCase(
        function="dense",
        tolerance=ulps(0.5),
        axes={"array": "h? n! m!"},
        make=lambda rng, n: {"array": rng.standard_normal((3, n, n + 2)), "n": n, "m": n + 2},
        real=lambda rng: {"array": rng.standard_normal((8, 2048, 2048)), **REAL},
        gradients=at("array"),
    )
]
