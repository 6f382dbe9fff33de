"""A bias given as an array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F32,
    F64,
    Array,
    as_data,
    broadcasts_to,
    cast_operand,
    cast_result,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._parameters import check_cotangent
from ._positions import Positions
from .operator import PositionBias, Reduction, Reductions, Term

__all__ = ["dense"]


class DenseArrays(NamedTuple):
    """Arrays of `dense`, or their gradients."""

    array: Array


class DenseBias(PositionBias[DenseArrays]):
    """One number per query and key."""

    __slots__ = ()

    @property
    def reads_positions(self) -> bool:
        return False

    @property
    def _shown_lengths(self) -> tuple[int, int]:
        n, m = self.arrays.array.shape[-2:]
        return n, m

    def _shape(self, function: str, n: int, m: int) -> tuple[int, ...]:
        shape = self.arrays.array.shape
        if any(length not in (1, wanted) for length, wanted in zip(shape[-2:], (n, m), strict=True)):
            fail(ValueError, function, "array", f"shape {shape}", f"(..., {n}, {m})")
        return (*shape[:-2], n, m)

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        shape = self._shape(function, positions.n, positions.m)
        matrix = np.broadcast_to(cast_result(self.arrays.array, dtype), shape)
        if out is None:
            return matrix
        out, buffer = prepare_out(function, out, matrix.shape, dtype, (matrix,))
        np.copyto(buffer, matrix)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Array, ...]:
        cotangent = check_cotangent(function, grad, self._shape(function, positions.n, positions.m))
        return (unbroadcast(cotangent.astype(F64, copy=False), self.arrays.array.shape, F64),)

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        array = self.arrays.array
        if not broadcasts_to(array.shape, shape):
            fail(ValueError, function, "array", f"shape {array.shape}", f"to broadcast to {shape}")
        operand = self._cast_array(function, dtype)  # before broadcasting, since the result would have H N M numbers
        if not (operand.dtype.isnative and operand.flags.aligned):
            operand = operand.astype(operand.dtype.newbyteorder("="))
        return Term(self.name, {"array": np.broadcast_to(operand, (*array.shape[:-3], *shape[-3:]))})

    def _cast_array(self, function: str, dtype: np.dtype[Any]) -> Array:
        """Return the array for arithmetic in `dtype`; the most negative float64, used as a mask, is -inf in float32."""
        array = self.arrays.array
        if dtype is F64 or array.dtype.char != "d":
            return cast_operand(function, "array", array, dtype)
        small = cast_result(array, F32)
        if (small == np.inf).any():
            cast_operand(function, "array", array[small == np.inf], dtype)  # refuses finite numbers
        return small

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        """A bias of keys alone, or of queries alone, needs only one number per key or query."""
        rows, columns = self.arrays.array.shape[-2:]
        return ("rows",) if columns == 1 else ("columns",) if rows == 1 else ("pairs",)

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Array, ...]:
        shape = self.arrays.array.shape
        if shape[-1] == 1:
            return (unbroadcast(reductions.rows[..., :, None], shape, F64),)
        if shape[-2] == 1:
            return (unbroadcast(reductions.columns[..., None, :], shape, F64),)
        return (reductions.pairs.reshape(shape),)


def dense(array: npt.ArrayLike) -> PositionBias[DenseArrays]:
    """Return a bias given as an array, one number per query and key.

    ``b[..., i, j] = array[..., i, j]``

    Parameters
    ----------
    array : array (..., N, M)
        Leading axes are (batch axes, H). All axes broadcast. -inf masks a pair. The indices are row and column,
        whatever the positions are. The array is not copied: changing it later changes the operator. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or of a dtype that is none of the four. Pass a boolean mask as ``keep=`` of
        `attention`.

    Examples
    --------
    An additive mask that hides the last key of the second sequence of a batch, as a padding mask of transformers:

    >>> import numpy as np, posenc
    >>> mask = np.zeros((2, 1, 1, 4), np.float32)  # (batch, heads, queries, keys)
    >>> mask[1, ..., -1] = -np.inf
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 8, 4, 16), np.float32)
    >>> posenc.attention(q, k, v, bias=posenc.dense(mask)).shape
    (2, 8, 4, 16)
    """
    kept = as_data("dense", "array", array)
    if kept.ndim < 2:
        fail(ValueError, "dense", "array", f"{kept.ndim} axes", "at least 2, queries and keys")
    return DenseBias("dense", DenseArrays(kept.view()))
