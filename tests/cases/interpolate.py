"""A learned table, resampled linearly."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps


def interpolate_table(table, n):
    """Linear interpolation with align_corners=True: position i of n lies at i (r - 1) / (n - 1) of the table."""
    row, rest = np.divmod(np.arange(n) * (len(table) - 1), max(n - 1, 1))
    share = (rest / max(n - 1, 1))[:, None]
    return (1 - share) * table[row] + share * table[np.minimum(row + 1, len(table) - 1)]


def sizes(table, n):
    """The largest number that is mixed."""
    return np.abs(table).max(initial=0.0)


# The share, two products and their sum are rounded in double, here and in the oracle; the result is rounded once more.
CASES = [
    Case(
        function="interpolate_table", oracle=interpolate_table, tolerance=ulps(4, sizes), axes={"table": "r d"},
        make=lambda rng, n: {"table": rng.standard_normal((n, 5)), "n": 2 * n}, data=("table",),
        real=lambda rng: {"table": rng.standard_normal((512, 1024)), "n": 8192}, gradients=at("table"), least=1,
    ),
    Case(
        function="interpolate_table", label="fewer", oracle=interpolate_table, tolerance=ulps(4, sizes),
        make=lambda rng, n: {"table": rng.standard_normal((2 * n + 3, 300)), "n": n}, data=("table",),
        real=lambda rng: {"table": rng.standard_normal((8192, 1024)), "n": 512}, gradients=at("table"),
        axes={"table": "r d"},
    ),
]  # fmt: skip
