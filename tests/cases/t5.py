"""T5's buckets, by comparing powers of integers."""

from __future__ import annotations

from functools import cache

import numpy as np

from . import IntegerCase, at, ulps
from .bias import REAL, BiasCase, on_positions


@cache
def bucket(n, side, max_distance):
    """Raffel et al. 2020, section 2.1: e exact buckets, then e + floor(log(n/e) / log(max_distance/e) (side - e)). The
    floor is the largest k with (n/e)**(side - e) >= (max_distance/e)**k; both sides are multiplied by
    e**(side - e + k)."""
    e = side // 2
    if n < e:
        return n
    steps, k = side - e, 0
    while k < steps - 1 and n**steps * e ** (k + 1) >= max_distance ** (k + 1) * e**steps:
        k += 1
    return e + k


def t5_bucket(rel, *, buckets=32, max_distance=128, bidirectional=True):
    """Keys after the query (rel > 0) have the upper half of the buckets if bidirectional, otherwise bucket 0."""
    side = buckets // 2 if bidirectional else buckets
    found = np.empty(np.shape(rel), np.int64)
    for at_, value in np.ndenumerate(rel):
        whole = int(value)  # towards zero
        n = abs(whole) if bidirectional else max(-whole, 0)
        found[at_] = bucket(n, side, max_distance) + (side if bidirectional and whole > 0 else 0)
    return found


def t5(q, k, table, bidirectional=True, max_distance=128):
    rel = k[..., None, :] - q[..., :, None]
    chosen = t5_bucket(rel, buckets=len(table), max_distance=max_distance, bidirectional=bidirectional)
    return np.moveaxis(table[chosen], -1, -3)


def make_placed(rng, n):
    return {
        "table": rng.standard_normal((12, 3)), "max_distance": 20, "n": n, "m": n + 2,
        "q_positions": rng.uniform(-50, 50, n), "k_positions": rng.integers(-50, 50, n + 2),
    }  # fmt: skip


# a number of the table, rounded to the storage dtype
CASES = [
    IntegerCase(
        function="t5_bucket", oracle=t5_bucket, tolerance=ulps(0),
        make=lambda rng, n: {"rel": rng.integers(-300, 300, (2, n))},
        real=lambda rng: {"rel": np.arange(-1000, 1000)},
    ),
    IntegerCase(
        function="t5_bucket", label="far", oracle=t5_bucket, tolerance=ulps(0),
        make=lambda rng, n: {
            "rel": np.rint(rng.standard_normal((2, n)) * 10.0 ** rng.integers(0, 15, n)), "buckets": 40,
            "max_distance": 10**12, "bidirectional": bool(n % 2),
        },
        real=lambda rng: {"rel": np.arange(-1000, 1000) * 1.5, "buckets": 64, "max_distance": 10**6},
    ),
    BiasCase(
        function="t5", oracle=on_positions(t5), tolerance=ulps(0.5), axes={"table": "k h"}, gradients=at("table"),
        make=lambda rng, n: {"table": rng.standard_normal((12, 3)), "max_distance": 20, "n": n, "m": n + 2},
        real=lambda rng: {"table": rng.standard_normal((32, 32)), **REAL},
    ),
    BiasCase(
        function="t5", label="decoder", oracle=on_positions(t5), tolerance=ulps(0.5), axes={"table": "k h"},
        make=lambda rng, n: {
            "table": rng.standard_normal((9, 3)), "max_distance": 40, "bidirectional": False, "n": n, "m": n + 2,
        },
        real=lambda rng: {"table": rng.standard_normal((32, 32)), "bidirectional": False, **REAL},
        gradients=at("table"),
    ),
    BiasCase(
        function="t5", label="placed", oracle=on_positions(t5), tolerance=ulps(0.5), make=make_placed,
        real=lambda rng: {"table": rng.standard_normal((32, 8)), **REAL, "k_positions": np.arange(2048) * 3},
        axes={"table": "k h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("table"),
    ),
    BiasCase(
        function="t5", label="far", oracle=on_positions(t5), tolerance=ulps(0.5),
        make=lambda rng, n: {
            "table": rng.standard_normal((20, 3)), "max_distance": 10**6, "n": n, "m": n + 2,
            "bidirectional": bool(n % 2), "q_positions": rng.integers(-(10**6), 10**6, n),
        },
        real=lambda rng: {
            "table": rng.standard_normal((32, 8)), "max_distance": 10**6, **REAL, "k_positions": np.arange(2048) * 999,
        },
        axes={"table": "k h", "q_positions": "n!"}, gradients=at("table"),
    ),
]  # fmt: skip
