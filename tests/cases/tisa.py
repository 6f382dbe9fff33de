"""TISA: a sum of bells over the distance."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import REAL, BiasCase, with_placed


def sizes(q_positions=None, k_positions=None, n=None, m=None, align=None, *, a, b, c):
    """The sum of the heights, of which a bell is at most one."""
    return np.abs(a).sum(-1)[:, None, None]


def make_tisa(rng, n):
    a, b, c = rng.standard_normal((3, 3, 4))
    return {"a": a, "b": b / 4, "c": 5 * c, "n": n, "m": n + 2}


HEADS = {"a": np.ones((32, 5)), "b": np.full((32, 5), 0.1), "c": np.linspace(-8, 8, 160).reshape(32, 5)}
# The power is off by 2 + x ulp of exp(-x), x has three roundings, each of which counts x times, and there is a product:
# (3 + 4 x) exp(-x) <= 4.2 half spacings of the height for any x. NumPy's oracle has as many, and the sum four more.
CASES = [
    *with_placed(
        BiasCase(
            function="tisa",
            tolerance=ulps(8, sizes),
            make=make_tisa,
            axes={"a": "h r", "b": "h r", "c": "h r"},
            real=lambda rng: {**HEADS, **REAL},
            gradients=at("a", "b", "c"),
        ),
        low=-9,
        high=9,
    )
]
