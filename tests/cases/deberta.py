"""DeBERTa: disentangled content-to-position and position-to-content terms."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np

from . import at
from .content import QK, ContentCase, K, make, normal, placed, real, rows_of, sum_of_products


@cache
def bucket(distance, buckets, max_position):
    """He et al. 2021: the distance itself up to mid, then mid + ceil of a logarithm, by comparing exact fractions."""
    mid, size = buckets // 2, abs(distance)
    if size <= mid:
        return distance
    s, power = 0, Fraction(size, mid) ** (mid - 1)
    while Fraction(max_position - 1, mid) ** s < power:
        s += 1
    return (mid + s) if distance > 0 else -(mid + s)


def deberta(q, k, rel, seen, scale, rel_q=None, rel_k=None, buckets=None, max_position=None, terms=("c2p", "p2c"),
            p2c_index="code"):  # fmt: skip
    """Equation 4 without its first term: q_i . Kr_d(i,j) + k_j . Qr_d(i,j) (or d(j,i), as it is printed)."""

    def index(distance, table):
        if buckets is not None:
            distance = np.vectorize(lambda d: bucket(int(d), buckets, max_position), otypes=[int])(distance)
        half = table.shape[-2] // 2
        return np.clip(np.trunc(distance) + half, 0, 2 * half - 1).astype(int)

    total = np.zeros((), q.dtype)
    if "c2p" in terms:
        total = total + np.einsum("...hid,...hijd->...hij", q, rows_of(rel_k, index(-rel, rel_k)))
    if "p2c" in terms:
        sign = -1 if p2c_index == "code" else 1
        total = total + np.einsum("...hjd,...hijd->...hij", k, rows_of(rel_q, index(sign * rel, rel_q)))
    return total


DEBERTA = {"rel_q": normal(3, 2 * K, 4), "rel_k": normal(3, 2 * K, 4)}
CASES = [
    ContentCase(
        function="deberta", oracle=deberta, tolerance=sum_of_products(2), make=make(**DEBERTA),
        axes={**QK, "rel_q": "h t d", "rel_k": "h t d"}, data=("q", "k"),
        real=real(rel_q=normal(8, 512, 64), rel_k=normal(8, 512, 64)),
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta", label="buckets", oracle=deberta, tolerance=sum_of_products(2), data=("q", "k"),
        make=placed(make(**DEBERTA, buckets=6, max_position=12, p2c_index="paper")), axes={"rel_q": "h t d"},
        real=real(rel_q=normal(8, 512, 64), rel_k=normal(8, 512, 64)),
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta", label="c2p", oracle=deberta, tolerance=sum_of_products(2), data=("q", "k"),
        make=make(rel_q=None, rel_k=normal(3, 2 * K, 4), terms=("c2p",), buckets=6, max_position=12),
        axes={"rel_k": "h t! d"},
        real=real(rel_q=lambda rng: None, rel_k=normal(8, 512, 64), terms=lambda rng: ("c2p",)),
        gradients=at("q", "k", "rel_k"),
    ),
]  # fmt: skip
