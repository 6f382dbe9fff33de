"""Biases that are functions of rel = position of key - position of query: the DISTANCE rows of csrc/ops.def."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import F64, Array, Float64, finish_out, prepare_out, unbroadcast
from ._diagonals import fill_matrix, read_diagonal_sums
from ._parameters import array_axes, check_arrays, check_cotangent, check_heads, operands_by_name, row_results
from ._positions import Positions
from .operator import Arrays, PositionBias, Reduction, Reductions, Term, make_term
from .toeplitz import diagonal_term


class DistanceBias(PositionBias[Arrays]):
    """A bias that is a function of rel alone, named after its DISTANCE row."""

    __slots__ = ()

    @property
    def _heads(self) -> int:
        for array, axes in zip(self.arrays, array_axes(self.name).values(), strict=True):
            if "h" in axes:
                return int(array.shape[axes.index("h")])
        return 1

    def _values(self, function: str, rel: Float64, dtype: np.dtype[Any]) -> Array:
        """Return b_h(rel), (..., H, l), for distances (..., l)."""
        values = np.empty((*rel.shape[:-1], self._heads, rel.shape[-1]), dtype)
        getattr(_core, self.name)(function, **operands_by_name(self.name, *self._operands), rel=rel, out=values)
        return values

    def _values_vjp(self, function: str, grad: Float64, rel: Float64) -> tuple[Float64, ...]:
        """Return the gradient of each parameter for a cotangent (H, l) of the values."""
        row, operands = f"{self.name}_vjp", operands_by_name(self.name, *self._operands)
        gradients = dict(zip(row_results(row), (np.zeros(array.shape) for array in self.arrays), strict=True))
        getattr(_core, row)(function, grad=grad, **operands, rel=rel, **gradients)
        return tuple(gradients.values())

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        positions = positions.as_consecutive()
        n, m = positions.n, positions.m
        if positions.arrays is None:
            return fill_matrix(function, self._values(function, positions.distances, dtype), n, m, out)
        rel = _distances(positions)
        values = self._values(function, rel.reshape(*rel.shape[:-2], n * m), dtype)
        out, buffer = prepare_out(function, out, (*values.shape[:-1], n, m), dtype)
        buffer[...] = values.reshape(buffer.shape)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Float64, ...]:
        positions = positions.as_consecutive()
        n, m = positions.n, positions.m
        if positions.arrays is None:
            sums = read_diagonal_sums(function, grad, self._heads, n, m)
            return self._values_vjp(function, sums, positions.distances)
        rel = _distances(positions)
        shape = (*rel.shape[:-2], self._heads, n, m)
        cotangent = unbroadcast(check_cotangent(function, grad, shape).astype(F64, copy=False), shape, F64)
        total = tuple(np.zeros(array.shape) for array in self.arrays)
        for row in np.ndindex(shape[:-3]):
            part = self._values_vjp(function, cotangent[row].reshape(self._heads, n * m), rel[row].reshape(n * m))
            total = tuple(map(np.add, total, part))
        return total

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        check_heads(function, self.name, self._heads, shape, self.arrays)
        check_arrays(function, self.arrays, dtype)
        if positions.arrays is None:
            return diagonal_term(self._values(function, positions.distances, dtype))
        return make_term(self.name, *self._operands)

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        return ("diagonals",) if positions.arrays is None else ("parameters",)

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Float64, ...]:
        if positions.arrays is None:
            return self._values_vjp(function, reductions.diagonals, positions.distances)
        return reductions.parameters


def _distances(positions: Positions) -> Float64:
    """Return rel of every query and key, (..., n, m)."""
    q, k = positions.as_arrays()
    return np.subtract(k[..., None, :], q[..., :, None]).astype(F64, copy=False)
