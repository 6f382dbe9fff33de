"""TUPE: the product of projected absolute positions, with resets for the class token."""

from __future__ import annotations

import numpy as np

from . import at
from .bias import BiasCase, standing
from .content import sum_of_products


def tupe(n=None, m=None, q_positions=None, k_positions=None, *, pos_q, pos_k, cls_to_any=None, any_to_cls=None,
         relative=None):  # fmt: skip
    """Ke et al. 2021, equations 7, 8 and 10: U_Q p_i . U_K p_j / sqrt(2 D), with column 0 and then row 0 reset."""
    product = pos_q @ pos_k.swapaxes(-1, -2) / np.sqrt(2 * pos_q.shape[-1])
    if any_to_cls is not None:
        product[:, :, :1] = any_to_cls[:, None, None]
    if cls_to_any is not None:
        product[:, :1] = cls_to_any[:, None, None]
    if relative is None:
        return product
    from .attention import operators

    where = standing(pos_q.shape[1], pos_k.shape[1], q_positions, k_positions)
    return product + operators()[relative[0]].values(*where, **relative[1])


def make_tupe(rng, n):
    return {
        "pos_q": rng.standard_normal((3, n, 7)), "pos_k": rng.standard_normal((3, n + 2, 7)), "n": n, "m": n + 2,
        "cls_to_any": rng.standard_normal(3), "any_to_cls": rng.standard_normal(3),
    }  # fmt: skip


CASES = [
    BiasCase(
        function="tupe", oracle=tupe, tolerance=sum_of_products(2), make=make_tupe, gradients=at(
            "pos_q", "pos_k", "cls_to_any", "any_to_cls"
        ), axes={"pos_q": "h n! d", "pos_k": "h m! d", "cls_to_any": "h", "any_to_cls": "h"},
        real=lambda rng: {"pos_q": rng.standard_normal((8, 1024, 64)), "pos_k": rng.standard_normal((8, 1024, 64)),
                          "n": 1024},
    ),
]  # fmt: skip
