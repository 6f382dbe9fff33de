"""The way down to ``_core`` and back: what users pass becomes what the kernels take.

Here lists and DLPack tensors become arrays, dtypes are chosen, positions keep every bit they have, and ``out=`` of any
layout is filled through a temporary; the binding takes inputs of any layout. Nothing here knows what an operator means.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

F32, F64, I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
EXPECTED_DTYPE = "float16, bfloat16, float32, float64 or integers"
LARGEST_POSITION = 2**53


def fail(kind: type[Exception], function: str, argument: str, has: object, expected: str) -> NoReturn:
    """Raise the one form that every message has."""
    raise kind(f"{function}: {argument} has {has}; expected {expected}")


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and dtype.name == "bfloat16"


def storage_dtype(function: str, dtype: npt.DTypeLike, argument: str = "dtype") -> np.dtype[Any]:
    """One of the four storage dtypes, in native byte order."""
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except (TypeError, ValueError):  # torch's dtypes are a ValueError
        fail(TypeError, function, argument, repr(dtype), "float16, bfloat16, float32 or float64")
    if found.char in "efd" or is_bfloat16(found):
        return found
    fail(TypeError, function, argument, f"dtype {found}", "float16, bfloat16, float32 or float64")


def result_dtype(function: str, dtype: npt.DTypeLike | None, out: Any) -> np.dtype[Any]:
    """What ``dtype=None`` means: that of `out`, else float32."""
    if dtype is None:
        return storage_dtype(function, getattr(out, "dtype", F32), "out")
    return storage_dtype(function, dtype)


def as_array(function: str, argument: str, value: Any) -> Array:
    """Anything that NumPy or DLPack can show as an array, without a copy where there is one already."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"{function}: {argument} has type {type(value).__name__}; expected an array ({error})"
        ) from error


def as_data(function: str, argument: str, value: Any) -> Array:
    """An array of a storage dtype in any layout; integers are taken as float64."""
    array = value if type(value) is np.ndarray else as_array(function, argument, value)
    char = array.dtype.char
    if char in "efd" or is_bfloat16(array.dtype):
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    fail(TypeError, function, argument, f"dtype {array.dtype}", EXPECTED_DTYPE)


def as_parameter(function: str, argument: str, value: Any, ndim: int) -> Float64:
    """A finite float64 copy: what a description of an operator keeps."""
    array = np.array(as_data(function, argument, value), np.float64, order="C")
    if array.ndim != ndim:
        fail(ValueError, function, argument, f"{array.ndim} axes", f"{ndim}")
    if not np.isfinite(array).all():
        fail(ValueError, function, argument, "NaN or infinity", "finite numbers")
    return array


def as_float64(function: str, argument: str, value: Any) -> Float64:
    """The same numbers as float64."""
    if type(value) is np.ndarray and value.dtype is F64:
        return value
    return as_data(function, argument, value).astype(F64, copy=False)


def working(array: Array, wide: bool) -> Array:
    """An operand beside the data: float64 where the data is, else at most float32."""
    if wide:
        return array.astype(F64, copy=False)
    return array.astype(F32) if array.dtype.char == "d" else array


def narrowed(function: str, argument: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """A finite operand in the dtype of the arithmetic; what float32 has no number for is refused."""
    if array.dtype.itemsize <= dtype.itemsize:
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        small = array.astype(dtype)
    if not np.isfinite(small).all():
        fail(
            ValueError,
            function,
            argument,
            "numbers beyond float32",
            f"less than {np.finfo(dtype).max:.3g}, or float64 data",
        )
    return small


def as_index(function: str, argument: str, value: Any, least: int, most: int = LARGEST_POSITION) -> int:
    """A Python int from `least` to `most`; bools and floats are a TypeError."""
    try:
        number = operator.index(value)
    except TypeError:
        fail(TypeError, function, argument, f"type {type(value).__name__}", "an integer")
    if isinstance(value, bool | np.bool_):
        fail(TypeError, function, argument, f"type {type(value).__name__}", "an integer")
    if number < least:
        fail(ValueError, function, argument, number, f"at least {least}")
    if number > most:  # np.arange(2**63) is empty, without a word
        fail(ValueError, function, argument, number, "at most 2**53" if most == LARGEST_POSITION else f"at most {most}")
    return number


def as_number(function: str, argument: str, value: Any) -> float:
    """A finite Python float from an int or a float; bools are a TypeError."""
    try:
        number = float(value)
    except OverflowError:
        fail(ValueError, function, argument, "an integer beyond float64", "a finite number")
    except (TypeError, ValueError):
        number = np.nan
    if isinstance(value, bool | np.bool_ | str | bytes) or (
        number != number and not isinstance(value, float | np.floating)
    ):
        fail(TypeError, function, argument, f"type {type(value).__name__}", "a number")
    if not np.isfinite(number):
        fail(ValueError, function, argument, number, "a finite number")
    return number


def as_bool(function: str, argument: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        fail(TypeError, function, argument, f"type {type(value).__name__}", "True or False")
    return bool(value)


def one_of(function: str, argument: str, value: Any, allowed: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        fail(ValueError, function, argument, repr(value), "one of " + ", ".join(map(repr, allowed)))


def as_reals(function: str, argument: str, value: Any) -> Array:
    """Integers as int64, reals as float64, in any layout: positions and offsets keep every bit they have."""
    array = value if type(value) is np.ndarray else as_array(function, argument, value)
    dtype = array.dtype
    if dtype is I64 or dtype is F64:
        return array
    if dtype.kind in "iu":
        if dtype.char in "QL" and array.size and int(array.max()) > LARGEST_POSITION:
            fail(ValueError, function, argument, int(array.max()), "at most 2**53")
        return array.astype(I64, copy=False)
    if (dtype.kind == "f" and dtype.itemsize <= 8) or is_bfloat16(dtype):
        return array.astype(F64, copy=False)
    if isinstance(value, list | tuple) and dtype.kind == "O" and all(type(p) is int for p in array.flat):
        fail(ValueError, function, argument, max(array.flat, key=abs), "at most 2**53")  # NumPy has no such integers
    fail(TypeError, function, argument, f"dtype {dtype}", "integers or reals")


def check_positions(function: str, argument: str, array: Array) -> None:
    """Refuse what is not finite or past 2**53, where the binding does not see the argument under its name."""
    bad = ~((array >= -LARGEST_POSITION) & (array <= LARGEST_POSITION))
    if bad.any():
        fail(ValueError, function, argument, array[bad][0], "finite positions of at most 2**53")


def as_positions(function: str, argument: str, value: Any) -> Array:
    """``n`` as 0..n-1, or the array of positions; at least one axis."""
    if type(value) is not np.ndarray and isinstance(value, int | np.integer) and not isinstance(value, bool):
        return np.arange(as_index(function, argument, value, 0), dtype=I64)
    array = as_reals(function, argument, value)
    if array.ndim:
        return array
    if array.dtype is I64:
        return np.arange(as_index(function, argument, int(array), 0), dtype=I64)
    fail(TypeError, function, argument, "a bare float", "an int n, meaning 0..n-1, or an array of positions")


def output(
    function: str,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    reads: tuple[Any, ...] = (),
    in_place: bool = False,
) -> tuple[Array, Array, Array | None]:
    """The array to return, the memory that the kernel fills, and the temporary to hand to `finish`.

    `dtype` is taken in native byte order.

    The temporary is None where the kernel can write to the array itself. `reads` are the inputs: where `out` shares
    memory with one, the result goes through the temporary, except where `in_place` allows that they are the same.
    """
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if out is None:
        array = np.empty(shape, dtype)
        return array, array, None
    if not isinstance(out, np.ndarray):
        fail(TypeError, function, "out", f"type {type(out).__name__}", "a NumPy array")
    if out.dtype is not dtype and out.dtype != dtype:
        fail(TypeError, function, "out", f"dtype {out.dtype}", str(dtype))
    if out.shape != shape:
        fail(ValueError, function, "out", f"shape {out.shape}", str(shape))
    flags = out.flags
    if not flags.writeable:
        fail(ValueError, function, "out", "read-only memory", "a writeable array")
    direct, owned = flags.carray or is_direct(out), flags.owndata
    for read in reads:
        if not isinstance(read, np.ndarray) or (
            owned and read is not out and (read.flags.owndata or is_view_of_another(read, out))
        ):
            continue  # two arrays that own their memory share none: a sixth of the cost of asking NumPy
        if np.may_share_memory(out, read) and not (in_place and is_same(read, out)):
            direct = False
    if direct:
        return out, out, None
    staged = np.empty(shape, dtype)
    return out, staged, staged


def is_view_of_another(view: Array, out: Array) -> bool:
    """Whether the memory of a view is owned by an array, other than `out`."""
    base = view.base
    return type(base) is np.ndarray and base is not out and base.flags.owndata


def is_direct(out: Array) -> bool:
    """Whether kernels can write to an array: native, aligned, rows without gaps, no element twice."""
    strides_of_many = [stride for stride, length in zip(out.strides, out.shape, strict=True) if length > 1]
    return (
        out.dtype.isnative
        and out.flags.aligned
        and 0 not in strides_of_many
        and (out.shape[-1] <= 1 or out.strides[-1] == out.itemsize)
    )


def is_same(a: Array, b: Array) -> bool:
    """Whether two arrays are the same elements in the same places."""
    return a is b or (
        a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides and a.shape == b.shape
    )


def finish(out: Array, staged: Array | None) -> Array:
    """Move a result that could not be computed where it belongs."""
    if staged is not None:
        out[...] = staged
    return out


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to exactly `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def reduce_to(gradient: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Sum a gradient over the axes along which its argument was broadcast."""
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + axis for axis, length in enumerate(shape) if length == 1 and gradient.shape[extra + axis] != 1
    )
    if axes:
        gradient = gradient.sum(axis=axes, keepdims=True)
    return gradient.reshape(shape).astype(dtype, copy=False)
