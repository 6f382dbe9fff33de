"""Gated distance: the gates of a query times the table row of the distance."""

from __future__ import annotations

from . import at
from .bias import BiasCase
from .content import K, sum_of_products


def make(batch=(), **options):
    def arguments(rng, n):
        return {
            "gates": rng.standard_normal((*batch, 3, n, 4)),
            **{k: v(rng) if callable(v) else v for k, v in options.items()},
            "n": n,
            "m": n + 2,
        }

    return arguments


def make_placed(rng, n):
    given = make((2,), table=lambda rng: rng.standard_normal((3, 6, 4)), rows="past")(rng, n)
    return {**given, "q_positions": rng.uniform(-9, 9, n), "k_positions": rng.integers(-9, 9, (2, n + 2))}


def real(rng):
    return {
        "gates": rng.standard_normal((8, 2048, 16)),
        "table": rng.standard_normal((1024, 16)),
        "rows": "past",
        "n": 2048,
        "m": 2048,
    }


CASES = [
    BiasCase(
        function="gated_distance",
        tolerance=sum_of_products(2),
        make=make(table=lambda rng: rng.standard_normal((2 * K + 1, 4))),
        real=real,
        axes={"gates": "h n! r", "table": "t! r"},
        gradients=at("gates", "table"),
    ),
    BiasCase(
        function="gated_distance",
        label="buckets",
        tolerance=sum_of_products(2),
        make=make(table=lambda rng: rng.standard_normal((3, 12, 4)), rows="buckets", max_distance=9),
        axes={"gates": "h n! r", "table": "h? t r"},
        gradients=at("gates", "table"),
    ),
    BiasCase(
        function="gated_distance",
        label="placed",
        tolerance=sum_of_products(2),
        make=make_placed,
        gradients=at("gates", "table"),
        axes={"gates": "b h n! r", "table": "h? t r", "q_positions": "n", "k_positions": "b m!"},
    ),
]
