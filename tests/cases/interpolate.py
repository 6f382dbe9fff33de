"""A learned table, resampled along one axis and over a grid."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps


def sizes(table, n, **_):
    """The largest number that is mixed."""
    return np.abs(table).max(initial=0.0)


# The share, two products and their sum are rounded in double, here and in the oracle; the result is rounded once more.
# Over a grid, each of two axes has weights with some 12 roundings in double, here and in the oracle, whose sizes add up
# to at most 25 / 16; the result of the first axis is rounded too.
CASES = [
    Case(
        function="interpolate_table",
        tolerance=ulps(4, sizes),
        axes={"table": "r d"},
        make=lambda rng, n: {"table": rng.standard_normal((n, 5)), "n": 2 * n},
        data=("table",),
        gradients=at("table"),
        least=1,
    ),
    Case(
        function="interpolate_table",
        label="fewer",
        tolerance=ulps(4, sizes),
        make=lambda rng, n: {"table": rng.standard_normal((2 * n + 3, 300)), "n": n},
        data=("table",),
        gradients=at("table"),
        axes={"table": "r d"},
    ),
    Case(
        function="interpolate_table",
        label="image",
        tolerance=ulps(64, sizes),
        axes={"table": "r d"},
        make=lambda rng, n: {
            "table": rng.standard_normal((4 * n, 5)),
            "n": (2 * n, 4),
            "grid": (n, 3),
            "method": "cubic",
            "prefix": n,
        },
        data=("table",),
        gradients=at("table"),
        least=1,
    ),
    Case(
        function="interpolate_table",
        label="smaller image",
        tolerance=ulps(64, sizes),
        axes={"table": "h w d"},
        make=lambda rng, n: {
            "table": rng.standard_normal((2 * n + 1, n, 5)),
            "n": (n, n),
            "method": "linear",
            "antialias": True,
        },
        data=("table",),
        gradients=at("table"),
        least=1,
    ),
]
