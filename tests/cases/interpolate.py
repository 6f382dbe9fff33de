"""A learned table, resampled linearly."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps


def sizes(table, n):
    """The largest number that is mixed."""
    return np.abs(table).max(initial=0.0)


# The share, two products and their sum are rounded in double, here and in the oracle; the result is rounded once more.
CASES = [
    Case(
        function="interpolate_table", tolerance=ulps(4, sizes), axes={"table": "r d"},
        make=lambda rng, n: {"table": rng.standard_normal((n, 5)), "n": 2 * n}, data=("table",),
        real=lambda rng: {"table": rng.standard_normal((512, 1024)), "n": 8192}, gradients=at("table"), least=1,
    ),
    Case(
        function="interpolate_table", label="fewer", tolerance=ulps(4, sizes),
        make=lambda rng, n: {"table": rng.standard_normal((2 * n + 3, 300)), "n": n}, data=("table",),
        real=lambda rng: {"table": rng.standard_normal((8192, 1024)), "n": 512}, gradients=at("table"),
        axes={"table": "r d"},
    ),
]  # fmt: skip
