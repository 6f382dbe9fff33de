"""T5's buckets and the bias that reads a table by them."""

from __future__ import annotations

import numpy as np

from . import IntegerCase, at, ulps
from .bias import REAL, BiasCase, with_placed

# a number of the table, rounded to the storage dtype
CASES = [
    IntegerCase(
        function="t5_bucket",
        tolerance=ulps(0),
        make=lambda rng, n: {"rel": rng.integers(-300, 300, (2, n)), "bidirectional": True},
        real=lambda rng: {"rel": np.arange(-1000, 1000), "bidirectional": True},
    ),
    IntegerCase(
        function="t5_bucket",
        label="far",
        tolerance=ulps(0),
        make=lambda rng, n: {
            "rel": np.rint(rng.standard_normal((2, n)) * 10.0 ** rng.integers(0, 15, n)),
            "num_buckets": 40,
            "max_distance": 10**12,
            "bidirectional": bool(n % 2),
        },
        real=lambda rng: {
            "rel": np.arange(-1000, 1000) * 1.5,
            "bidirectional": True,
            "num_buckets": 64,
            "max_distance": 10**6,
        },
    ),
    *with_placed(
        BiasCase(
            function="t5",
            tolerance=ulps(0.5),
            axes={"table": "k h"},
            gradients=at("table"),
            make=lambda rng, n: {
                "table": rng.standard_normal((12, 3)),
                "bidirectional": True,
                "max_distance": 20,
                "n": n,
                "m": n + 2,
            },
            real=lambda rng: {"table": rng.standard_normal((32, 32)), "bidirectional": True, **REAL},
        )
    ),
    BiasCase(
        function="t5",
        label="far",
        tolerance=ulps(0.5),
        make=lambda rng, n: {
            "table": rng.standard_normal((20, 3)),
            "max_distance": 10**6,
            "n": n,
            "m": n + 2,
            "bidirectional": bool(n % 2),
            "q_positions": rng.integers(-(10**6), 10**6, n),
        },
        axes={"table": "k h", "q_positions": "n!"},
        gradients=at("table"),
    ),
]
