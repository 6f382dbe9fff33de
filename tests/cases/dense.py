"""A bias given as an array."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import REAL, BiasCase, on_positions


def dense(q, k, array):
    return np.broadcast_to(array, (*array.shape[:-2], q.shape[-1], k.shape[-1]))


# The numbers are copied, and rounded to the storage dtype.
CASES = [
    BiasCase(
        function="dense", oracle=on_positions(dense), tolerance=ulps(0.5), axes={"array": "h? n! m!"},
        make=lambda rng, n: {"array": rng.standard_normal((3, n, n + 2)), "n": n, "m": n + 2},
        real=lambda rng: {"array": rng.standard_normal((8, 2048, 2048)), **REAL}, gradients=at("array"),
    ),
]  # fmt: skip
