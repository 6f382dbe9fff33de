"""Base class of the cases of operators that read queries and keys.

An oracle gathers the table row of every pair of a query and a key: N x M x D numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bias import BiasCase, standing
from .rounding import LAMBDA


@dataclass(frozen=True, kw_only=True, eq=False)
class ContentCase(BiasCase):
    """A case whose oracle maps (q, k, rel, seen, scale, arrays) to the logits that are added before the scale. k has H
    heads."""

    method: str = "logits"

    def expect(self, arguments):
        return (self.truth(arguments),)

    def truth(self, arguments):
        names = ("q", "k", "q_positions", "k_positions", "scale")
        q, k, q_positions, k_positions, scale = (arguments.get(name) for name in names)
        q, k = (np.asarray(x, np.float64) for x in (q, k))
        k = np.repeat(k, q.shape[-3] // k.shape[-3], -3)
        q_at, k_at = standing(q.shape[-2], k.shape[-2], q_positions, k_positions)
        rest = {name: value for name, value in arguments.items() if name not in names}
        scale = (q.shape[-1] or 1) ** -0.5 if scale is None else scale
        return self.adds(q, k, q_at, k_at, np.bool_(True), scale, **rest)

    def adds(self, q, k, q_at, k_at, seen, scale, **arrays):
        rel = np.expand_dims(k_at[..., None, :] - q_at[..., :, None], -3)
        arrays = {n: np.asarray(a, q.dtype) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        return self.oracle(q, k, rel, seen, scale, **arrays)

    def size(self, q, k, q_at, k_at, seen, scale, **arrays):
        """The sum of the absolute values of the products of which `adds` is the sum."""
        sizes = {n: np.abs(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        return self.adds(np.abs(q), np.abs(k), q_at, k_at, seen, scale, **sizes)

    def error(self, q, k, q_at, k_at, seen, scale, **arrays):
        """The error of `adds` in units of u. A product with a row of a table is computed once for all its pairs."""
        return LAMBDA * np.sqrt(q.shape[-1] + 2) * self.size(q, k, q_at, k_at, seen, scale, **arrays)


def rows_of(table, index):
    """Rows of a table (T, D) or (H, T, D) at index (..., 1, N, M), (..., H, N, M, D)."""
    if table.ndim == 2:
        return table[index]
    heads = np.arange(len(table))[:, None, None]
    return table[np.broadcast_to(heads, np.broadcast_shapes(heads.shape, index.shape)), index]


def clipped(rel, last):
    return np.clip(np.trunc(rel), -last, last).astype(int) + last


def make(**tables):
    """Queries of three heads, keys of one kv head, and the drawn tables."""

    def arguments(rng, n):
        given = {name: made(rng) if callable(made) else made for name, made in tables.items()}
        return {"q": rng.standard_normal((2, 3, n, 4)), "k": rng.standard_normal((2, 1, n + 2, 4)), **given}

    return arguments


def placed(inner):
    def arguments(rng, n):
        return {
            **inner(rng, n), "q_positions": np.sort(rng.integers(-40, 40, n)),
            "k_positions": rng.uniform(-50, 50, (2, n + 2)),
        }  # fmt: skip

    return arguments


def real(**tables):
    def arguments(rng):
        q, k = rng.standard_normal((2, 8, 1024, 64))
        return {"q": q, "k": k, **{name: made(rng) for name, made in tables.items()}}

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
