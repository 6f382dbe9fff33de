"""Shaw: one row of a table for each clipped distance; and NEZHA's table of sinusoids."""

from __future__ import annotations

import numpy as np

from . import Case, at
from .content import QK, ContentCase, K, make, normal, placed, real, rows_of, sum_of_products


def shaw(q, k, rel, seen, scale, rel_k, rel_v=None, k_min=None):
    """Shaw et al. 2018, equation 4, the second term: q_i . a_clip(j - i). With k_min the two ends clip apart."""
    rows = rel_k.shape[-2]
    row = np.clip(np.trunc(rel).astype(int) + (rows // 2 if k_min is None else k_min), 0, rows - 1)
    return np.einsum("...hid,...hijd->...hij", q, rows_of(rel_k, row))


def nezha(dim, K=64):
    """Wei et al. 2019, equation 8: row t has sin and cos of t / 10000**(2 i / d)."""
    return sinusoids(np.arange(2 * K + 1), dim)


def sinusoids(positions, dim):
    w = np.longdouble(10000) ** -(np.arange(0, dim, 2, dtype=np.longdouble) / dim)
    angle = positions[:, None] * w
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(positions), -1)[:, :dim]


SHAW = {"rel_k": normal(3, 2 * K + 1, 4)}
CASES = [
    ContentCase(
        function="shaw", oracle=shaw, tolerance=sum_of_products(1), make=make(rel_k=normal(2 * K + 1, 4)),
        axes={**QK, "rel_k": "t! d"}, data=("q", "k"), real=real(rel_k=normal(129, 64)),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="shaw", label="placed", oracle=shaw, tolerance=sum_of_products(1), make=placed(make(**SHAW)),
        axes={**QK, "rel_k": "h? t! d", "q_positions": "n", "k_positions": "b m"}, data=("q", "k"),
        real=real(rel_k=normal(8, 129, 64)),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="shaw", label="clipped apart", oracle=shaw, tolerance=sum_of_products(1),
        make=placed(make(rel_k=normal(7, 4), k_min=5)), data=("q", "k"),
        axes={**QK, "rel_k": "t d", "q_positions": "n", "k_positions": "b m"},
        real=real(rel_k=normal(8, 129, 64), k_min=lambda rng: 100), gradients=at("q", "k", "rel_k"),
    ),
    Case(
        function="nezha", oracle=nezha, tolerance=lambda expected, work, arguments: (4e-16,), least=1,
        make=lambda rng, n: {"dim": n, "K": 1 + n // 2}, real=lambda rng: {"dim": 64},
    ),
]  # fmt: skip
