"""Transformer-XL: a projected sinusoid for each distance, and two vectors for each head."""

from __future__ import annotations

from . import Case, at
from .content import QK, ContentCase, K, make, normal, sum_of_products

XL = {"r": normal(3, 2 * K + 1, 4), "u": normal(3, 4), "v": normal(3, 4)}
CASES = [
    ContentCase(
        function="transformer_xl",
        tolerance=sum_of_products(3),
        make=make(**XL),
        axes={**QK, "r": "h? t! d", "u": "h? d", "v": "h? d"},
        data=("q", "k"),
        gradients=at("q", "k", "r", "u", "v"),
    ),
    ContentCase(
        function="transformer_xl",
        label="shared",
        tolerance=sum_of_products(3),
        make=make(r=normal(2 * K + 1, 4), u=normal(3, 4), v=normal(4)),
        axes={"r": "t! d", "u": "h? d", "v": "d"},
        data=("q", "k"),
        gradients=at("q", "k", "r", "u", "v"),
    ),
    Case(
        function="xl_table",
        precise=("K",),
        least=1,
        tolerance=lambda expected, work, arguments: (4e-16,),
        make=lambda rng, n: {"K": n, "dim": 2 * n},
    ),
]
