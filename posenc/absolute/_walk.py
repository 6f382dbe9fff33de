"""What `recurrent` and `floater` share: a batch of states as one axis, and the arrays that the walk fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core_api.arguments import Array, as_data, cast_operand, compute_dtype, fail, prepare_out


def states(function: str, argument: str, value: Any) -> Array:
    """States (..., C)."""
    array = as_data(function, argument, value)
    if not array.ndim:
        fail(ValueError, function, argument, "no axes", "states (..., C)")
    return array


def streams(array: Array, axes: int) -> Array:
    """All leading axes as one; the last `axes` stay."""
    kept = array.shape[array.ndim - axes :]
    count = int(np.prod(array.shape[: array.ndim - axes], dtype=np.int64))  # -1 would not do for an empty axis
    return array.reshape(count, *kept)


def parameter(function: str, argument: str, value: Any, shape: tuple[int | str, ...], dtype: np.dtype[Any]) -> Array:
    """A weight of exactly this shape, in float64 where the states are, else at most float32; a letter is any length."""
    array = as_data(function, argument, value)
    fits = array.ndim == len(shape) and all(
        isinstance(has, str) or has == length for has, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        fail(ValueError, function, argument, f"shape {array.shape}", f"({', '.join(map(str, shape))})")
    return cast_operand(array, dtype)


def walk_output(function: str, out: Any, p0: Array, n: int, inputs: tuple[Any, ...]) -> tuple[Array, Array]:
    """As `prepare_out`, for rows (..., n, C); the buffer is contiguous."""
    shape = (*p0.shape[:-1], n, p0.shape[-1])
    result, buffer = prepare_out(function, out, shape, p0.dtype, inputs)
    if not buffer.flags.c_contiguous:  # one batch axis of these would be a copy
        buffer = np.empty(shape, p0.dtype.newbyteorder("="))
    return result, buffer


def cotangent(function: str, grad: Any, p0: Array, n: int) -> Array:
    """`grad` of the result, with one batch axis, in what the states are computed in."""
    array, shape = as_data(function, "grad", grad), (*p0.shape[:-1], n, p0.shape[-1])
    if array.shape != shape:
        fail(ValueError, function, "grad", f"shape {array.shape}", str(shape))
    return streams(array.astype(compute_dtype(p0), copy=False), 2)
