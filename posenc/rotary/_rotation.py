"""What `rope` and its relatives prepare alike: which channels turn, by which table, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    as_positions,
    cast_operand,
    check_choice,
    fail,
    fail_value,
    unbroadcast,
)
from ..absolute.frequency import given_frequencies
from .scaling import RopeFrequencies

LAYOUTS = ("half", "interleaved")


def radians(function: str, frequencies: Any) -> tuple[Float64, float]:
    """Radians per position and the factor on cos and sin."""
    if type(frequencies) is np.ndarray and frequencies.dtype is F64 and frequencies.ndim == 1:
        return frequencies, 1.0
    if isinstance(frequencies, RopeFrequencies):
        factor = as_number(function, "attention_factor", frequencies.attention_factor)
        if factor == 0:
            fail_value(ValueError, function, "attention_factor", factor, "a number that is not 0")
        return given_frequencies(function, frequencies.inv_freq), factor
    if isinstance(frequencies, int | float):
        fail_value(ValueError, function, "frequencies", frequencies, "an array (e,), as rope_frequencies(D) makes it")
    return given_frequencies(function, frequencies), 1.0


# x, [cos | sin] of each position as it broadcasts against x, the positions and frequencies that it was made of, first
# channel that turns, interleaved in, interleaved out. A given table is (cos, sin), and made of nothing.
Rotation = tuple[Array, Any, Any, Any, int, bool, bool]
# How a relative of `rope` makes its table: (function, positions, frequencies, x, rotated channels, dtype of the table,
# inverse) -> the table, positions (..., N, A), frequencies (A, pairs): theta_k = sum_a p_a w_ak.
Angles = Callable[[str, Any, Any, Array, int, np.dtype[Any], bool], tuple[Array, Array, Float64]]


def rotation(
    function: str,
    x: Array,
    positions: Any,
    frequencies: Any,
    layout: str,
    rotary_dim: int | None,
    rotary_offset: int,
    inverse: bool,
    out_layout: str | None,
    seq_axis: int,
    angles: Angles | None = None,
    argument: str = "x",
) -> Rotation:
    if type(layout) is not str or layout not in LAYOUTS:  # inline: a call of a small array is all Python
        check_choice(function, "layout", layout, LAYOUTS)
    if out_layout is not None:
        check_choice(function, "out_layout", out_layout, LAYOUTS)
    if x.ndim < 2:
        fail(ValueError, function, argument, f"{x.ndim} axes", "at least 2, a sequence axis and channels")
    rows = x
    if seq_axis != -2:
        x = _sequence_axis(function, x, seq_axis, argument)
    shape = x.shape
    width = shape[-1]
    simple = type(rotary_offset) is int and rotary_offset >= 0
    first = rotary_offset if simple else as_index(function, "rotary_offset", rotary_offset, 0)
    turned = width - first if rotary_dim is None else as_index(function, "rotary_dim", rotary_dim, 2)
    if turned % 2 or not 2 <= turned <= width - first:
        _refuse_width(function, argument, width, rotary_dim, first)
    dtype = F64 if x.dtype.char == "d" else F32
    table: Any
    w: Float64 | None = None
    where: Array | None = None
    if angles is not None:
        table, where, w = angles(function, positions, frequencies, x, turned, dtype, inverse)
    elif frequencies is None:
        table = given_table(function, positions, x, turned // 2, dtype, inverse)
    else:
        w, factor = radians(function, frequencies)
        if len(w) != turned // 2:
            fail(ValueError, function, "frequencies", f"{len(w)} entries", f"rotary_dim // 2 = {turned // 2}")
        where = as_positions(function, "positions", positions)
        if where.shape != shape[-2:-1]:
            fits_sequence(function, where.shape, x)
        cos_scale, sin_scale = (1 / factor, -1 / factor) if inverse else (factor, factor)
        table = np.empty(where.shape + (turned,), dtype)
        _core.sinusoid(function, where, w, None, table, turned // 2, 0, 1, sin_scale, cos_scale)
    interleaved = layout == "interleaved"
    if seq_axis != -2:
        moved = tuple(along_sequence(part, x.ndim, seq_axis) for part in (table if frequencies is None else (table,)))
        table = moved if frequencies is None else moved[0]
    return rows, table, where, w, first, interleaved, interleaved if out_layout is None else out_layout == "interleaved"


def _refuse_width(function: str, argument: str, width: int, rotary_dim: int | None, first: int) -> NoReturn:
    subject, has = (argument, f"last axis {width}") if rotary_dim is None else ("rotary_dim", str(rotary_dim))
    if (width - first if rotary_dim is None else rotary_dim) % 2:
        fail(ValueError, function, subject, has, "an even rotary_dim")
    fail(ValueError, function, subject, has, f"2 or more channels from rotary_offset {first} to {width}")


def _sequence_axis(function: str, x: Array, seq_axis: int, argument: str) -> Array:
    seq_axis = as_index(function, "seq_axis", seq_axis, -x.ndim)
    axis = seq_axis + x.ndim if seq_axis < 0 else seq_axis
    if not 0 <= axis < x.ndim - 1:
        fail_value(ValueError, function, "seq_axis", seq_axis, f"an axis of {argument} before the last of its {x.ndim}")
    return np.moveaxis(x, axis, -2)


def along_sequence(table: Array, ndim: int, seq_axis: int) -> Array:
    """(..., N, t) as it broadcasts against x (ndim axes) with its sequence elsewhere. Moved is what is small: rows of x
    stay in the order of memory."""
    if seq_axis == -2:
        return table
    return np.moveaxis(table.reshape((1,) * (ndim - table.ndim) + table.shape), -2, seq_axis)


def fits_sequence(function: str, shape: tuple[int, ...], x: Array, argument: str = "positions") -> None:
    """positions are (N,), or have as many axes as x less one and broadcast against them."""
    others = x.shape[:-1]
    if len(shape) not in (1, len(others)):
        fail(
            ValueError,
            function,
            argument,
            f"{len(shape)} axes",
            f"1, or {len(others)} to broadcast against x, per batch (B, 1, N)",
        )
    if shape[-1] != others[-1]:
        expected = f"{others[-1]}, the sequence axis of x (an int n means 0..n-1, [p] one position)"
        fail(ValueError, function, argument, f"length {shape[-1]}", expected)
    if len(shape) > 1:
        for mine, length in zip(shape[:-1], others[:-1], strict=True):
            if mine not in (1, length):
                fail(ValueError, function, argument, f"shape {shape}", f"to broadcast against {others}")


def given_table(
    function: str, table: Any, x: Array, half: int, dtype: np.dtype[Any], inverse: bool
) -> tuple[Array, Array]:
    """A pair (cos, sin) as arrays that the kernels read."""
    if not (isinstance(table, tuple | list) and len(table) == 2):
        expected = f"those of rope_frequencies({2 * half}), or a pair (cos, sin) in place of positions"
        fail(TypeError, function, "frequencies", "nothing", expected)
    cos = _table_part(function, "cos", table[0], x, half, F64 if inverse else dtype)
    sin = _table_part(function, "sin", table[1], x, half, F64 if inverse else dtype)
    if not inverse:
        return cos, sin
    norm = cos**2 + sin**2
    if not norm.all():
        fail(ValueError, function, "positions", "a table with cos = sin = 0", "a table that can be inverted")
    return (cos / norm).astype(dtype, copy=False), (-sin / norm).astype(dtype, copy=False)


def _table_part(function: str, argument: str, part: Any, x: Array, half: int, dtype: np.dtype[Any]) -> Array:
    array = as_data(function, argument, part)
    shape = array.shape
    if len(shape) < 2 or shape[-1] != half:
        fail(ValueError, function, argument, f"shape {shape}", f"(..., N, rotary_dim // 2 = {half})")
    if shape[:-1] != x.shape[-2:-1]:
        fits_sequence(function, shape[:-1], x, argument)
    return array if array.dtype is dtype else array.astype(dtype, copy=False)


def turned_back(
    function: str, grad: Any, turn: Rotation, seq_axis: int, growth: Float64 | None = None
) -> tuple[Array, Float64, Float64]:
    """Gradients with respect to x, to positions as (..., N, A) and to frequencies as (A, pairs)."""
    rows, table, where, w, *layouts = turn
    along = along_sequence(where, rows.ndim, seq_axis)
    d_x, d_rows, d_w = row_gradients(function, grad, (rows, table, along, w, *layouts), growth)
    return d_x.astype(rows.dtype, copy=False), unbroadcast(np.moveaxis(d_rows, seq_axis, -2), where.shape, F64), d_w


def row_gradients(
    function: str, grad: Any, turn: Rotation, growth: Float64 | None = None
) -> tuple[Array, Float64, Float64]:
    """The same with positions as they broadcast against x, their gradient for each row of x."""
    rows, table, where, w, *layouts = turn
    given, d_x = cotangent(function, grad, rows, table.dtype), np.empty(rows.shape, table.dtype)
    d_rows, d_w = np.empty((*rows.shape[:-1], where.shape[-1])), np.empty(w.shape)
    data = cast_operand(rows, table.dtype)
    _core.rope_vjp(function, given, data, table, where, w, growth, d_x, d_rows, d_w, *layouts)
    return d_x, d_rows, d_w


def cotangent(function: str, grad: Any, x: Array, dtype: np.dtype[Any]) -> Array:
    given = as_data(function, "grad", grad)
    if given.shape != x.shape:
        fail(ValueError, function, "grad", f"shape {given.shape}", str(x.shape))
    return given.astype(dtype, copy=False)
