"""FIRE: a small network of the distance, divided by the position of the query."""

from __future__ import annotations

import numpy as np

from . import at, ulp
from .bias import BiasCase, with_placed


def fire_tolerance(expected, work, arguments):
    """The logarithms and the quotient are within 6 float64 ulps, each product and sum of the W terms within one ulp of
    the largest term. The result is rounded once to the working precision."""
    w1, b1, w2, b2 = (np.abs(arguments[name]) for name in ("w1", "b1", "w2", "b2"))
    z = 40.0  # the largest quotient of logarithms in these cases
    size = (w2 @ (w1[:, 0] * z + b1) + b2).max()
    return tuple((8 + 2 * len(b1)) * ulp(size, np.dtype(np.float64)) + ulp(e, work) for e in expected)


def make_fire(rng, n):
    width = 5
    return {
        "w1": rng.standard_normal((width, 1)),
        "b1": rng.standard_normal(width),
        "w2": rng.standard_normal((3, width)),
        "b2": rng.standard_normal(3),
        "c": np.array(-0.7),
        "threshold": np.array(-3.3),
        "n": n,
        "m": n + 2,
    }


def real_fire(rng):
    return {
        "w1": rng.standard_normal((32, 1)),
        "b1": rng.standard_normal(32),
        "w2": rng.standard_normal((8, 32)),
        "b2": rng.standard_normal(8),
        "c": 0.1,
        "threshold": 512.0,
        "n": 512,
    }


CASES = [
    *with_placed(
        BiasCase(
            function="fire",
            tolerance=fire_tolerance,
            make=make_fire,
            real=real_fire,
            axes={"w1": "w 1", "b1": "w", "w2": "h w", "b2": "h"},
            gradients=at("w1", "b1", "w2", "b2", "c", "threshold"),
        ),
        low=0,
    )
]
