"""Convert arrays that were read: to the dtype of the arithmetic, and back to that of a result."""

from __future__ import annotations

import numpy as np

from .. import _core
from .arrays import F32, F64, LARGEST32, Array, Dtype
from .door import fail


def arithmetic(data: Array) -> Dtype:
    """Return the dtype of the arithmetic: float64 for float64 data, else float32."""
    return F64 if data.dtype.char == "d" else F32


def operand(argument: str, array: Array, dtype: Dtype) -> Array:
    """Return an operand for arithmetic in `dtype`; the kernels widen half precision themselves, so it stays.

    Finite numbers beyond float32 are refused, in every argument alike: as infinity they would give NaN.
    """
    if dtype.char == "d":
        return array.astype(F64, copy=False)
    if array.dtype.char != "d":
        return array
    with np.errstate(over="ignore"):
        small = array.astype(F32)
    infinite = np.isinf(small)
    if infinite.any() and np.isfinite(array[infinite]).any():
        fail(ValueError, argument, "numbers beyond float32", f"at most {LARGEST32:.3g} in size, or float64")
    return small


def copied(argument: str, array: Array, dtype: Dtype) -> Array:
    """Return data that become part of a result in `dtype`, rounded once; the range is that of `operand`."""
    operand(argument, array, dtype)  # it refuses what is beyond the range
    return result(array, dtype)


def result(array: Array, dtype: Dtype) -> Array:
    """Return a result in `dtype` and native byte order. Numbers beyond its range become infinite, without a warning."""
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if array.dtype == dtype:  # np.errstate takes 10 us inside the backward pass of torch
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def store(out: object, result: Array, dtype: Dtype) -> Array:
    """Return a result in `dtype`, in `out` if it is an array. Numbers beyond its range become infinite."""
    target: Array
    _, target = _core.read("real result() -> real out() typed", result=result, out=out, dtype=dtype)
    with np.errstate(over="ignore"):
        np.copyto(target, result, casting="unsafe")  # no other rule lets bfloat16 become float16
    return target


def without_warnings() -> np.errstate:
    """Return a context in which NumPy sums results as the kernels do: infinities and NaNs give no RuntimeWarning."""
    return np.errstate(over="ignore", invalid="ignore")


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether an array of `shape` broadcasts to exactly `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def unbroadcast(gradient: Array, shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Sum a gradient over the axes along which its argument of `shape` was broadcast.

    The result is contiguous, as are the terms of the sum: NumPy adds in an order that depends on the layout.
    """
    gradient = np.asarray(gradient, order="C")
    if gradient.shape == shape:
        return result(gradient, dtype)
    extra = gradient.ndim - len(shape)
    axes = list(range(extra))
    for axis, length in enumerate(shape, extra):
        if length == 1 and gradient.shape[axis] != 1:
            axes.append(axis)
    if axes:
        with without_warnings():
            gradient = gradient.sum(axis=tuple(axes), keepdims=True)
    return result(gradient.reshape(shape), dtype)
