"""Convert user arguments to kernel operands, and results back.

Lists and DLPack tensors become arrays, dtypes are checked, and positions keep every bit. The kernels take operands of
any layout. What they take, csrc/python/convert.c reads; this file has what is no array, and arithmetic in NumPy.
Nothing in this file depends on the meaning of an operator.

Error messages begin with the name of the argument; `door` puts the name of the public function before it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .constants import LARGEST_POSITION
from .tensors import is_tensor, requires_gradient, to_array

Array = npt.NDArray[Any]
Dtype: TypeAlias = np.dtype[Any]
Float64 = npt.NDArray[np.float64]

F32, F64, I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
LARGEST32 = float(np.finfo(F32).max)
LARGEST_SCALE32 = 2.0**127
"""The largest scale of logits in float32: the kernels multiply it by log2(e)."""
MOST_BITS_SHOWN = 256
"""Bits of the longest integer that a message shows."""
MOST_CHANNELS = 1 << 16
"""More heads, or channels of a head, than any model has: an argument from a file may ask for hours of work."""
MOST_NUMBERS = 1 << 30
"""More numbers than any table of a model has: 8 GiB."""
MOST_AXES = 30
"""Most axes of an argument. Broadcasting of NumPy takes 32, and functions add up to two. Kernels take fewer."""
MOST_SHOWN = 300
"""Characters of the longest value that a message shows."""
BOOLS, INTEGERS = (bool, np.bool_), (int, np.integer)  # an isinstance of `int | np.integer` would build the union
STORAGE_DTYPES = "float16, bfloat16, float32 or float64"


Function = TypeVar("Function", bound=Callable[..., Any])


def door(function: Function, name: str = "") -> Function:
    """Decorate a public function, so that messages from below, which begin with ": ", begin with its name.

    In the name of a method, {} is the name of its operator: "alibi.matrix", "(alibi + t5).matrix". A call takes some
    0.4 us more.
    """
    owner, _, own = function.__qualname__.rpartition(".")
    name = name or (own if not owner else owner if own.startswith("__") else f"{{}}.{own}")

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            first = args[0] if args else options.get("self")
            owner = str(getattr(first, "name", ""))
            _add_name(error, name.format(f"({owner})" if "+" in owner else owner))
            raise

    return cast("Function", call)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes a name for its messages as its first argument, as `_core` passes it."""

    def call(name: str, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            _add_name(error, name)
            raise

    return call


def _add_name(error: Exception, name: str) -> None:
    if len(error.args) == 1 and isinstance(error.args[0], str) and error.args[0].startswith(": "):
        error.args = (name + error.args[0],)


def fail(kind: type[Exception], argument: str, has: object, expected: str) -> NoReturn:
    """Raise ": <argument> has <has>; expected <expected>", for a property of the argument; see `door`."""
    raise kind(f": {argument} has {has if isinstance(has, str) else shown(has)}; expected {expected}")


def fail_value(kind: type[Exception], argument: str, value: object, expected: str) -> NoReturn:
    """Raise ": <argument> is <value>; expected <expected>", for the argument's own value; see `door`."""
    raise kind(f": {argument} is {shown(value)}; expected {expected}")


def shown(value: object) -> str:
    """Return a value as messages show it, in one line of bounded length."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS_SHOWN:  # Python prints no more than 4300 digits
        return f"an integer of {value.bit_length()} bits"
    ndim = getattr(value, "ndim", 0)
    if isinstance(ndim, int) and ndim:  # numpy.ndim is a function, and numpy.ndarray.ndim a descriptor
        return f"an array of shape {tuple(getattr(value, 'shape', ()))}"
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def is_bfloat16(dtype: Dtype) -> bool:
    """Return whether a dtype is bfloat16 of ml_dtypes, which need not be installed."""
    return dtype.itemsize == 2 and dtype.name == "bfloat16"


def is_storage_dtype(dtype: Dtype) -> bool:
    """Return whether a dtype is one of the four that data may have."""
    return dtype.char in "efd" or is_bfloat16(dtype)


def storage_dtype(dtype: npt.DTypeLike) -> Dtype:
    """Return the argument `dtype` as one of the four storage dtypes, in native byte order."""
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except (TypeError, ValueError):  # NumPy raises ValueError for a dtype of torch
        fail_value(TypeError, "dtype", dtype, STORAGE_DTYPES)
    if not is_storage_dtype(found):
        fail_value(TypeError, "dtype", found, STORAGE_DTYPES)
    return found


def result_dtype(dtype: npt.DTypeLike | None, out: object) -> Dtype:
    """Return `dtype`; without it, the dtype of `out`; without both, float32."""
    if dtype is None:
        if out is None:
            return F32
        if not isinstance(out, np.ndarray):
            fail(TypeError, "out", f"type {type(out).__name__}", "a NumPy array")
        if not is_storage_dtype(out.dtype):
            fail(TypeError, "out", f"dtype {out.dtype}", STORAGE_DTYPES)
        found: Dtype = out.dtype.newbyteorder("=")
        return found
    return storage_dtype(dtype)


def compute_dtype(data: Array) -> Dtype:
    """Return the dtype of the arithmetic: float64 for float64 data, else float32."""
    return F64 if data.dtype.char == "d" else F32


def as_array(argument: str, value: object, integers: str = "integers of at most 2**53") -> Array:
    """Return whatever NumPy or DLPack can read as an array, without a copy where there is an array already.

    `integers` says what was expected instead of integers beyond 64 bits.
    """
    array = _read_array(argument, value, integers)
    if array.ndim > MOST_AXES:
        fail(ValueError, argument, f"{array.ndim} axes", f"at most {MOST_AXES}")
    return array


def _read_array(argument: str, value: object, integers: str) -> Array:
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):  # np.asarray would ignore its mask
            fail(TypeError, argument, "type MaskedArray", "an array without a mask, such as filled() returns")
        return np.asarray(value)
    if is_tensor(value):
        check_tensor(argument, value)
    graph = getattr(type(value), "__dask_graph__", None)
    if graph is not None and graph(value) is not None:  # np.asarray would compute it
        has = f"type {type(value).__name__}, which dask computes later"
        fail(TypeError, argument, has, "an array in memory; posenc_bridges.dask takes dask arrays")
    try:
        if is_tensor(value):
            return to_array(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        array = np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # the protocols call code of the user, which may raise anything
        raise TypeError(f": {argument} has type {type(value).__name__}; expected an array ({error})") from error
    if array.dtype.kind == "O" and all(type(number) is int for number in array.flat):  # integers beyond int64
        fail(ValueError, argument, max(array.flat, key=abs), integers)
    return array


def check_tensor(argument: str, tensor: Any) -> None:
    """Refuse a tensor whose gradient would be lost, or whose memory is not the CPU's."""
    if requires_gradient(tensor):
        expected = "posenc_bridges.torch, or torch.no_grad()"
        fail(TypeError, argument, "a tensor that requires a gradient", expected)
    if not tensor.is_cpu:
        fail(TypeError, argument, f"a tensor on device {tensor.device}", "one on the CPU")


def as_data(argument: str, value: object) -> Array:
    """Return an array of a storage dtype in any layout; integers become float64."""
    array = value if type(value) is np.ndarray and value.ndim <= MOST_AXES else as_array(argument, value)
    if array.dtype.char in "efd" or is_bfloat16(array.dtype):
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    fail(TypeError, argument, f"dtype {array.dtype}", "float16, bfloat16, float32, float64 or integers")


def cast_operand(argument: str, array: Array, dtype: Dtype) -> Array:
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


def check_range(argument: str, number: float, dtype: Dtype, largest: float = LARGEST32) -> None:
    """Refuse a number that the arithmetic in `dtype` cannot multiply by, as `cast_operand` does for arrays."""
    if dtype.char != "d" and abs(number) > largest:
        fail_value(ValueError, argument, number, f"at most {largest:.3g} in size, or float64")


def cast_copied(argument: str, array: Array, dtype: Dtype) -> Array:
    """Return data that become part of a result in `dtype`, rounded once; the range is that of `cast_operand`."""
    cast_operand(argument, array, dtype)  # it refuses what is beyond the range
    return cast_result(array, dtype)


_core.set_helpers(_named(as_array), shown)


def cast_result(array: Array, dtype: Dtype) -> Array:
    """Return a result in `dtype` and native byte order. Numbers beyond its range become infinite, without a warning."""
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if array.dtype == dtype:  # np.errstate takes 10 us inside the backward pass of torch
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def without_warnings() -> np.errstate:
    """Return a context in which NumPy sums results as the kernels do: infinities and NaNs give no RuntimeWarning."""
    return np.errstate(over="ignore", invalid="ignore")


def as_index(argument: str, value: object, least: int, most: int = LARGEST_POSITION) -> int:
    """Return a Python int from `least` to `most`; refuse bools and floats."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        fail(TypeError, argument, f"type {type(value).__name__}", "an integer")
    if isinstance(value, BOOLS):
        fail(TypeError, argument, f"type {type(value).__name__}", "an integer")
    if number < least:
        fail_value(ValueError, argument, number, f"at least {least}")
    if number > most:  # np.arange(2**63) would return an empty array
        limit = "2**53" if most == LARGEST_POSITION else str(most)
        fail_value(ValueError, argument, number, f"at most {limit}")
    return number


def check_table_size(numbers: int, **arguments: int) -> None:
    """Refuse a table of more numbers than any model has, under the name of the largest argument."""
    if numbers > MOST_NUMBERS:
        argument = max(arguments, key=arguments.__getitem__)
        expected = f"a table of at most 2**30 numbers, not {shown(numbers)}"
        fail_value(ValueError, argument, arguments[argument], expected)


def as_number(argument: str, value: object) -> float:
    """Return a finite Python float from an int or a float; refuse bools and strings."""
    if type(value) is not float and is_tensor(value):
        check_tensor(argument, value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        fail(ValueError, argument, "an integer beyond float64", "a finite number")
    except (TypeError, ValueError):
        number = np.nan
    is_nan_of_float = number != number and isinstance(value, float | np.floating)
    is_number = type(value) in (int, float) or not _holds_no_number(value)
    if not is_number or (number != number and not is_nan_of_float):
        fail(TypeError, argument, f"type {type(value).__name__}", "a number")
    if not math.isfinite(number):
        fail_value(ValueError, argument, number, "a finite number")
    return number


def _holds_no_number(value: object) -> bool:
    """Return whether a value is no number although float() may take it: text, a bool, an array with axes."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return isinstance(value, bool | str | bytes) or kind in ("b", "U", "S") or getattr(value, "ndim", 0) != 0


def as_positive(argument: str, value: object) -> float:
    """Return a positive finite Python float from an int or a float."""
    number = as_number(argument, value)
    if number <= 0:
        fail_value(ValueError, argument, value, "a positive number")
    return number


def as_bool(argument: str, value: object) -> bool:
    """Return a Python bool; refuse everything but bools."""
    if not isinstance(value, BOOLS):
        fail(TypeError, argument, f"type {type(value).__name__}", "True or False")
    return bool(value)


def check_choice(argument: str, value: object, choices: Iterable[str]) -> None:
    """Refuse everything but the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        fail_value(ValueError, argument, value, "one of " + ", ".join(map(repr, choices)))


def as_positions(argument: str, value: object, start: object = 0) -> Array:
    """Return positions (..., N), int64 or float64; an int n is start .. start+n-1."""
    positions: Array = _core.read(f"pos {argument}(n) counted", **{argument: value}, start=start)
    return positions


def store_result(out: object, result: Array, dtype: Dtype) -> Array:
    """Return a result in `dtype`, in `out` if it is an array. Numbers beyond its range become infinite."""
    target: Array
    _, target = _core.read("real result() -> real out() typed", result=result, out=out, dtype=dtype)
    with np.errstate(over="ignore"):
        np.copyto(target, result, casting="unsafe")  # no other rule lets bfloat16 become float16
    return target


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
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + axis for axis, length in enumerate(shape) if length == 1 and gradient.shape[extra + axis] != 1
    )
    if axes:
        with without_warnings():
            gradient = gradient.sum(axis=axes, keepdims=True)
    return cast_result(gradient.reshape(shape), dtype)
