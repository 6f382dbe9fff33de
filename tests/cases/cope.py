"""CoPE: a position is a sum of gates, and its embedding lies between two rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import at
from .content import QK, ContentCase, make, normal, placed, sum_of_products
from .rounding import LAMBDA, TANH


@dataclass(frozen=True, kw_only=True, eq=False)
class CopeCase(ContentCase):
    """A case whose logit is interpolated between two products, at the sum of gates."""

    def size(self, q, k, i, j, seen, scale, table):
        return (np.abs(q) @ np.abs(table).swapaxes(-1, -2)).max(-1, keepdims=True)

    def error(self, q, k, i, j, seen, scale, table):
        """The error of the products, and the error of the sum of gates times the steepest slope between two products.

        The slope of a gate, (1 + tanh(x / 2)) / 2, is at most 1/4. A gate adds three roundings and the error of
        tanh."""
        root = LAMBDA * np.sqrt(q.shape[-1] + 2)
        products = root * np.abs(scale) * (np.abs(q) @ np.abs(k).swapaxes(-1, -2))
        counts = seen & (np.expand_dims(j[..., None, :] - i[..., :, None], -3) <= 0)
        gates = np.where(counts, products / 4 + TANH / 2 + 2, 0)
        sums = np.cumsum(gates[..., ::-1], -1)[..., ::-1] + 1
        slope = np.abs(np.diff(q @ table.swapaxes(-1, -2))).max(-1, keepdims=True, initial=0)
        return root * self.size(q, k, i, j, seen, scale, table) + slope * sums


CASES = [
    CopeCase(
        function="cope",
        tolerance=sum_of_products(40),
        make=make(table=normal(7, 4)),
        axes={**QK, "table": "p d"},
        data=("q", "k"),
        gradients=at("q", "k", "table"),
    ),
    CopeCase(
        function="cope",
        label="placed",
        tolerance=sum_of_products(40),
        data=("q", "k"),
        make=placed(make(table=normal(3, 7, 4), scale=1.5)),
        axes={"table": "h? p d"},
        gradients=at("q", "k", "table"),
    ),
]
