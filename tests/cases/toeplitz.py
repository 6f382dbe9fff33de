"""A bias given by its diagonals."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import REAL, BiasCase, on_positions


def toeplitz(q, k, diagonals):
    """Entry (i, j) is diagonals[:, j - i + N - 1]."""
    i, j = np.arange(q.shape[-1])[:, None], np.arange(k.shape[-1])
    return diagonals[:, j - i + q.shape[-1] - 1] if q.size and k.size else np.zeros((len(diagonals), q.size, k.size))


# The numbers are copied, and rounded to the storage dtype.
CASES = [
    BiasCase(
        function="toeplitz", oracle=on_positions(toeplitz), tolerance=ulps(0.5), axes={"diagonals": "h l!"},
        make=lambda rng, n: {"diagonals": rng.standard_normal((3, 2 * n + 1)), "n": n, "m": n + 2},
        real=lambda rng: {"diagonals": rng.standard_normal((32, 4095)), **REAL}, gradients=at("diagonals"),
    ),
]  # fmt: skip
