"""TUPE: the product of projected absolute positions, with resets for the class token."""

from __future__ import annotations

from . import at
from .bias import BiasCase
from .content import sum_of_products


def make_tupe(rng, n):
    return {
        "pos_q": rng.standard_normal((3, n, 7)),
        "pos_k": rng.standard_normal((3, n + 2, 7)),
        "n": n,
        "m": n + 2,
        "cls_to_any": rng.standard_normal(3),
        "any_to_cls": rng.standard_normal(3),
    }


CASES = [
    BiasCase(
        function="tupe",
        tolerance=sum_of_products(2),
        make=make_tupe,
        gradients=at("pos_q", "pos_k", "cls_to_any", "any_to_cls"),
        axes={"pos_q": "h n! d", "pos_k": "h m! d", "cls_to_any": "h", "any_to_cls": "h"},
        real=lambda rng: {
            "pos_q": rng.standard_normal((8, 1024, 64)),
            "pos_k": rng.standard_normal((8, 1024, 64)),
            "n": 1024,
        },
    )
]
