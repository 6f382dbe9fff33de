"""A bias given as an array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Dtype,
    as_data,
    broadcasts_to,
    cast_operand,
    cast_result,
    fail,
    store_result,
    unbroadcast,
)
from .operator import PositionBias
from .parameters import check_cotangent
from .positions import Positions
from .terms import Call, Sums, Term


class DenseArrays(NamedTuple):
    """Arrays of `dense`, or their gradients.

    Attributes
    ----------
    array : array (..., N, M)
    """

    array: Array


class DenseBias(PositionBias[DenseArrays]):
    """One number per query and key."""

    reads_positions = False

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        shape = _matrix_shape(self, function, positions)
        matrix = np.broadcast_to(cast_result(self.arrays.array, dtype), shape)
        return matrix if out is None else store_result(function, out, matrix, dtype)

    def _term(self, call: Call, positions: Positions) -> Term:
        """Return the array over all heads and pairs. Of one number per key or query, the sums of dS suffice."""
        array, shape = self.arrays.array, call.shape
        if not broadcasts_to(array.shape, shape):
            fail(ValueError, call.function, "array", f"shape {array.shape}", f"to broadcast to {shape}")
        operand = _cast_array(array, call.function, call.dtype)  # before broadcasting, which makes H N M numbers of it
        if not (operand.dtype.isnative and operand.flags.aligned):
            operand = operand.astype(operand.dtype.newbyteorder("="))
        rows, columns = array.shape[-2:]
        reads = "rows" if columns == 1 else "columns" if rows == 1 else "pairs"
        return Term(self.name, {"array": np.broadcast_to(operand, (*array.shape[:-3], *shape[-3:]))}, (reads,))

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[Array]:
        shape = self.arrays.array.shape
        if shape[-1] == 1:
            return (unbroadcast(sums["rows"][..., :, None], shape, F64),)
        if shape[-2] == 1:
            return (unbroadcast(sums["columns"][..., None, :], shape, F64),)
        return (sums["pairs"].reshape(shape),)

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> tuple[Array]:
        cotangent = check_cotangent(function, grad, _matrix_shape(self, function, positions))
        return (unbroadcast(cotangent.astype(F64, copy=False), self.arrays.array.shape, F64),)


def _matrix_shape(bias: DenseBias, function: str, positions: Positions) -> tuple[int, ...]:
    shape, wanted = bias.arrays.array.shape, (positions.n, positions.m)
    if any(length not in (1, other) for length, other in zip(shape[-2:], wanted, strict=True)):
        fail(ValueError, function, "array", f"shape {shape}", f"(..., {positions.n}, {positions.m})")
    return (*shape[:-2], *wanted)


def _cast_array(array: Array, function: str, dtype: Dtype) -> Array:
    """Return the array for arithmetic in `dtype`; the most negative float64, used as a mask, is -inf in float32."""
    if dtype is F64 or array.dtype.char != "d":
        return cast_operand(function, "array", array, dtype)
    small = cast_result(array, F32)
    if (small == np.inf).any():
        cast_operand(function, "array", array[small == np.inf], dtype)  # refuses finite numbers
    return small


def dense(array: npt.ArrayLike) -> PositionBias[DenseArrays]:
    """Return a bias given as an array, one number per query and key.

    ``b[..., i, j] = array[..., i, j]``

    Parameters
    ----------
    array : array (..., N, M)
        Leading axes are (batch axes, H). Axes broadcast. -inf masks a pair. i and j count queries and keys; positions
        are not read. The array is not copied: changing it later changes the operator. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or of a dtype that is none of the four. Pass a boolean mask as ``keep=`` of
        `attention`.

    Notes
    -----
    PyTorch's ``attn_mask`` of floats in ``scaled_dot_product_attention``.

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
