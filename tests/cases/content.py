"""Base class of the cases of operators that read queries and keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posenc import reference

from . import map_arrays
from .bias import BiasCase
from .rounding import LAMBDA


@dataclass(frozen=True, kw_only=True, eq=False)
class ContentCase(BiasCase):
    """A case whose operator adds logits before the scale, with bounds on their errors. k has H heads."""

    method: str = "logits"

    def size(self, q, k, i, j, seen, scale, **arrays):
        """The sum of the absolute values of the products of which the logits are the sum, for positions i and j."""
        operator = self.bias(map_arrays(np.abs, arrays), reference)
        return operator.equation(np.abs(q), np.abs(k), i, j, seen, scale)

    def error(self, q, k, i, j, seen, scale, **arrays):
        """The error of the logits in units of u. A product with a row of a table is computed once for all its pairs."""
        return LAMBDA * np.sqrt(q.shape[-1] + 2) * self.size(q, k, i, j, seen, scale, **arrays)


def make(**tables):
    """Queries of three heads, keys of one kv head, and the drawn tables."""

    def arguments(rng, n):
        given = {name: made(rng) if callable(made) else made for name, made in tables.items()}
        return {"q": rng.standard_normal((2, 3, n, 4)), "k": rng.standard_normal((2, 1, n + 2, 4)), **given}

    return arguments


def placed(inner):
    def arguments(rng, n):
        return {
            **inner(rng, n),
            "q_positions": np.sort(rng.integers(-40, 40, n)),
            "k_positions": rng.uniform(-50, 50, (2, n + 2)),
        }

    return arguments


def column(*numbers):
    """One head with one channel, (1, N, 1)."""
    return np.array(numbers, np.float64)[None, :, None]


def normal(*shape):
    return lambda rng: rng.standard_normal(shape)


def sum_of_products(count):
    """Tolerance of `count` sums of 4 products of numbers below 5: half an ulp at the size of the sums for every product
    and every addition."""

    def tolerance(expected, work, arguments):
        return tuple(count * 8 * np.spacing(np.abs(e).max(initial=1).astype(work)) for e in expected)

    return tolerance


K = 5
QK = {"q": "b h n d", "k": "b g m d"}
