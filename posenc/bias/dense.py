"""Bias given as an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_data,
    broadcasts_to,
    cast_operand,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._diagonals import Where
from .operator import Bias, Sums, fits_end

__all__ = ["dense"]


class Dense(Bias):
    """A number for each query and key."""

    __slots__ = ()
    reads_positions = False

    def _shape(self, function: str, n: int, m: int) -> tuple[int, ...]:
        have = self.arrays.array.shape
        if any(length not in (1, wanted) for length, wanted in zip(have[-2:], (n, m), strict=True)):
            fail(ValueError, function, "array", f"shape {have}", f"(..., {n}, {m})")
        return (*have[:-2], n, m)

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        matrix = np.broadcast_to(self.arrays.array.astype(dtype, copy=False), self._shape(function, n, m))
        if out is None:
            return matrix
        out, buffer = prepare_out(function, out, matrix.shape, dtype, (matrix,))
        np.copyto(buffer, matrix)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        given = fits_end(function, grad, self._shape(function, n, m))
        return (unbroadcast(given.astype(F64, copy=False), self.arrays.array.shape, F64),)

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        array = self.arrays.array
        if not broadcasts_to(array.shape, shape):
            fail(ValueError, function, "array", f"shape {array.shape}", f"to broadcast to {shape}")
        with np.errstate(over="ignore"):  # the most negative float64 is a mask in float32 too
            small = cast_operand(array, dtype)  # before it is broadcast: afterwards it would be H x N x M
        if not (small.dtype.isnative and small.flags.aligned):
            small = small.astype(small.dtype.newbyteorder("="))
        return (self.name, np.broadcast_to(small, (*array.shape[:-3], *shape[-3:])))

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        """A bias of keys alone, or of queries alone, needs no more than one number for each."""
        rows, columns = self.arrays.array.shape[-2:]
        return ("rows",) if columns == 1 else ("columns",) if rows == 1 else ("pairs",)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        shape = self.arrays.array.shape
        if sums.pairs is not None:
            return (sums.pairs.reshape(shape),)
        dense = sums.rows[..., :, None] if sums.rows is not None else sums.columns[..., None, :]
        return (unbroadcast(dense, shape, F64),)


def dense(array: npt.ArrayLike) -> Bias:
    """Your own matrix: entry (i, j) is ``array[..., i, j]``.

    Parameters
    ----------
    array : array (..., N, M)
        Leading axes are (batch axes, H) and broadcast; axes of length 1 broadcast. -inf masks a pair. Not copied:
        changing it later changes the operator. By row and column, whatever the positions. Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or of another dtype (a boolean mask is ``keep=`` of `attention`).

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.dense(np.zeros((4, 2, 3))).matrix(2, 3).shape
    (4, 2, 3)
    """
    given = as_data("dense", "array", array)
    if given.ndim < 2:
        fail(ValueError, "dense", "array", f"{given.ndim} axes", "at least 2, queries and keys")
    return Dense("dense", (given.view(),), (given.dtype,))
