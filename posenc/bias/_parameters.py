"""Parameters of the operators: ranks and lengths from the table, copies of the user's arrays, checks of shapes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import F64, Array, as_data, as_parameter, cast_operand, fail


@cache
def array_axes(row: str) -> dict[str, str]:
    """Return the axes of each array of a row of csrc/ops.def, one letter per axis.

    Operands with the mark @ (supplied by the tile) or # (derived in Python) are no arrays of the operator.
    """
    inputs = _core.table()[row].split("->")[0]
    found = re.findall(r"(\w+)([?~!@#]*)\(((?:\w(?:,\w)*)?)\)", inputs)
    return {name: axes.replace(",", "") for name, marks, axes in found if not {"@", "#"} & {*marks}}


@cache
def _row_names(row: str, is_result: bool) -> tuple[str, ...]:
    inputs, _, results = _core.table()[row].split(";")[0].partition("->")
    operands = results if is_result else inputs
    return tuple(name for name, marks in re.findall(r"(\w+)([?~!@#]*)\(", operands) if "@" not in marks)


def operands_by_name(row: str, *operands: Array | None) -> dict[str, Array | None]:
    """Return operands by their names in a row of csrc/ops.def, whose order they have; those with the mark @ are left
    out."""
    return dict(zip(_row_names(row, False), operands, strict=False))


def row_results(row: str) -> tuple[str, ...]:
    """Return the names of the results of a row of csrc/ops.def, in its order, without those with the mark @."""
    return _row_names(row, True)


def copy_parameters(row: str, *parameters: Any) -> tuple[tuple[Array, ...], tuple[np.dtype[Any], ...]]:
    """Return float64 copies of the user's arrays for a row, and their dtypes; the row gives ranks and equal lengths."""
    dtypes, kept = [], []
    lengths: dict[str, int] = {}
    for (argument, axes), parameter in zip(array_axes(row).items(), parameters, strict=True):
        dtypes.append(as_data(row, argument, parameter).dtype)
        array = as_parameter(row, argument, parameter, len(axes))
        for axis, length in zip(axes, array.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                fail(ValueError, row, argument, f"length {length}", str(lengths[axis]))
        kept.append(array)
    return tuple(kept), tuple(dtypes)


def check_heads(function: str, name: str, heads: int, shape: tuple[int, ...], arrays: tuple[Any, ...] = ()) -> None:
    """Refuse an operator that has not as many heads as the logits of `shape` (..., H, N, M)."""
    if heads != shape[-3]:
        is_transposed = any(np.ndim(array) == 2 and array.shape == (shape[-3], heads) for array in arrays)
        hint = "; its table (rows, heads) seems to be transposed" if is_transposed else ""
        fail(ValueError, function, "bias", f"{heads} heads ({name})", f"{shape[-3]}, axis -3 of q{hint}")


def check_arrays(function: str, arrays: tuple[Any, ...], dtype: np.dtype[Any]) -> None:
    """Refuse parameters with numbers beyond float32 for arithmetic in float32, although the bias is float64 inside."""
    if dtype is not F64:
        for name, array in zip(arrays._fields, arrays, strict=True):  # type: ignore[attr-defined]
            cast_operand(function, name, array, dtype)


def check_cotangent(function: str, grad: Array, shape: tuple[int, ...]) -> Array:
    """Return `grad`, whose last axes must be those of the matrix."""
    if grad.ndim < len(shape) or grad.shape[grad.ndim - len(shape) :] != shape:
        fail(ValueError, function, "grad", f"shape {grad.shape}", f"(..., {', '.join(map(str, shape))})")
    return grad
