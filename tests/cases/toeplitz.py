"""A bias given by its diagonals."""

from __future__ import annotations

from . import at, ulps
from .bias import REAL, BiasCase

# The numbers are copied, and rounded to the storage dtype.
CASES = [
    BiasCase(
        function="toeplitz",
        tolerance=ulps(0.5),
        axes={"diagonals": "h l!"},
        make=lambda rng, n: {"diagonals": rng.standard_normal((3, 2 * n + 1)), "n": n, "m": n + 2},
        real=lambda rng: {"diagonals": rng.standard_normal((32, 4095)), **REAL},
        gradients=at("diagonals"),
    )
]
