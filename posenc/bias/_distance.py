"""Biases that are functions of rel = position of key - position of query: the DISTANCE rows of csrc/ops.def."""

from __future__ import annotations

import numpy as np

from .. import _core
from .._core_api.arguments import F64, Array, Dtype, Float64, store_result
from ._diagonals import fill_matrix, read_diagonal_sums
from .operator import Arrays, PositionBias, check_heads, check_range
from .parameters import read_cotangent, row_gradients
from .positions import Positions
from .terms import Call, Sums, Term
from .toeplitz import diagonal_term


class DistanceBias(PositionBias[Arrays]):
    """A bias that is a function of rel alone, named after its DISTANCE row."""

    heads: int

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        positions = positions.as_consecutive()
        n, m = positions.n, positions.m
        if positions.arrays is None:
            return fill_matrix(function, _values(self, function, positions.distances(function), dtype), n, m, out)
        rel = _distances(positions)
        values = _values(self, function, rel.reshape(*rel.shape[:-2], n * m), dtype)
        matrix = values.reshape(*values.shape[:-1], n, m)
        return matrix if out is None else store_result(function, out, matrix, dtype)

    def _term(self, call: Call, positions: Positions) -> Term:
        check_heads(call.function, self, call.shape)
        check_range(call.function, self, call.dtype)
        if positions.arrays is None:
            return diagonal_term(_values(self, call.function, positions.distances(call.function), call.dtype))
        return Term(self.name, self.operands, row_gradients(self.name))

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[Float64, ...]:
        if "diagonals" in sums:
            return _values_vjp(self, function, sums["diagonals"], positions.distances(function))
        return tuple(sums.values())

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> tuple[Float64, ...]:
        """Accept sums of `grad` along diagonals where distances are those of consecutive positions."""
        positions = positions.as_consecutive()
        heads, n, m = self.heads, positions.n, positions.m
        if positions.arrays is None:
            diagonals = read_diagonal_sums(function, grad, heads, n, m)
            return _values_vjp(self, function, diagonals, positions.distances(function))
        rel = _distances(positions)
        *batch, _, _ = rel.shape
        cotangent = read_cotangent(function, grad, (*batch, heads, n, m)).reshape(*batch, heads, n * m)
        return _values_vjp(self, function, cotangent, rel.reshape(*batch, n * m))


def _values(bias: DistanceBias, function: str, rel: Float64, dtype: Dtype) -> Array:
    """Return b_h(rel), (..., H, l), for distances (..., l)."""
    values: Array = getattr(_core, bias.name)(function, **bias.operands, rel=rel, dtype=dtype)
    return values


def _values_vjp(bias: DistanceBias, function: str, grad: Float64, rel: Float64) -> tuple[Float64, ...]:
    """Return the gradient of each parameter for a cotangent (..., H, l) of the values, summed over its batch axes."""
    gradients = getattr(_core, f"{bias.name}_vjp")(function, grad=grad, **bias.operands, rel=rel)
    return gradients if isinstance(gradients, tuple) else (gradients,)


def _distances(positions: Positions) -> Float64:
    """Return rel of every query and key, (..., n, m)."""
    q, k = positions.as_arrays()
    return np.subtract(k[..., None, :], q[..., :, None]).astype(F64, copy=False)
