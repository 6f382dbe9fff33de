"""Transformer-XL: a projected sinusoid for each distance, and two vectors for each head."""

from __future__ import annotations

import numpy as np

from . import Case, at
from .content import QK, ContentCase, K, make, normal, placed, real, sum_of_products
from .shaw import shaw, sinusoids


def transformer_xl(q, k, rel, seen, scale, r, u, v):
    """Dai et al. 2019, section 3.3, terms (b), (c) and (d): q.r + u.k + v.r."""
    of_key = np.einsum("hd,...hjd->...hj", u, k)[..., None, :]
    return of_key + shaw(q + v[:, None], k, rel, seen, scale, r)


def xl_table(K, dim):
    """Dai et al. 2019: sines, then cosines, of the distance i - j = -rel."""
    table = sinusoids(K - np.arange(2 * K + 1), dim)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], -1)


XL = {"r": normal(3, 2 * K + 1, 4), "u": normal(3, 4), "v": normal(3, 4)}
CASES = [
    ContentCase(
        function="transformer_xl", oracle=transformer_xl, tolerance=sum_of_products(3), make=make(**XL),
        axes={**QK, "r": "h t! d", "u": "h d", "v": "h d"}, data=("q", "k"),
        real=real(r=normal(8, 2047, 64), u=normal(8, 64), v=normal(8, 64)),
        gradients=at("q", "k", "r", "u", "v"),
    ),
    ContentCase(
        function="transformer_xl", label="placed", oracle=transformer_xl, tolerance=sum_of_products(3),
        make=placed(make(**XL)), axes={"r": "h t! d", "u": "h d", "v": "h d"}, data=("q", "k"),
        real=real(r=normal(8, 2047, 64), u=normal(8, 64), v=normal(8, 64)),
        gradients=at("q", "k", "r", "u", "v"),
    ),
    Case(
        function="xl_table", oracle=xl_table, tolerance=lambda expected, work, arguments: (4e-16,), least=1,
        make=lambda rng, n: {"K": n, "dim": 2 * n}, real=lambda rng: {"K": 1023, "dim": 512},
    ),
]  # fmt: skip
