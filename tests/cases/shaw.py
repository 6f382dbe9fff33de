"""Shaw: one row of a table for each clipped distance; and NEZHA's table of sinusoids."""

from __future__ import annotations

from . import Case, at
from .content import QK, ContentCase, K, make, normal, placed, real, sum_of_products

SHAW = {"rel_k": normal(3, 2 * K + 1, 4)}
CASES = [
    ContentCase(
        function="shaw", tolerance=sum_of_products(1), make=make(rel_k=normal(2 * K + 1, 4)),
        axes={**QK, "rel_k": "t! d"}, data=("q", "k"), real=real(rel_k=normal(129, 64)),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="shaw", label="placed", tolerance=sum_of_products(1), make=placed(make(**SHAW)),
        axes={**QK, "rel_k": "h? t! d", "q_positions": "n", "k_positions": "b m"}, data=("q", "k"),
        real=real(rel_k=normal(8, 129, 64)),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="shaw", label="clipped apart", tolerance=sum_of_products(1),
        make=placed(make(rel_k=normal(7, 4), k_min=5)), data=("q", "k"),
        axes={**QK, "rel_k": "t d", "q_positions": "n", "k_positions": "b m"},
        real=real(rel_k=normal(8, 129, 64), k_min=lambda rng: 100), gradients=at("q", "k", "rel_k"),
    ),
    Case(
        function="nezha", precise=("K",), least=1,
        tolerance=lambda expected, work, arguments: (4e-16,),
        make=lambda rng, n: {"dim": n, "K": 1 + n // 2}, real=lambda rng: {"dim": 64},
    ),
]  # fmt: skip
