"""Read what a user passes: as an array, a number, a choice.

Lists and DLPack tensors become arrays, dtypes are checked, and positions keep every bit. What the kernels take,
csrc/python/input.c reads; this file has what is no array. Nothing in it depends on the meaning of an operator.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .arrays import F32, LARGEST32, STORAGE_DTYPES, Dtype, is_storage_dtype
from .arrays import Array as Array
from .constants import LARGEST_POSITION
from .door import _named, fail, fail_value, shown
from .tensors import is_tensor, requires_gradient, to_array

MOST_CHANNELS = 1 << 16
"""More heads, or channels of a head, than any model has: an argument from a file may ask for hours of work."""
MOST_NUMBERS = 1 << 30
"""More numbers than any table of a model has: 8 GiB."""
MOST_AXES = 30
"""Most axes of an argument. Broadcasting of NumPy takes 32, and functions add up to two. Kernels take fewer."""
BOOLS, INTEGERS = (bool, np.bool_), (int, np.integer)  # an isinstance of `int | np.integer` would build the union


def array(argument: str, value: object, integers: str = "integers of at most 2**53") -> Array:
    """Return whatever NumPy or DLPack can read as an array, without a copy where there is an array already.

    `integers` says what was expected instead of integers beyond 64 bits.
    """
    found = _read_array(argument, value, integers)
    if found.ndim > MOST_AXES:
        fail(ValueError, argument, f"{found.ndim} axes", f"at most {MOST_AXES}")
    return found


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
        found = np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # the protocols call code of the user, which may raise anything
        raise TypeError(f": {argument} has type {type(value).__name__}; expected an array ({error})") from error
    if found.dtype.kind == "O" and all(type(one) is int for one in found.flat):  # integers beyond int64
        fail(ValueError, argument, max(found.flat, key=abs), integers)
    return found


def check_tensor(argument: str, tensor: Any) -> None:
    """Refuse a tensor whose gradient would be lost, or whose memory is not the CPU's."""
    if requires_gradient(tensor):
        expected = "posenc_bridges.torch, or torch.no_grad()"
        fail(TypeError, argument, "a tensor that requires a gradient", expected)
    if not tensor.is_cpu:
        fail(TypeError, argument, f"a tensor on device {tensor.device}", "one on the CPU")


def data(argument: str, value: object) -> Array:
    """Return an array of a storage dtype in any layout; integers become float64."""
    return _core.read(f"real {argument}()", **{argument: value})


def index(argument: str, value: object, least: int, most: int = LARGEST_POSITION) -> int:
    """Return a Python int from `least` to `most`; refuse bools and floats."""
    try:
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        fail(TypeError, argument, f"type {type(value).__name__}", "an integer")
    if isinstance(value, BOOLS):
        fail(TypeError, argument, f"type {type(value).__name__}", "an integer")
    if found < least:
        fail_value(ValueError, argument, found, f"at least {least}")
    if found > most:  # np.arange(2**63) would return an empty array
        limit = "2**53" if most == LARGEST_POSITION else str(most)
        fail_value(ValueError, argument, found, f"at most {limit}")
    return found


def number(argument: str, value: object) -> float:
    """Return a finite Python float from an int or a float; refuse bools and strings."""
    if type(value) is not float and is_tensor(value):
        check_tensor(argument, value)
    try:
        found = float(value)  # type: ignore[arg-type]
    except OverflowError:
        fail(ValueError, argument, "an integer beyond float64", "a finite number")
    except (TypeError, ValueError):
        found = np.nan
    is_nan_of_float = found != found and isinstance(value, float | np.floating)
    is_number = type(value) in (int, float) or not _holds_no_number(value)
    if not is_number or (found != found and not is_nan_of_float):
        fail(TypeError, argument, f"type {type(value).__name__}", "a number")
    if not math.isfinite(found):
        fail_value(ValueError, argument, found, "a finite number")
    return found


def _holds_no_number(value: object) -> bool:
    """Return whether a value is no number although float() may take it: text, a bool, an array with axes."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return isinstance(value, bool | str | bytes) or kind in ("b", "U", "S") or getattr(value, "ndim", 0) != 0


def positive(argument: str, value: object) -> float:
    """Return a positive finite Python float from an int or a float."""
    found = number(argument, value)
    if found <= 0:
        fail_value(ValueError, argument, value, "a positive number")
    return found


def flag(argument: str, value: object) -> bool:
    """Return a Python bool; refuse everything but bools."""
    if not isinstance(value, BOOLS):
        fail(TypeError, argument, f"type {type(value).__name__}", "True or False")
    return bool(value)


def choice(argument: str, value: object, choices: Iterable[str]) -> None:
    """Refuse everything but the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        fail_value(ValueError, argument, value, "one of " + ", ".join(map(repr, choices)))


def positions(argument: str, value: object, start: object = 0) -> Array:
    """Return positions (..., N), int64 or float64; an int n is start .. start+n-1."""
    return _core.read(f"pos {argument}(n) counted", **{argument: value}, start=start)


def dtype(value: npt.DTypeLike) -> Dtype:
    """Return the argument `dtype` as one of the four storage dtypes, in native byte order."""
    try:
        found = np.dtype(value).newbyteorder("=")
    except (TypeError, ValueError):  # NumPy raises ValueError for a dtype of torch
        fail_value(TypeError, "dtype", value, STORAGE_DTYPES)
    if not is_storage_dtype(found):
        fail_value(TypeError, "dtype", found, STORAGE_DTYPES)
    return found


def result_dtype(value: npt.DTypeLike | None, out: object) -> Dtype:
    """Return the argument `dtype`; without it, the dtype of `out`; without both, float32."""
    if value is None:
        if out is None:
            return F32
        if not isinstance(out, np.ndarray):
            fail(TypeError, "out", f"type {type(out).__name__}", "a NumPy array")
        if not is_storage_dtype(out.dtype):
            fail(TypeError, "out", f"dtype {out.dtype}", STORAGE_DTYPES)
        found: Dtype = out.dtype.newbyteorder("=")
        return found
    return dtype(value)


def check_range(argument: str, size: float, arithmetic: Dtype, largest: float = LARGEST32) -> None:
    """Refuse a number that this arithmetic cannot multiply by, as `convert.operand` does for arrays."""
    if arithmetic.char != "d" and abs(size) > largest:
        fail_value(ValueError, argument, size, f"at most {largest:.3g} in size, or float64")


def check_table_size(numbers: int, **arguments: int) -> None:
    """Refuse a table of more numbers than any model has, under the name of the largest argument."""
    if numbers > MOST_NUMBERS:
        argument = max(arguments, key=arguments.__getitem__)
        expected = f"a table of at most 2**30 numbers, not {shown(numbers)}"
        fail_value(ValueError, argument, arguments[argument], expected)


_core.set_helpers(_named(array), shown)
