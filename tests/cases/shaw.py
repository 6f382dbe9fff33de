"""Shaw: one row of a table for each clipped distance; and NEZHA's table of sinusoids."""

from __future__ import annotations

from . import Case, at
from .content import QK, ContentCase, K, make, normal, placed, sum_of_products

CASES = [
    ContentCase(
        function="shaw",
        tolerance=sum_of_products(1),
        make=make(rel_k=normal(2 * K + 1, 4)),
        axes={**QK, "rel_k": "t! d"},
        data=("q", "k"),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="shaw",
        label="clipped apart",
        tolerance=sum_of_products(1),
        make=placed(make(rel_k=normal(7, 4), k_min=5)),
        data=("q", "k"),
        axes={**QK, "rel_k": "t d", "q_positions": "n", "k_positions": "b m"},
        gradients=at("q", "k", "rel_k"),
    ),
    Case(
        function="nezha_table",
        precise=("K",),
        least=1,
        tolerance=lambda expected, work, arguments: (4e-16,),
        make=lambda rng, n: {"dim": n, "K": 1 + n // 2},
    ),
]
