"""Arrays of operators: read their axes from csrc/ops.def, copy the user's arrays, and check shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import F32, F64, Array, Dtype, Float64, cast_operand, fail, unbroadcast
from .._core_api.constants import VECTOR_PADDING
from .terms import Operands, Options, Term

Arrays = TypeVar("Arrays", bound=NamedTuple)


class _Row(NamedTuple):
    """The arrays and gradients of an operator, read from its rows of csrc/ops.def."""

    arrays: dict[str, str]
    """The axes of each array that the user passes, one letter per axis."""
    gradients: dict[str, tuple[str, bool]]
    """The axes of each gradient, and whether it is always float64; otherwise it has the kernel's arithmetic type."""
    has_vjp: bool
    """True if a row of its own has the gradients as results, which attention sums over the batch."""


@cache
def _read_row(row: str) -> _Row:
    """Return the arrays of a row. Operands marked @ (supplied by the tile) or # (derived in Python) are left out."""
    table = _core.table()
    own = table.get(row, "")
    vjp = table.get(f"{row}_vjp", own)
    inputs, outputs = own.partition("->")[0], vjp.partition("->")[2]
    arrays, results = (
        re.findall(r"(\w+) \+?(\w+)([^\w\s(]*)\(((?:\w(?:,\w)*)?)\)", part) for part in (inputs, outputs)
    )
    return _Row(
        {name: axes.replace(",", "") for _, name, marks, axes in arrays if not {"@", "#"} & {*marks}},
        {name: (axes.replace(",", ""), kind == "f64") for kind, name, _, axes in results},
        vjp is not own,
    )


def array_axes(row: str) -> dict[str, str]:
    """Return the axes of each array of a row of csrc/ops.def, one letter per axis; {} if the table has no such row."""
    return _read_row(row).arrays


def row_gradients(row: str) -> tuple[str, ...]:
    """Return the names of the gradients of an operator's row of csrc/ops.def: its results, or those of its row _vjp."""
    return tuple(_read_row(row).gradients)


def zero_gradients(term: Term, batch: tuple[int, ...], heads: int, slots: int, dtype: Dtype) -> dict[str, Array]:
    """Return arrays of zeros, to which a kernel adds the gradients of a row that the term reads.

    They are the gradients of the row's first operands, in order. An operand that is None gets no array. The axis t has
    `slots` sums for each head. If the letter of a gradient's axis occurs in no operand, the axis is as long as the axis
    at the same place of the gradient's own operand, rounded up to whole vectors.
    """
    found: dict[str, Array] = {}
    arrays, gradients, has_vjp = _read_row(term.row)
    letters = "".join(arrays.values())
    for (name, (axes, is_float64)), operand in zip(gradients.items(), term.operands.values(), strict=False):
        if operand is None or name not in term.reads:
            continue
        shape = [] if has_vjp else [*batch]
        for axis, length in zip(axes, operand.shape[operand.ndim - len(axes) :], strict=True):
            padded = -(-length // VECTOR_PADDING) * VECTOR_PADDING
            shape.append(heads * slots if axis == "t" else length if axis in letters else padded)
        found[name] = np.zeros(shape, F64 if is_float64 else dtype)
    return found


def has_slots(row: str, gradient: str) -> bool:
    """Return whether a gradient begins with the axis t: its batch axes and slots are to be summed."""
    return _read_row(row).gradients[gradient][0][:1] == "t"


def count_heads(row: str, arrays: tuple[object, ...], options: Options) -> int | None:
    """Return the number of heads: the option `heads`, or the length of an axis h. Return None if there is neither."""
    if "heads" in options:
        return int(options["heads"] or 1)
    for axes, array in zip(array_axes(row).values(), arrays, strict=False):
        if isinstance(array, np.ndarray) and "h" in axes and array.ndim >= len(axes):
            return int(array.shape[axes.index("h") - len(axes)])
    return None


def copy_parameters(kind: type[Arrays], row: str, *parameters: npt.ArrayLike) -> tuple[Arrays, tuple[Dtype, ...]]:
    """Return float64 copies of the user's arrays, and the dtypes of the user's arrays.

    The row of csrc/ops.def states the rank of each array. Axes with the same letter must have the same length.
    """
    axes = array_axes(row)
    signature = ", ".join(f"real {name}:({','.join(letters)})" for name, letters in axes.items())
    arrays = _core.read(row, signature, **dict(zip(axes, parameters, strict=True)))
    kept = arrays if isinstance(arrays, tuple) else (arrays,)
    copies = [copy_finite(row, name, array).astype(F64, copy=False) for name, array in zip(axes, kept, strict=True)]
    return kind._make(copies), tuple(array.dtype for array in kept)


def copy_finite(function: str, argument: str, array: Array) -> Array:
    """Return a contiguous copy of an array in native byte order. Refuse NaN and infinity."""
    kept = np.array(array, array.dtype.newbyteorder("="), order="C")
    if not np.isfinite(kept.astype(F32 if kept.itemsize == 2 else kept.dtype, copy=False)).all():
        fail(ValueError, function, argument, "NaN or infinity", "finite numbers")
    return kept


def cast_arrays(function: str, arrays: Mapping[str, Array | None], dtype: Dtype) -> Operands:
    """Return arrays in the dtype of the arithmetic."""
    return {
        name: None if array is None else cast_operand(function, name, array, dtype).astype(dtype, copy=False)
        for name, array in arrays.items()
    }


def read_cotangent(function: str, grad: Array, shape: tuple[int, ...]) -> Float64:
    """Return `grad` summed over the axes before those of the matrix, which has this shape."""
    return unbroadcast(check_cotangent(function, grad, shape).astype(F64, copy=False), shape, F64)


def check_cotangent(function: str, grad: Array, shape: tuple[int, ...]) -> Array:
    """Return `grad`. Raise ValueError unless its last axes have the lengths `shape`, that of the matrix."""
    if grad.ndim < len(shape) or grad.shape[grad.ndim - len(shape) :] != shape:
        fail(ValueError, function, "grad", f"shape {grad.shape}", f"(..., {', '.join(map(str, shape))})")
    return grad
