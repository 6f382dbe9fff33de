"""The one rotation behind `rope`, `rope_by_table`, `rope_nd` and `xpos`, and its gradient.

A public function checks its arguments (`read_rotation`) and says by which coordinates and frequencies each pair of
channels is rotated (`Angles`). Everything after that is `Rotation.rotate` and `Rotation.vjp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import Array, Dtype, Float64
from .._core_api.door import fail, fail_value
from ..absolute.frequency import as_frequencies
from ..absolute.rotated_pairs import LAYOUTS, Layout, RotatedPairs, cos_sin_table, halves
from .scaling import RopeFrequencies

Frequencies: TypeAlias = npt.ArrayLike | RopeFrequencies
Indices: TypeAlias = npt.NDArray[np.int64]


class RopeGradient(NamedTuple):
    """Gradients of `rope` and of the other rotations.

    Attributes
    ----------
    x : array (..., N, D)
        In the dtype of x.
    positions : float64 array
        In the shape of the argument.
    frequencies : float64 array
        In the shape of the argument.
    """

    x: Array
    positions: Float64
    frequencies: Float64


class Angles(NamedTuple):
    """Angles of the pairs of channels: ``sum_a positions[a] * frequencies[a, k]`` for pair k."""

    positions: Array
    """(..., N), or (A, ..., N) if there are A coordinates."""
    frequencies: Float64
    """(pairs,) if there is one coordinate, else (A, pairs), or (A, H, pairs) for each head."""
    factor: float = 1.0
    """Multiplies cos and sin."""


@dataclass(slots=True)  # not frozen: that would add a fifth to the time of a call on a small array
class Rotation:
    """A rotation whose arguments are checked: which channels of x are rotated, and how their pairs are stored.

    Positions are (..., N) and tables (..., N, rotary_dim), whatever `seq_axis` is.
    """

    x: Array
    seq_axis: int
    rotary_dim: int
    rotary_offset: int
    interleaved: bool
    out_interleaved: bool
    inverse: bool
    argument: str
    """Name of the argument x, for errors."""

    @property
    def dtype(self) -> Dtype:
        """The dtype of the arithmetic."""
        return convert.arithmetic(self.x)

    def frequencies(self, frequencies: Frequencies) -> tuple[Float64, float]:
        """Return rotary_dim // 2 radians per position, and the attention_factor."""
        w, factor = self.unpack(frequencies)
        array = as_frequencies(w)
        if len(array) != self.rotary_dim // 2:
            expected = f"rotary_dim // 2 = {self.rotary_dim // 2}"
            fail(ValueError, "frequencies", f"{len(array)} entries", expected)
        return array, factor

    def unpack(self, frequencies: Frequencies) -> tuple[npt.ArrayLike, float]:
        """Return the array, of any axes, and the attention_factor, which the arithmetic must hold."""
        w, factor = unpack(frequencies)
        if factor != 1.0:
            largest = max(abs(factor), 1 / abs(factor)) if self.inverse else factor
            read.check_range("attention_factor", largest, self.x.dtype)
        return w, factor

    def positions(self, positions: npt.ArrayLike, argument: str = "positions", start: int = 0) -> Array:
        """Return positions (..., N) that fit the sequence."""
        refuse_table(argument, positions)
        # the name of a row takes less time than a text
        row = "rope_positions" if argument == "positions" else f"pos {argument}(n) counted"
        array: Array = _core.read(row, **{argument: positions}, start=start)
        self.check_fits_sequence(argument, array.shape)
        return array

    def coordinates(self, positions: npt.ArrayLike, count: int) -> Array:
        """Return positions (count, ..., N), one row for each coordinate."""
        array: Array = _core.read("pos positions()", positions=positions)
        if array.ndim < 2 or len(array) != count:
            expected = f"({count}, N), ({count}, B, N) or ({count}, B, H, N): one row for each coordinate"
            fail(ValueError, "positions", f"shape {array.shape}", expected)
        self.check_fits_sequence("positions", array.shape[1:])
        return array

    def check_fits_sequence(self, argument: str, shape: tuple[int, ...]) -> None:
        """Refuse positions that are neither (N,) nor broadcast against x axis by axis, with or without its heads."""
        if shape == (self.x.shape[self.seq_axis],):
            return
        lengths = list(self.x.shape[:-1])
        lengths.append(lengths.pop(self.seq_axis if self.seq_axis >= 0 else self.seq_axis + 1))
        if len(shape) == 1:
            lengths = lengths[-1:]
        elif len(shape) == len(lengths) - 1:
            del lengths[-2]
        if len(shape) != len(lengths):
            most = self.x.ndim - 1
            batched = f", or {most - 1} without its axis of heads" if most > 2 else ""
            expected = f"1, or {most} to broadcast against {self.argument}{batched}"
            fail(ValueError, argument, f"{len(shape)} axes", expected)
        if shape[-1] != lengths[-1]:
            expected = f"{lengths[-1]}, the sequence axis of {self.argument} (an int n means 0..n-1, [p] one position)"
            fail(ValueError, argument, f"length {shape[-1]}", expected)
        for length, of_x in zip(shape, lengths, strict=True):
            if length not in (of_x, 1):
                expected = f"a shape that broadcasts against {tuple(lengths)}"
                fail(ValueError, argument, f"shape {shape}", expected)

    def with_heads(self, array: Array, after: int = 0) -> Array:
        """Insert an axis for heads into positions (batch, N); `after` axes follow those of the positions."""
        has_none = 1 < array.ndim - after == self.x.ndim - 2
        return np.expand_dims(array, -2 - after) if has_none else array

    def coordinates_last(self, positions: Array) -> Array:
        """View positions (A, ..., N) as (..., N, A), with an axis for heads."""
        # np.moveaxis takes ten times as long
        return self.with_heads(positions.transpose(*range(1, positions.ndim), 0), 1)

    def table(self, angles: Angles) -> Array:
        """Return [cos | sin] (..., N, rotary_dim) of the angles, times the factor, or of the inverse rotation."""
        positions, frequencies, factor = angles
        cosine_scale, sine_scale = (1 / factor, -1 / factor) if self.inverse else (factor, factor)
        if frequencies.ndim == 1:
            return cos_sin_table(self.with_heads(positions), frequencies, self.dtype, cosine_scale, sine_scale)
        positions = self.coordinates_last(positions)
        if frequencies.ndim == 2:
            coordinate = (frequencies != 0).argmax(axis=0)
            w = frequencies[coordinate, np.arange(frequencies.shape[1])]
            if np.count_nonzero(w) == np.count_nonzero(frequencies):  # a pair has one coordinate
                return self._table_by_coordinate(positions, w, coordinate, sine_scale, cosine_scale)
        else:
            frequencies = np.moveaxis(frequencies, 0, 1)[:, None]  # (H, 1, A, pairs)
        return _core.rotation_table(
            positions=positions,
            frequencies=frequencies,
            sine_scale=sine_scale,
            cosine_scale=cosine_scale,
            t=2 * frequencies.shape[-1],
            dtype=self.dtype,
        )

    def _table_by_coordinate(
        self, positions: Array, frequencies: Float64, coordinate: Indices, sine_scale: float, cosine_scale: float
    ) -> Array:
        """Return the table of pairs that have one coordinate each; positions are (..., N, A)."""
        pairs = len(frequencies)
        table = np.empty((*positions.shape[:-1], 2 * pairs), self.dtype)
        order = coordinate.argsort(kind="stable")
        first = coordinate[order].searchsorted(np.arange(positions.shape[-1] + 1))
        for axis, (begin, end) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
            if begin < end:
                _core.sinusoid(  # Each call clears the columns right of its own.
                    positions=positions[..., axis],
                    frequencies=frequencies[order[begin:end]],
                    out=table,
                    sine=pairs + begin,
                    cosine=begin,
                    step=1,
                    sine_scale=sine_scale,
                    cosine_scale=cosine_scale,
                )
        if (order[:-1] > order[1:]).any():
            place = np.argsort(order)
            table = np.take(table, np.concatenate([place, pairs + place]), axis=-1)
        return table

    def along_sequence(self, table: Array) -> Array:
        """View (..., N, t) so that it broadcasts against x. The table is moved because the rows of x are larger."""
        if self.seq_axis == -2:
            return table
        ndim = self.x.ndim
        return np.moveaxis(table.reshape((1,) * (ndim - table.ndim) + table.shape), -2, self.seq_axis)

    def rotate(self, table: Array, out: Array | None) -> Array:
        """Rotate x by a table [cos | sin] (..., N, rotary_dim)."""
        return self.pairs.rotate(self.x, *halves(self.along_sequence(table)), out)

    @property
    def pairs(self) -> RotatedPairs:
        """The rotated channels."""
        return RotatedPairs(self.rotary_offset, self.rotary_dim // 2, self.interleaved, self.out_interleaved)

    def read_grad(self, grad: npt.ArrayLike) -> Array:
        """Return the cotangent of the result in the dtype of the arithmetic."""
        _, array = _core.read("rope", x=self.x, grad=grad)
        wide: Array = array.astype(self.dtype, copy=False)
        return wide

    def vjp(
        self, grad: npt.ArrayLike, angles: Angles, table: Array | None = None, growth: Float64 | None = None
    ) -> RopeGradient:
        """Return the gradients with respect to x, to `angles.positions` and to the user's frequencies.

        `xpos` has a table of its own. One position adds `growth` (A, pairs) to the logarithm of the size of each pair.
        """
        if table is None:
            table = self.table(angles)
        x, grad = self.x, self.read_grad(grad)
        d_x = self.pairs.x_gradient(grad, *halves(self.along_sequence(table)))
        positions, frequencies = angles.positions, angles.frequencies
        if frequencies.ndim == 1:
            positions, frequencies = positions[None], frequencies[None]
        elif frequencies.ndim == 3:
            frequencies = frequencies[:, :, None]  # (A, H, 1, pairs)
        places = self.coordinates_last(positions)
        d_y, x_rows = (np.moveaxis(array, self.seq_axis, -2) for array in (grad, x))
        d_positions, d_frequencies = self.pairs.angle_gradient(d_y, x_rows, table, places, frequencies, growth)
        d_positions = np.moveaxis(d_positions, -1, 0)
        if self.inverse:
            d_positions, d_frequencies = -d_positions, -d_frequencies
        return RopeGradient(
            convert.result(d_x, x.dtype),
            np.ascontiguousarray(d_positions.reshape(angles.positions.shape)),
            d_frequencies.reshape(angles.frequencies.shape),
        )


def read_rotation(
    x: npt.ArrayLike,
    frequencies: Frequencies | None,
    layout: Layout | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    argument: str = "x",
) -> Rotation:
    """Check the arguments that `rope` and its relatives share; `argument` is their name of x.

    The frequencies are read for the options that they include.
    """
    array: Array = _core.read("rope" if argument == "x" else f"real {argument}(d)", **{argument: x})
    layout = read_layout(layout, frequencies)
    rotary_dim = read_rotary_dim(rotary_dim, frequencies)
    if out_layout is None:
        out_layout = layout
    else:
        read.choice("out_layout", out_layout, LAYOUTS)
    if array.ndim < 2:
        fail(ValueError, argument, f"{array.ndim} axes", "at least 2, a sequence axis and channels")
    seq_axis = read.index("seq_axis", seq_axis, -array.ndim)
    if seq_axis == -1 or seq_axis >= array.ndim - 1:
        fail_value(ValueError, "seq_axis", seq_axis, f"an axis of {argument} before the last of its {array.ndim}")
    width, rotary_offset = array.shape[-1], read.index("rotary_offset", rotary_offset, 0)
    channels = width - rotary_offset if rotary_dim is None else read.index("rotary_dim", rotary_dim, 2)
    if channels % 2 or not 2 <= channels <= width - rotary_offset:
        rest = f"2 or more channels from rotary_offset {rotary_offset} to {width}"
        expected = "an even rotary_dim" if channels % 2 else rest
        if rotary_dim is None:
            fail(ValueError, argument, f"last axis {width}", expected)
        fail_value(ValueError, "rotary_dim", rotary_dim, expected)
    interleaved, out_interleaved = layout == "interleaved", out_layout == "interleaved"
    return Rotation(
        array, seq_axis, channels, rotary_offset, interleaved, out_interleaved, read.flag("inverse", inverse), argument
    )


def read_layout(layout: Layout | None, frequencies: Frequencies | None) -> Layout:
    """Return the layout, which frequencies of `rope_from_config` include."""
    if isinstance(frequencies, RopeFrequencies) and frequencies.layout is not None:
        layout = agree("layout", layout, frequencies.layout)
    if layout is None:
        expected = "'half' (GPT-NeoX, LLaMA in transformers) or 'interleaved' (GPT-J, RoFormer)"
        fail_value(ValueError, "layout", None, f"{expected}; only frequencies of rope_from_config have one")
    read.choice("layout", layout, LAYOUTS)
    return layout


def read_rotary_dim(rotary_dim: int | None, frequencies: Frequencies | None) -> int | None:
    """Return rotary_dim, which frequencies of `rope_from_config` include."""
    if isinstance(frequencies, RopeFrequencies) and frequencies.rotary_dim is not None:
        return agree("rotary_dim", rotary_dim, frequencies.rotary_dim)
    return rotary_dim


Option = TypeVar("Option", Layout, int)


def agree(argument: str, value: Option | None, known: Option) -> Option:
    """Return an option of `rope` that the frequencies include; refuse another one."""
    if value is not None and value != known:
        expected = f"None or {known!r}, the {argument} of frequencies (dataclasses.replace changes it)"
        fail_value(ValueError, argument, value, expected)
    return known


def refuse_table(argument: str, positions: object) -> None:
    """Refuse a pair (cos, sin), two arrays of reals with two axes or more, in place of positions."""
    if isinstance(positions, tuple | list) and len(positions) == 2:
        halves = [getattr(half, "ndim", 0) > 1 and "int" not in str(getattr(half, "dtype", "")) for half in positions]
        if all(halves):
            fail(ValueError, argument, "a table (cos, sin)", "positions; use rope_by_table(x, cos, sin)")


def unpack(frequencies: Frequencies) -> tuple[npt.ArrayLike, float]:
    """Return radians per position, and the attention_factor, which multiplies cos and sin."""
    if isinstance(frequencies, RopeFrequencies):
        factor = read.number("attention_factor", frequencies.attention_factor)
        if factor == 0:
            fail_value(ValueError, "attention_factor", factor, "a number other than 0")
        return frequencies.inv_freq, factor
    if frequencies is None or isinstance(frequencies, int | float):
        kind = TypeError if frequencies is None else ValueError
        expected = "an array (e,), such as rope_frequencies(D); each array is rotated by a call of its own"
        fail_value(kind, "frequencies", frequencies, expected)
    return frequencies, 1.0


def read_frequencies(frequencies: Frequencies) -> tuple[Float64, float]:
    """Return the frequencies of a rotation of 2e channels, which need no x, and their attention_factor."""
    w, factor = unpack(frequencies)
    array = as_frequencies(w)
    if isinstance(frequencies, RopeFrequencies) and frequencies.rotary_dim not in (None, 2 * len(array)):
        fail(ValueError, "frequencies", f"{len(array)} entries", f"rotary_dim // 2 = {frequencies.rotary_dim // 2}")
    return array, factor
