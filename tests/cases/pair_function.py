"""A bias that is a Python function of both positions: slopes times distance over the position of the query."""

from __future__ import annotations

import numpy as np

from . import ulps
from .bias import REAL, with_placed
from .distance_function import FunctionCase


def sloped(i, j, slopes):
    return -slopes[:, None, None] * abs(j - i[:, None]) / (1 + abs(i[:, None]))


def sloped_vjp(grad, i, j, slopes):
    return ((grad * sloped(i, j, np.ones_like(slopes))).sum((1, 2)),)


def made(rng, n):
    return {"function": sloped, "heads": 3, "arrays": (rng.uniform(1, 9, 3),), "vjp": sloped_vjp, "n": n, "m": n + 2}


# A difference, a sum, a quotient and a product are rounded.
PLAIN = FunctionCase(
    function="pair_function", tolerance=ulps(4), gradients={"arrays": ("arrays", 0)}, make=made,
    real=lambda rng: {**made(rng, 1), **REAL},
)  # fmt: skip
CASES = with_placed(PLAIN, real=lambda rng: {**made(rng, 512), "q_positions": np.arange(512) * 1.5})
