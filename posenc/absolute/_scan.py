"""Steps that `recurrent` and `floater` share: a scan along positions that computes each state from the one before.

The kernels take one batch axis, so all leading axes of states are merged into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import Array, as_data, as_grad, cast_operand, cast_result, compute_dtype, fail, prepare_out


def read_states(function: str, states: npt.ArrayLike) -> Array:
    """Return the initial states p0 (..., C)."""
    array = as_data(function, "p0", states)
    if not array.ndim:
        fail(ValueError, function, "p0", "no axes", "states (..., C)")
    return array


def merge_batch_axes(array: Array, core: int) -> Array:
    """Merge all axes but the last `core` into one."""
    batch, shape = array.shape[: array.ndim - core], array.shape[array.ndim - core :]
    return array.reshape(int(np.prod(batch, dtype=np.int64)), *shape)  # -1 would be ambiguous for an empty array


def read_weight(function: str, argument: str, value: npt.ArrayLike, shape: tuple[int | str, ...]) -> Array:
    """Return a weight of this shape; a letter in the shape is any length."""
    array = as_data(function, argument, value)
    fits = array.ndim == len(shape) and all(
        isinstance(expected, str) or length == expected for length, expected in zip(array.shape, shape, strict=True)
    )
    if not fits:
        fail(ValueError, function, argument, f"shape {array.shape}", f"({', '.join(map(str, shape))})")
    return array


def shape_of_rows(p0: Array, n: int) -> tuple[int, ...]:
    """Return the shape (..., n, C) of n states."""
    return (*p0.shape[:-1], n, p0.shape[-1])


def prepare_rows(function: str, out: Array | None, p0: Array, n: int, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
    """Return `prepare_out` for n states, with a buffer that `merge_batch_axes` need not copy."""
    shape = shape_of_rows(p0, n)
    result, buffer = prepare_out(function, out, shape, p0.dtype, inputs)
    if not buffer.flags.c_contiguous:
        buffer = np.empty(shape, p0.dtype.newbyteorder("="))
    return result, buffer


def read_grad_of_rows(function: str, grad: npt.ArrayLike, p0: Array, n: int) -> Array:
    """Return the cotangent of n states, with one batch axis and in the dtype of the arithmetic."""
    dtype = compute_dtype(p0)
    array = cast_operand(function, "grad", as_grad(function, grad, shape_of_rows(p0, n)), dtype)
    array = array.astype(dtype, copy=False)
    return merge_batch_axes(array, 2)


def like_arguments(gradients: Iterable[Array], arguments: Iterable[Array]) -> Iterator[Array]:
    """Yield gradients in the shapes and dtypes of their arguments."""
    for gradient, argument in zip(gradients, arguments, strict=True):
        yield cast_result(gradient.reshape(argument.shape), argument.dtype)
