"""What `rope` and its relatives share: their options, and their gradients.

C checks the other arguments, in the words of `_core.rope_positions`, and rotates: by positions, or by a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import Array, Float64
from .._core_api.door import fail, fail_value
from ..absolute.frequency import as_frequencies
from ..absolute.rotated_pairs import Layout, angle_gradient, halves, pair_gradient, with_heads
from .scaling import RopeFrequencies

Frequencies: TypeAlias = npt.ArrayLike | RopeFrequencies


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


# ---- options ----

Options: TypeAlias = dict[str, Any]
"""Parameters of `_core.rope` and `_core.rope_positions` by name."""


def channels(
    layout: Layout | None, rotary_dim: int | None, rotary_offset: int, out_layout: Layout | None, seq_axis: int
) -> Options:
    """Return which channels are rotated, and how their pairs are stored; refuse None as layout. C checks the rest."""
    if layout is None:
        expected = "'half' (GPT-NeoX, LLaMA in transformers) or 'interleaved' (GPT-J, RoFormer)"
        fail_value(ValueError, "layout", None, f"{expected}; only frequencies of rope_from_config have one")
    return {
        "layout": layout,
        "rotary_offset": rotary_offset,
        "out_layout": out_layout,
        "rotary_dim": rotary_dim,
        "seq_axis": seq_axis,
    }


def read_options(
    frequencies: Frequencies,
    layout: Layout | None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
) -> tuple[npt.ArrayLike, float, Options]:
    """Return radians per position, the attention_factor, and the channels. Frequencies of a config know some."""
    w, factor = unpack(frequencies)
    if isinstance(frequencies, RopeFrequencies):
        layout = _agree("layout", layout, frequencies.layout)
        rotary_dim = _agree("rotary_dim", rotary_dim, frequencies.rotary_dim)
    return w, factor, channels(layout, rotary_dim, rotary_offset, out_layout, seq_axis)


Option = TypeVar("Option", Layout, int)


def _agree(argument: str, value: Option | None, known: Option | None) -> Option | None:
    """Return an option of `rope` that the frequencies may include; refuse another one."""
    if known is not None and value is not None and value != known:
        expected = f"None or {known!r}, the {argument} of frequencies (dataclasses.replace changes it)"
        fail_value(ValueError, argument, value, expected)
    return value if known is None else known


def refuse_table(positions: object, argument: str = "positions") -> None:
    """Refuse a pair (cos, sin), two arrays of reals with two axes or more, in place of positions."""
    if isinstance(positions, tuple | list) and len(positions) == 2:
        halves = [getattr(half, "ndim", 0) > 1 and "int" not in str(getattr(half, "dtype", "")) for half in positions]
        if all(halves):
            fail(ValueError, argument, "a table (cos, sin)", "positions; use rope_by_table(x, cos, sin)")


def unpack(frequencies: Frequencies) -> tuple[npt.ArrayLike, float]:
    """Return radians per position, and the attention_factor, which multiplies cos and sin."""
    if isinstance(frequencies, RopeFrequencies):
        return frequencies.inv_freq, frequencies.attention_factor
    if frequencies is None or isinstance(frequencies, int | float):
        kind = TypeError if frequencies is None else ValueError
        expected = "an array (e,), such as rope_frequencies(D); each array is rotated by a call of its own"
        fail_value(kind, "frequencies", frequencies, expected)
    return frequencies, 1.0


def read_frequencies(frequencies: Frequencies) -> tuple[Float64, float]:
    """Return the frequencies of a rotation of 2e channels, which need no x, and their attention_factor."""
    w, factor = unpack(frequencies)
    array, factor = as_frequencies(w), read.number("attention_factor", factor)
    if factor == 0:
        fail_value(ValueError, "attention_factor", factor, "a number other than 0")
    if isinstance(frequencies, RopeFrequencies) and frequencies.rotary_dim not in (None, 2 * len(array)):
        fail(ValueError, "frequencies", f"{len(array)} entries", f"rotary_dim // 2 = {frequencies.rotary_dim // 2}")
    return array, factor


# ---- gradients ----


def gradient(
    grad: npt.ArrayLike,
    x: Array,
    options: Options,
    table: Array,
    positions: Array,
    frequencies: Float64,
    growth: Float64 | None = None,
) -> RopeGradient:
    """Return the gradients of a rotation with respect to x, to positions (A, ..., N) and frequencies (A, ..., pairs).

    The table [cos | sin] is that of the sums of positions times frequencies. One position adds `growth` (1, pairs) to
    the logarithm of the size of each pair.
    """
    seq_axis, (cos, sin) = options["seq_axis"], halves(table)
    _, d_y = _core.read("real x(n,d) -> real out(n,d)", x=x, grad=grad, seq_axis=seq_axis)
    layouts = options["layout"], options["out_layout"] or options["layout"]
    back = {**options, "layout": layouts[1], "out_layout": layouts[0]}
    d_x = _core.rope(x=d_y.astype(table.dtype, copy=False), cos=cos, sin=-sin, **back)
    rows, d_y = np.moveaxis(x, seq_axis, -2), np.moveaxis(d_y, seq_axis, -2)
    cos, sin = with_heads(cos, x.ndim - 1, 1), with_heads(sin, x.ndim - 1, 1)
    d_angle, d_size = pair_gradient(d_y, rows, cos, sin, layouts, options["rotary_offset"])
    d_positions, d_w = angle_gradient(d_angle, positions, frequencies)
    if growth is not None:
        d_positions += angle_gradient(d_size, positions, growth)[0]
    return RopeGradient(convert.result(d_x, x.dtype), d_positions, d_w)
