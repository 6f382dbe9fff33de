"""Rotary embedding by row and column: images."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import F64, Array, Float64, as_data, check_choice, fail, finish_out, prepare_out, unbroadcast
from ._coordinates import Indices, coordinate_gradients, coordinates, counted, scales, table_by_pair
from ._rotation import Rotation, along_sequence, cotangent, rotation, row_gradients
from .rope import RopeGradient

__all__ = ["rope_2d", "rope_2d_vjp"]

AXES = ("concat", "blocks", "alternate")


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
    where = coordinates(function, positions, 2, x)
    if axes == "alternate":
        w, factor = counted(function, frequencies, turned // 2, "rotary_dim // 2")
    else:
        if turned % 4:
            fail(
                ValueError, function, "x", f"{turned} rotated channels", "a multiple of 4, as many for each coordinate"
            )
        w, factor = counted(function, frequencies, turned // 4, "rotary_dim // 4")
    on = scales(factor, inverse)
    if axes == "blocks":  # each block of channels is a row of its own
        where = np.moveaxis(where, 0, -1)
        table = np.empty((*where.shape[:-1], turned), dtype)
        _core.sinusoid(function, where, w, None, _in_two(table), turned // 4, 0, 1, *on)
        return table, where, w[None]
    of_pair, of_frequency = _of_2d(axes, turned // 2)
    return table_by_pair(function, where, w[of_frequency], of_pair, on, dtype)


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
    check_choice(function, "axes", axes, AXES)
    data = as_data(function, "x", x)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_2d, axes),
    )  # fmt: skip
    given = out is not None
    out, buffer = prepare_out(function, out, data.shape, data.dtype, (data,), in_place=True)
    if axes == "blocks":
        blocks = slice(first, first + table.shape[-1])
        for rest in (slice(0, first), slice(blocks.stop, None)):
            buffer[..., rest] = rows[..., rest]
        rows, table, target = _in_two(rows[..., blocks]), _in_two(table), _in_two(buffer[..., blocks])
        first = 0
    else:
        target = buffer
    _core.rope(function, rows, table, target, first, pairs_in, pairs_out, given)
    return finish_out(out, buffer)


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
    check_choice(function, "axes", axes, AXES)
    data = as_data(function, "x", x)
    turn = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_2d, axes),
    )  # fmt: skip
    if axes == "blocks":
        return _blocks_vjp(function, grad, turn, seq_axis, inverse)
    d_x, d_positions, d_spread = coordinate_gradients(function, grad, turn, seq_axis, inverse)
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
    d_where = unbroadcast(np.moveaxis(d_rows[..., 0], seq_axis, -2), where.shape, F64)
    return RopeGradient(
        d_x.astype(rows.dtype, copy=False), sign * np.ascontiguousarray(np.moveaxis(d_where, -1, 0)), sign * d_w[0]
    )
