"""DeBERTa: disentangled content-to-position and position-to-content terms."""

from __future__ import annotations

from . import at
from .content import QK, ContentCase, K, make, normal, placed, sum_of_products

DEBERTA = {"rel_q": normal(3, 2 * K, 4), "rel_k": normal(3, 2 * K, 4)}
CASES = [
    ContentCase(
        function="deberta",
        tolerance=sum_of_products(2),
        make=make(**DEBERTA),
        axes={**QK, "rel_q": "h? t d", "rel_k": "h? t d"},
        data=("q", "k"),
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta",
        label="buckets",
        tolerance=sum_of_products(2),
        data=("q", "k"),
        make=placed(make(**DEBERTA, num_buckets=6, max_distance=12, p2c_index="paper")),
        axes={"rel_q": "h? t d"},
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta",
        label="shared",
        tolerance=sum_of_products(2),
        data=("q", "k"),
        make=make(rel_q=normal(2 * K, 4), rel_k=normal(2 * K, 4)),
        axes={"rel_q": "t d"},
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta",
        label="c2p",
        tolerance=sum_of_products(2),
        data=("q", "k"),
        make=make(rel_q=None, rel_k=normal(3, 2 * K, 4), terms=("c2p",), num_buckets=6, max_distance=12),
        axes={"rel_k": "h? t! d"},
        gradients=at("q", "k", "rel_k"),
    ),
]
