"""BERT's relative_key_query: one table for queries and keys."""

from __future__ import annotations

from . import at
from .content import QK, ContentCase, K, make, normal, placed, sum_of_products

CASES = [
    ContentCase(
        function="relative_key_query",
        tolerance=sum_of_products(2),
        make=make(table=normal(2 * K + 1, 4)),
        axes={**QK, "table": "t! d"},
        data=("q", "k"),
        gradients=at("q", "k", "table"),
    ),
    ContentCase(
        function="relative_key_query",
        label="placed",
        tolerance=sum_of_products(2),
        make=placed(make(table=normal(3, 2 * K + 1, 4))),
        data=("q", "k"),
        axes={**QK, "table": "h? t! d", "q_positions": "n", "k_positions": "b m"},
        gradients=at("q", "k", "table"),
    ),
]
