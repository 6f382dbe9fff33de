"""Steps that `rope` and its relatives share: check the arguments, tabulate cos and sin, rotate, differentiate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Float64,
    as_array,
    as_data,
    as_grad,
    as_index,
    as_number,
    as_positions,
    cast_operand,
    cast_result,
    check_choice,
    check_range,
    compute_dtype,
    fail,
    fail_value,
    finish_out,
    prepare_out,
    unbroadcast,
    without_warnings,
)
from ..absolute.frequency import as_frequencies
from .scaling import RopeFrequencies

Layout = Literal["half", "interleaved"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Frequencies: TypeAlias = npt.ArrayLike | RopeFrequencies
Table: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""The caller's (cos, sin)."""


@dataclass(slots=True)  # not frozen: that would add a fifth to the time of a call on a small array
class Rotation:
    """A rotation whose arguments are checked: which channels of x are rotated, and how their pairs are stored.

    Positions are (..., N) and tables (..., N, rotary_dim), whatever `seq_axis` is.
    """

    function: str
    """Name of the public function, for errors."""
    x: Array
    seq_axis: int
    rotary_dim: int
    rotary_offset: int
    interleaved: bool
    out_interleaved: bool
    inverse: bool
    argument: str
    """Name of the argument x, for errors."""

    def frequencies(self, frequencies: Frequencies, divisor: int = 2) -> tuple[Float64, float]:
        """Return rotary_dim // divisor radians per position, and the attention_factor."""
        array, factor = read_frequencies(self.function, frequencies)
        if len(array) != self.rotary_dim // divisor:
            expected = f"rotary_dim // {divisor} = {self.rotary_dim // divisor}"
            fail(ValueError, self.function, "frequencies", f"{len(array)} entries", expected)
        if factor != 1.0:
            largest = max(abs(factor), 1 / abs(factor)) if self.inverse else factor
            check_range(self.function, "attention_factor", largest, self.x.dtype)
        return array, factor

    def positions(self, positions: npt.ArrayLike | Table, argument: str = "positions", start: int = 0) -> Array:
        """Return positions that fit the sequence."""
        if isinstance(positions, (tuple, list)) and _is_table(positions):
            expected = "positions, because frequencies are passed too"
            fail(ValueError, self.function, argument, "a table (cos, sin)", expected)
        array = as_positions(self.function, argument, positions, start)
        if array.shape != (self.x.shape[self.seq_axis],):
            self.check_fits_sequence(argument, array.shape)
        return array

    def check_fits_sequence(self, argument: str, shape: tuple[int, ...]) -> None:
        """Refuse positions that are neither (N,) nor broadcast against x axis by axis."""
        x = self.x if self.seq_axis == -2 else np.moveaxis(self.x, self.seq_axis, -2)
        lengths = x.shape[:-1]
        if len(shape) not in (1, len(lengths)):
            expected = f"1, or {len(lengths)} to broadcast against {self.argument}, per batch (B, 1, N)"
            fail(ValueError, self.function, argument, f"{len(shape)} axes", expected)
        if shape[-1] != lengths[-1]:
            expected = f"{lengths[-1]}, the sequence axis of {self.argument} (an int n means 0..n-1, [p] one position)"
            fail(ValueError, self.function, argument, f"length {shape[-1]}", expected)
        if any(length not in (1, of_x) for length, of_x in zip(shape[:-1], lengths, strict=False)):
            expected = f"a shape that broadcasts against {lengths}"
            fail(ValueError, self.function, argument, f"shape {shape}", expected)

    def table(self, positions: Array, frequencies: Float64, factor: float) -> Array:
        """Return [cos | sin] of ``positions * frequencies``, times `factor`, or of the inverse rotation."""
        pairs = len(frequencies)
        table = np.empty(positions.shape + (2 * pairs,), F64 if self.x.dtype.char == "d" else F32)
        sin_scale, cos_scale = (-1 / factor, 1 / factor) if self.inverse else (factor, factor)
        _core.sinusoid(
            self.function, positions=positions, frequencies=frequencies, out=table,
            sine=pairs, cosine=0, step=1, sine_scale=sin_scale, cosine_scale=cos_scale,
        )  # fmt: skip
        return table

    def along_sequence(self, table: Array) -> Array:
        """View (..., N, t) so that it broadcasts against x. The table is moved because the rows of x are larger."""
        if self.seq_axis == -2:
            return table
        ndim = self.x.ndim
        return np.moveaxis(table.reshape((1,) * (ndim - table.ndim) + table.shape), -2, self.seq_axis)

    def rotate(self, table: Array, out: Array | None) -> Array:
        """Rotate x by a table [cos | sin]."""
        x = self.x
        if out is None and x.dtype.isnative:
            result = buffer = np.empty(x.shape, x.dtype)
        else:
            result, buffer = prepare_out(self.function, out, x.shape, x.dtype, (x,), in_place=True)
        if self.seq_axis != -2:
            table = self.along_sequence(table)
        _core.rope(
            self.function, x=x, table=table, out=buffer, offset=self.rotary_offset,
            interleaved=self.interleaved, out_interleaved=self.out_interleaved, caller_out=out is not None,
        )  # fmt: skip
        return result if result is buffer else finish_out(result, buffer)

    def read_grad(self, grad: npt.ArrayLike) -> Array:
        """Return the cotangent of the result in the dtype of the arithmetic."""
        dtype = compute_dtype(self.x)
        grad = as_grad(self.function, grad, self.x.shape)
        return cast_operand(self.function, "grad", grad, dtype).astype(dtype, copy=False)

    def vjp(
        self, grad: npt.ArrayLike, table: Array, positions: Array, frequencies: Float64, growth: Float64 | None = None
    ) -> tuple[Array, Float64, Float64]:
        """Return the gradients with respect to x, to positions (..., N, A) and to frequencies (A, pairs).

        Pair k is rotated by ``sum_a positions[..., a] * frequencies[a, k]``. In `xpos` one position adds `growth` to
        the logarithm of the size of each pair.
        """
        x, grad = self.x, self.read_grad(grad)
        d_x, d_frequencies = np.empty(x.shape, grad.dtype), np.empty(frequencies.shape)
        d_rows = np.empty((*x.shape[:-1], positions.shape[-1]))
        _core.rope_vjp(
            self.function, grad=grad, x=cast_operand(self.function, self.argument, x, grad.dtype),
            table=self.along_sequence(table), positions=self.along_sequence(positions), frequencies=frequencies,
            growth=growth, dx=d_x, dpositions=d_rows, dfrequencies=d_frequencies, offset=self.rotary_offset,
            interleaved=self.interleaved, out_interleaved=self.out_interleaved,
        )  # fmt: skip
        d_positions = unbroadcast(np.moveaxis(d_rows, self.seq_axis, -2), positions.shape, F64)
        sign = -1.0 if self.inverse else 1.0
        return cast_result(d_x, x.dtype), sign * d_positions, sign * d_frequencies


def read_rotation(
    function: str,
    x: npt.ArrayLike,
    layout: Layout,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    argument: str = "x",
) -> Rotation:
    """Check the arguments that `rope` and its relatives share; `argument` is their name of x."""
    # A call on a small array is mostly Python, so the checks that most arguments pass are inline.
    if type(x) is not np.ndarray or x.dtype.char not in "efd":
        x = as_data(function, argument, x)
    if type(layout) is not str or layout not in LAYOUTS:
        check_choice(function, "layout", layout, LAYOUTS)
    if out_layout is not None:
        check_choice(function, "out_layout", out_layout, LAYOUTS)
    if x.ndim < 2:
        fail(ValueError, function, argument, f"{x.ndim} axes", "at least 2, a sequence axis and channels")
    if seq_axis != -2:
        seq_axis = as_index(function, "seq_axis", seq_axis, -x.ndim)
        if seq_axis == -1 or seq_axis >= x.ndim - 1:
            expected = f"an axis of {argument} before the last of its {x.ndim}"
            fail_value(ValueError, function, "seq_axis", seq_axis, expected)
    width = x.shape[-1]
    if type(rotary_offset) is not int or rotary_offset < 0:
        rotary_offset = as_index(function, "rotary_offset", rotary_offset, 0)
    channels = width - rotary_offset if rotary_dim is None else as_index(function, "rotary_dim", rotary_dim, 2)
    if channels % 2 or not 2 <= channels <= width - rotary_offset:
        _fail_width(function, argument, width, rotary_dim, rotary_offset)
    interleaved = layout == "interleaved"
    out_interleaved = interleaved if out_layout is None else out_layout == "interleaved"
    return Rotation(function, x, seq_axis, channels, rotary_offset, interleaved, out_interleaved, inverse, argument)


def _fail_width(function: str, argument: str, width: int, rotary_dim: int | None, rotary_offset: int) -> NoReturn:
    channels = width - rotary_offset if rotary_dim is None else rotary_dim
    even = "an even rotary_dim"
    expected = even if channels % 2 else f"2 or more channels from rotary_offset {rotary_offset} to {width}"
    if rotary_dim is None:
        fail(ValueError, function, argument, f"last axis {width}", expected)
    fail_value(ValueError, function, "rotary_dim", rotary_dim, expected)


def _is_table(pair: tuple[Any, ...] | list[Any]) -> bool:
    """Return whether a pair is (cos, sin) rather than a list of positions: arrays of reals with two axes or more."""
    if len(pair) != 2 or any(isinstance(half, list | tuple | int | float) for half in pair):
        return False
    cos, sin = (as_array("", "", half) for half in pair)
    return min(cos.ndim, sin.ndim) > 1 and "i" not in (cos.dtype.kind, sin.dtype.kind)


def read_frequencies(function: str, frequencies: Frequencies) -> tuple[Float64, float]:
    """Return radians per position, and the attention_factor, which multiplies cos and sin."""
    if type(frequencies) is np.ndarray and frequencies.dtype is F64 and frequencies.ndim == 1:
        return frequencies, 1.0
    if isinstance(frequencies, RopeFrequencies):
        factor = as_number(function, "attention_factor", frequencies.attention_factor)
        if factor == 0:
            fail_value(ValueError, function, "attention_factor", factor, "a number other than 0")
        return as_frequencies(function, frequencies.inv_freq), factor
    if isinstance(frequencies, int | float):
        fail_value(ValueError, function, "frequencies", frequencies, "an array (e,), such as rope_frequencies(D)")
    return as_frequencies(function, frequencies), 1.0


def read_table(rotation: Rotation, table: npt.ArrayLike | Table, start: int = 0) -> tuple[Array, Array]:
    """Return the caller's table (cos, sin) in its dtypes."""
    if not (isinstance(table, tuple | list) and len(table) == 2):
        expected = f"rope_frequencies({rotation.rotary_dim}), or a pair (cos, sin) in place of positions"
        fail_value(TypeError, rotation.function, "frequencies", None, expected)
    if start:
        fail_value(TypeError, rotation.function, "start", start, "an int n for positions, not a table")
    return _read_half(rotation, "cos", table[0]), _read_half(rotation, "sin", table[1])


def _read_half(rotation: Rotation, argument: str, half: npt.ArrayLike) -> Array:
    array = as_data(rotation.function, argument, half)
    pairs = rotation.rotary_dim // 2
    if array.ndim < 2 or array.shape[-1] != pairs:
        fail(ValueError, rotation.function, argument, f"shape {array.shape}", f"(..., N, rotary_dim // 2 = {pairs})")
    if array.shape[:-1] != (rotation.x.shape[rotation.seq_axis],):
        rotation.check_fits_sequence(argument, array.shape[:-1])
    return array


def cast_table(rotation: Rotation, cos: Array, sin: Array) -> tuple[Array, Array]:
    """Return cos and sin, or those of the inverse rotation, along the sequence axis of x in the arithmetic's dtype."""
    dtype = compute_dtype(rotation.x)
    if rotation.inverse:
        cos, sin = cos.astype(F64), sin.astype(F64)
        with without_warnings():
            norm = cos**2 + sin**2
        if not norm.all():
            fail(
                ValueError, rotation.function, "positions", "a pair with cos = sin = 0", "a table that can be inverted"
            )
        with without_warnings():
            cos, sin = cos / norm, -sin / norm
    if cos.dtype is not dtype:
        cos = cast_operand(rotation.function, "cos", cos, dtype).astype(dtype, copy=False)
    if sin.dtype is not dtype:
        sin = cast_operand(rotation.function, "sin", sin, dtype).astype(dtype, copy=False)
    if rotation.seq_axis == -2:
        return cos, sin
    return rotation.along_sequence(cos), rotation.along_sequence(sin)
