"""Rotary embedding by more than one coordinate: images, and text with images and video."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._call import (
    F64,
    I64,
    Array,
    Float64,
    as_data,
    as_index,
    as_reals,
    check_positions,
    fail,
    finish,
    one_of,
    output,
    reduce_to,
)
from .pairs import (
    Rotation,
    along_sequence,
    cotangent,
    fits_sequence,
    radians,
    rotation,
    row_gradients,
    turned_back,
)
from .rotation import RopeGradient

__all__ = ["mrope", "mrope_vjp", "rope_2d", "rope_2d_vjp"]

AXES = ("concat", "blocks", "alternate")
Indices = npt.NDArray[np.int64]


def _coordinates(function: str, positions: Any, count: int, x: Array) -> Array:
    """positions (count, ..., N): one row for each coordinate."""
    array = as_reals(function, "positions", positions)
    if array.ndim < 2 or len(array) != count:
        expected = f"({count}, N), or ({count}, ...) with as many axes as x: one row for each coordinate"
        fail(ValueError, function, "positions", f"shape {array.shape}", expected)
    fits_sequence(function, array.shape[1:], x)
    check_positions(function, "positions", array)
    return array


def _scales(factor: float, inverse: bool) -> tuple[float, float]:
    """Factors on sin and cos."""
    return (-1 / factor, 1 / factor) if inverse else (factor, factor)


def _counted(function: str, frequencies: Any, count: int, what: str) -> tuple[Float64, float]:
    w, factor = radians(function, frequencies)
    if len(w) != count:
        fail(ValueError, function, "frequencies", f"{len(w)} entries", f"{what} = {count}")
    return w, factor


def _table_by_pair(
    function: str, where: Array, w: Float64, of_pair: Indices, scales: tuple[float, float], dtype: np.dtype[Any]
) -> tuple[Array, Array, Float64]:
    """Pair k turns by where[of_pair[k]] * w[k]: the table, positions (..., N, A) and frequencies (A, pairs)."""
    e = len(w)
    order = np.argsort(of_pair, kind="stable")
    table = np.empty((*where.shape[1:], 2 * e), dtype)
    first = 0
    for rows, sharing in zip(where, np.bincount(of_pair, minlength=len(where)).tolist(), strict=True):
        if sharing:  # from left to right: each call clears what is right of its columns
            mine = w[order[first : first + sharing]]
            _core.sinusoid(function, rows, mine, None, table, e + first, first, 1, *scales)
        first += sharing
    if (order[:-1] > order[1:]).any():
        place = np.argsort(order)
        table = np.take(table, np.concatenate([place, e + place]), axis=-1)
    spread = np.zeros((len(where), e))
    spread[of_pair, np.arange(e)] = w
    return table, np.moveaxis(where, 0, -1), spread


def _gradient(function: str, grad: Any, turn: Rotation, seq_axis: int, inverse: bool) -> tuple[Array, Float64, Float64]:
    """Gradients to x, to positions (A, ..., N), and to frequencies (A, pairs)."""
    d_x, d_positions, d_spread = turned_back(function, grad, turn, seq_axis)
    sign = -1.0 if inverse else 1.0
    return d_x, sign * np.ascontiguousarray(np.moveaxis(d_positions, -1, 0)), sign * d_spread


# ---- two coordinates ----


def _of_2d(axes: str, e: int) -> tuple[Indices, Indices]:
    """Coordinate and frequency of each of e pairs: the rows first, then the columns."""
    if axes == "concat":
        return np.repeat(np.arange(2), e // 2), np.tile(np.arange(e // 2), 2)
    k = np.concatenate([np.arange(0, e, 2), np.arange(1, e, 2)])
    return k % 2, k


def _angles_2d(
    axes: str, function: str, positions: Any, frequencies: Any, x: Array, turned: int, dtype: np.dtype[Any],
    inverse: bool,
) -> tuple[Array, Array, Float64]:  # fmt: skip
    where = _coordinates(function, positions, 2, x)
    if axes == "alternate":
        w, factor = _counted(function, frequencies, turned // 2, "rotary_dim // 2")
    else:
        if turned % 4:
            fail(
                ValueError, function, "x", f"{turned} rotated channels", "a multiple of 4, as many for each coordinate"
            )
        w, factor = _counted(function, frequencies, turned // 4, "rotary_dim // 4")
    scales = _scales(factor, inverse)
    if axes == "blocks":  # each block of channels is a row of its own
        where = np.moveaxis(where, 0, -1)
        table = np.empty((*where.shape[:-1], turned), dtype)
        _core.sinusoid(function, where, w, None, _in_two(table), turned // 4, 0, 1, *scales)
        return table, where, w[None]
    of_pair, of_frequency = _of_2d(axes, turned // 2)
    return _table_by_pair(function, where, w[of_frequency], of_pair, scales, dtype)


def _in_two(rows: Array) -> Array:
    """(..., 2 n) as (..., 2, n): a view."""
    return rows.reshape(*rows.shape[:-1], 2, rows.shape[-1] // 2)


def rope_2d(
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    axes: str = "concat",
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """`rope` by two coordinates: half of the pairs turn by ``row * w``, the others by ``column * w``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys; their tokens in any order.
    positions : array (2, N), or (2, ...) with as many axes as x
        Row and column of each token, any integers or reals; after the first axis as in `rope`.
    frequencies : array or RopeFrequencies
        Radians per row or column: rotary_dim // 4 of them, with "alternate" rotary_dim // 2.
    layout : {"half", "interleaved"}
        As in `rope`.
    axes : {"concat", "blocks", "alternate"}
        Which pairs turn by what. ``concat``: the first half of the pairs by the row, the second by the column, with
        the same frequencies. ``blocks``: the first half of the channels by the row, the second by the column, each
        with pairs of its own; that differs from ``concat`` in the layout "half" only. ``alternate``: as ``concat``,
        with frequencies 0, 2, 4, ... for the rows and 1, 3, 5, ... for the columns.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`. With ``blocks``, `out_layout` holds within each block.
    out : array like x, optional
        May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError, ValueError
        As `rope`; positions without a first axis of 2, rotated channels that are no multiple of 4.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 15, for each coordinate. References pair channels differently. Qwen2-VL's
    vision tower: "half", ``concat``. Gemma 4's: "half", ``blocks``. Pixtral: "half", ``alternate``.
    rotary-embedding-torch (axial), EVA-02, timm: "interleaved", ``concat``. Their coordinates are row before column;
    pixel coordinates in [-1, 1] or in [0, 1] are positions and frequencies like any other.

    Examples
    --------
    A grid of 2 x 3 patches, row by row:

    >>> import numpy as np, posenc
    >>> grid = np.indices((2, 3)).reshape(2, -1)
    >>> x = np.ones((6, 8), np.float32)
    >>> posenc.rope_2d(x, grid, posenc.rope_frequencies(4), layout="half").shape
    (6, 8)
    """
    function = "rope_2d"
    one_of(function, "axes", axes, AXES)
    data = as_data(function, "x", x)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_2d, axes),
    )  # fmt: skip
    given = out is not None
    out, memory, staged = output(function, out, data.shape, data.dtype, (data,), in_place=True)
    if axes == "blocks":
        blocks = slice(first, first + table.shape[-1])
        for rest in (slice(0, first), slice(blocks.stop, None)):
            memory[..., rest] = rows[..., rest]
        rows, table, memory = _in_two(rows[..., blocks]), _in_two(table), _in_two(memory[..., blocks])
        first = 0
    _core.rope(function, rows, table, memory, first, pairs_in, pairs_out, given)
    return finish(out, staged)


def rope_2d_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    axes: str = "concat",
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
) -> RopeGradient:
    """Gradient of `rope_2d`: each pair as in `rope_vjp`, its angle's share to its own coordinate.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result; the other arguments are those of `rope_2d`.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` (2, ...) and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `rope_2d`; also where `grad` does not have the shape of x.

    Notes
    -----
    With an attention_factor f the gradient with respect to x is f times the inverse angle, not the inverse.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> grad, x = np.array([[0.0, 0.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 0.0, 0.0]])
    >>> posenc.rope_2d_vjp(grad, x, np.zeros((2, 1)), [1.0], layout="half").positions
    array([[1.],
           [2.]])
    """
    function = "rope_2d_vjp"
    one_of(function, "axes", axes, AXES)
    data = as_data(function, "x", x)
    turn = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_2d, axes),
    )  # fmt: skip
    if axes == "blocks":
        return _blocks_vjp(function, grad, turn, seq_axis, inverse)
    d_x, d_positions, d_spread = _gradient(function, grad, turn, seq_axis, inverse)
    e = d_spread.shape[-1]
    of_pair, of_frequency = _of_2d(axes, e)
    d_frequencies = np.zeros(int(of_frequency.max()) + 1)
    np.add.at(d_frequencies, of_frequency, d_spread[of_pair, np.arange(e)])
    return RopeGradient(d_x, d_positions, d_frequencies)


def _blocks_vjp(function: str, grad: Any, turn: Rotation, seq_axis: int, inverse: bool) -> RopeGradient:
    rows, table, where, w, first, pairs_in, pairs_out = turn
    blocks = slice(first, first + table.shape[-1])
    d_x = np.array(cotangent(function, grad, rows, table.dtype))
    given, along = _in_two(d_x[..., blocks]), along_sequence(where, rows.ndim, seq_axis)[..., None]
    inner = (_in_two(rows[..., blocks]), _in_two(table), along, w, 0, pairs_in, pairs_out)
    d_blocks, d_rows, d_w = row_gradients(function, given, inner)
    given[...] = d_blocks
    sign = -1.0 if inverse else 1.0
    d_where = reduce_to(np.moveaxis(d_rows[..., 0], seq_axis, -2), where.shape, F64)
    return RopeGradient(
        d_x.astype(rows.dtype, copy=False), sign * np.ascontiguousarray(np.moveaxis(d_where, -1, 0)), sign * d_w[0]
    )


# ---- three coordinates ----


def _of_sections(function: str, sections: Any, interleaved: bool, overflow: Any, e: int) -> Indices:
    """The coordinate of each of e pairs."""
    if not isinstance(sections, Iterable) or isinstance(sections, str | bytes):
        fail(TypeError, function, "sections", f"type {type(sections).__name__}", "three integers")
    counts = [as_index(function, "sections", count, 0) for count in sections]
    if len(counts) != 3 or sum(counts) != e:
        fail(
            ValueError,
            function,
            "sections",
            f"{counts}, {sum(counts)} pairs",
            f"three numbers that add up to rotary_dim // 2 = {e}",
        )
    rest = as_index(function, "overflow", overflow, 0)
    if rest > 2:
        fail(ValueError, function, "overflow", rest, "0, 1 or 2, a row of positions")
    if not interleaved:
        return np.repeat(np.arange(3), counts)
    k = np.arange(e)
    return np.where(k < 3 * np.array(counts, I64)[k % 3], k % 3, rest)


def _angles_by_sections(
    sections: Any, interleaved: bool, overflow: int, function: str, positions: Any, frequencies: Any, x: Array,
    turned: int, dtype: np.dtype[Any], inverse: bool,
) -> tuple[Array, Array, Float64]:  # fmt: skip
    where = _coordinates(function, positions, 3, x)
    w, factor = _counted(function, frequencies, turned // 2, "rotary_dim // 2")
    of_pair = _of_sections(function, sections, interleaved, overflow, turned // 2)
    return _table_by_pair(function, where, w, of_pair, _scales(factor, inverse), dtype)


def mrope(
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    sections: Any,
    interleaved: bool = False,
    overflow: int = 0,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """`rope` by three coordinates, M-RoPE: pair k turns by ``positions[a(k)] * w[k]``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    positions : array (3, N), or (3, ...) with as many axes as x
        Time, height and width of each token; for text all three are the same. After the first axis as in `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        One spectrum, that of `rope`, which the coordinates share.
    layout : {"half", "interleaved"}
        Which channels are a pair, as in `rope`.
    sections : three integers
        How many pairs turn by time, height and width; they add up to rotary_dim // 2.
    interleaved : bool
        False: a(k) is 0 for the first ``sections[0]`` pairs, then 1, then 2. True: a(k) is ``k % 3`` while
        ``k < 3 * sections[k % 3]``, and `overflow` for the other pairs.
    overflow : {0, 1, 2}
        The coordinate of pairs past their section, with `interleaved` only.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`.
    out : array like x, optional
        May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64. Where the coordinates are equal it is that of `rope`, bit for
        bit.

    Raises
    ------
    TypeError, ValueError
        As `rope`; positions without a first axis of 3, sections that do not add up.

    Notes
    -----
    Wang et al. 2024 (Qwen2-VL), section 2.1: in sections, such as [16, 24, 24]. Qwen3-VL interleaves, with
    [24, 20, 20] and the pairs past 60 turned by time, as here with ``overflow=0``; llama.cpp turns pairs 61 and 62 by
    a fourth coordinate, which is 0 in text.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x, w = np.ones((5, 16)), posenc.rope_frequencies(16)
    >>> text = np.broadcast_to(np.arange(5), (3, 5))
    >>> same = posenc.mrope(x, text, w, layout="half", sections=(2, 3, 3)) == posenc.rope(x, 5, w, layout="half")
    >>> bool(same.all())
    True
    """
    function = "mrope"
    data = as_data(function, "x", x)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_by_sections, sections, interleaved, overflow),
    )  # fmt: skip
    given = out is not None
    out, memory, staged = output(function, out, data.shape, data.dtype, (data,), in_place=True)
    _core.rope(function, rows, table, memory, first, pairs_in, pairs_out, given)
    return finish(out, staged)


def mrope_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    sections: Any,
    interleaved: bool = False,
    overflow: int = 0,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
) -> RopeGradient:
    """Gradient of `mrope`: each pair as in `rope_vjp`, its angle's share to its own coordinate.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result; the other arguments are those of `mrope`.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` (3, ...) and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `mrope`; also where `grad` does not have the shape of x.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> grad, x = np.array([[0.0] * 3 + [1.0] * 3]), np.array([[1.0, 2.0, 3.0] + [0.0] * 3])
    >>> g = posenc.mrope_vjp(grad, x, np.zeros((3, 1)), np.ones(3), layout="half", sections=(1, 1, 1))
    >>> g.positions[:, 0]
    array([1., 2., 3.])
    """
    function = "mrope_vjp"
    data = as_data(function, "x", x)
    turn = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_by_sections, sections, interleaved, overflow),
    )  # fmt: skip
    d_x, d_positions, d_spread = _gradient(function, grad, turn, seq_axis, inverse)
    e = d_spread.shape[-1]
    of_pair = _of_sections(function, sections, interleaved, overflow, e)
    return RopeGradient(d_x, d_positions, d_spread[of_pair, np.arange(e)])
