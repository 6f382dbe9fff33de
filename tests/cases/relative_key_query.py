"""BERT's relative_key_query: one table for queries and keys."""

from __future__ import annotations

import numpy as np

from . import at
from .content import QK, ContentCase, K, clipped, make, normal, placed, real, rows_of, sum_of_products


def relative_key_query(q, k, rel, seen, scale, table):
    """Huang et al. 2020, method 4: q_i . a_ij + k_j . a_ij."""
    rows = rows_of(table, clipped(rel, table.shape[-2] // 2))
    return np.einsum("...hid,...hijd->...hij", q, rows) + np.einsum("...hjd,...hijd->...hij", k, rows)


CASES = [
    ContentCase(
        function="relative_key_query", oracle=relative_key_query, tolerance=sum_of_products(2),
        make=make(table=normal(2 * K + 1, 4)), axes={**QK, "table": "t! d"}, data=("q", "k"),
        real=real(table=normal(1023, 64)), gradients=at("q", "k", "table"),
    ),
    ContentCase(
        function="relative_key_query", label="placed", oracle=relative_key_query, tolerance=sum_of_products(2),
        make=placed(make(table=normal(3, 2 * K + 1, 4))), data=("q", "k"),
        axes={**QK, "table": "h? t! d", "q_positions": "n", "k_positions": "b m"},
        real=real(table=normal(8, 129, 64)), gradients=at("q", "k", "table"),
    ),
]  # fmt: skip
