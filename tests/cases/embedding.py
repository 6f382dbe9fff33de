"""Learned positions, and their hierarchical decomposition."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps


def parts(table, positions, *, alpha=0.4):
    """Magnitudes of the terms: p_j and c (p_i - p_0), and alpha u_i and (1-alpha) u_j of the float64 oracle."""
    ids = np.arange(positions) if np.ndim(positions) == 0 else positions
    i, j = np.divmod(ids, max(len(table), 1))
    factor = alpha / (1 - alpha)
    return np.abs(table[j]) + factor * (np.abs(table[i]) + np.abs(table[:1])) + 1e-300


def repeated(rng, n, rows):
    """Drawn ids, 2 n of them, with repetitions."""
    return rng.integers(0, rows, (2, n))


def make_learned(rng, n):
    return {"table": rng.standard_normal((n, max(n, 1))), "positions": repeated(rng, n, max(n, 1))}


def make_hierarchical(rng, n):
    return {"table": rng.standard_normal((n, 5)), "positions": repeated(rng, 2 * n, max(n * n, 1)), "alpha": 0.3}


# learned copies rows. hierarchical rounds c (p_i - p_0) and the sum with p_j, in float64 also the difference and c; the
# float64 oracle rounds numbers of that size six times.
CASES = [
    Case(
        function="learned",
        tolerance=ulps(0),
        make=make_learned,
        axes={"table": "r d", "positions": "b n"},
        real=lambda rng: {"table": rng.standard_normal((8192, 1024)), "positions": rng.integers(0, 8192, (1, 8192))},
        data=("table",),
        gradients=at("table"),
        ids=("positions",),
    ),
    Case(
        function="learned",
        label="count",
        tolerance=ulps(0),
        axes={"table": "r d"},
        data=("table",),
        make=lambda rng, n: {"table": rng.standard_normal((n + 3, 300)), "positions": n},
        gradients=at("table"),
    ),
    Case(
        function="hierarchical",
        tolerance=ulps(8, parts),
        make=make_hierarchical,
        real=lambda rng: {"table": rng.standard_normal((128, 1024)), "positions": rng.integers(0, 128**2, (1, 8192))},
        axes={"table": "r d", "positions": "b n"},
        data=("table",),
        gradients=at("table"),
        ids=("positions",),
    ),
    Case(
        function="hierarchical",
        label="count",
        tolerance=ulps(8, parts),
        axes={"table": "r d"},
        make=lambda rng, n: {"table": rng.standard_normal((n, 5)), "positions": min(n * n, 300)},
        data=("table",),
        gradients=at("table"),
    ),
]
