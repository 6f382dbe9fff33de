"""Biases that are functions of rel = position of key - position of query: the DISTANCE rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._diagonals import Where, consecutive, diagonal_distances, fill_matrix, summed_rows
from .operator import Bias, Sums, arrays_of, check_heads, fits_end


class Distance(Bias):
    """A bias that is a function of rel alone: a DISTANCE row of the table."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        for (_, axes), array in zip(arrays_of(self.name), self.arrays, strict=True):
            if "h" in axes:
                return int(array.shape[axes.index("h")])
        return 1

    def _values(self, function: str, rel: Float64, dtype: np.dtype[Any]) -> Array:
        """b_h(rel), (..., H, l)."""
        values = np.empty((*rel.shape[:-1], self.heads, rel.shape[-1]), dtype)
        getattr(_core, self.name)(function, *self.operands, rel, values)
        return values

    def _rel(self, n: int, m: int, where: Where) -> tuple[Float64, bool]:
        """Distances of the diagonals and True, or (..., n, m) distances and False."""
        if where is None:
            return diagonal_distances(n, m, m - n), True
        q, k = where
        if consecutive(q) and consecutive(k):
            return diagonal_distances(n, m, float(q[0] - k[0]) if n and m else 0.0), True
        return np.subtract(k[..., None, :], q[..., :, None]).astype(F64, copy=False), False

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        rel, is_row = self._rel(n, m, where)
        if is_row:
            return fill_matrix(function, self._values(function, rel, dtype), n, m, out)
        values = self._values(function, rel.reshape(*rel.shape[:-2], n * m), dtype)
        out, buffer = prepare_out(function, out, (*values.shape[:-1], n, m), dtype)
        buffer[...] = values.reshape(buffer.shape)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        rel, is_row = self._rel(n, m, where)
        if is_row:
            return self._sum(function, summed_rows(function, grad, self.heads, n, m), rel)
        shape = (*rel.shape[:-2], self.heads, n, m)
        weights = unbroadcast(fits_end(function, grad, shape).astype(F64, copy=False), shape, F64)
        total = tuple(np.zeros(array.shape) for array in self.arrays)
        for batch in np.ndindex(shape[:-3]):
            part = self._sum(function, weights[batch].reshape(self.heads, n * m), rel[batch].reshape(n * m))
            total = tuple(map(np.add, total, part))
        return total

    def _sum(self, function: str, weights: Float64, rel: Float64) -> tuple[Array, ...]:
        sums = tuple(np.zeros(array.shape) for array in self.arrays)
        getattr(_core, f"{self.name}_vjp")(function, weights, *self.operands, rel, *sums)
        return sums

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        check_heads(function, self.name, self.heads, shape)
        if distances is None:
            return (self.name, *self.operands)
        return ("toeplitz", self._values(function, distances, dtype))

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("own",) if distances is None else ("diagonals",)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        own: tuple[Array, ...] = sums.own
        return own if distances is None else self._sum(function, sums.diagonals, distances)
