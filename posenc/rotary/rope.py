"""Rotary position embedding: channel pairs of queries and keys turned by position * frequency."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    Float64,
    as_data,
    as_index,
    as_positions,
    as_reals,
    cast_operand,
    check_choice,
    check_positions,
    fail,
    fail_value,
    finish_out,
    prepare_out,
    result_dtype,
    unbroadcast,
)
from ._rotation import LAYOUTS, cotangent, radians, rotation, turned_back

__all__ = [
    "RopeGradient",
    "RopeTableGradient",
    "convert_layout",
    "rope",
    "rope_matrix",
    "rope_table",
    "rope_vjp",
]


class RopeGradient(NamedTuple):
    """Gradients of `rope`: `x` in its dtype, the others float64."""

    x: Array
    positions: Float64
    frequencies: Float64


class RopeTableGradient(NamedTuple):
    """Gradients of `rope` with a table in place of positions and frequencies, each in its argument's dtype."""

    x: Array
    cos: Array
    sin: Array


def rope(
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any = None,
    *,
    layout: str,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """Rotate channel pairs: ``y0 = x0 cos(p w) - x1 sin(p w)``, ``y1 = x0 sin(p w) + x1 cos(p w)``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    positions : int, array (N,) or array of as many axes as x less one
        ``n`` means 0..n-1. The last axis is the sequence and does not stretch; leading axes broadcast against those of
        x, so positions per batch are (B, 1, N). A pair ``(cos, sin)`` of arrays (..., N, D // 2), as `rope_table`
        makes, takes the place of positions and frequencies.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        Radians per position, see `rope_frequencies`; the ``attention_factor`` of a RopeFrequencies multiplies cos and
        sin. Left out only where a table is given.
    layout : {"half", "interleaved"}
        Which channels are pair k of the rotated ones: ``(k, k + rotary_dim // 2)`` (GPT-NeoX, LLaMA in transformers)
        or ``(2k, 2k + 1)`` (RoFormer, GPT-J, Meta's LLaMA). There is no default: the wrong one is silently wrong.
    rotary_dim : int, optional
        How many channels turn, even; the others are copied bit for bit. Everything from `rotary_offset` on if None.
    rotary_offset : int
        First channel that turns.
    inverse : bool
        The true inverse: the angle negated, divided by the attention_factor (a table by ``cos**2 + sin**2``).
    out_layout : {"half", "interleaved"}, optional
        Store the rotated pairs in another layout than they are read in.
    seq_axis : int
        Axis of x that is the sequence; positions keep it last.
    out : array like x, optional
        May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError
        No layout; bool, complex or object arrays; a bare float for positions.
    ValueError
        An odd width, an unknown layout, positions that do not match the sequence axis, a wrong number of frequencies.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 34. Counter-clockwise, as all public code has it, so that
    ``rope(q, i) @ rope(k, j)`` depends on ``j - i`` alone. Angles are reduced in double-double and rounded once: right
    at every position, whatever the dtype of x. Half precision is rounded once, at the end; peers round three times.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.rope(np.array([[1.0, 0.0]]), [np.pi / 2], [1.0], layout="half").round(6)
    array([[0., 1.]])

    Decoding: the one query at position 99, as an array, since the int 99 would mean 0..98.

    >>> q = np.ones((8, 1, 64), np.float32)
    >>> posenc.rope(q, [99], posenc.rope_frequencies(64), layout="half").shape
    (8, 1, 64)
    """
    function = "rope"
    data = as_data(function, "x", x)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
    )
    # positions and frequencies have been read by now: they may share memory with out
    reads = (data,) if frequencies is not None else (data, *table)
    given = out is not None
    out, buffer = prepare_out(function, out, data.shape, data.dtype, reads, in_place=True)
    if frequencies is None:
        _core.rope_given(function, rows, *table, buffer, first, pairs_in, pairs_out, given)
    else:
        _core.rope(function, rows, table, buffer, first, pairs_in, pairs_out, given)
    return finish_out(out, buffer)


def rope_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any = None,
    *,
    layout: str,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
) -> RopeGradient | RopeTableGradient:
    """Gradient of `rope`: ``dx`` is `grad` rotated back, ``dtheta = dy1 y0 - dy0 y1``, ``dp = sum_k w dtheta``.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result; the other arguments are those of `rope`.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` and ``frequencies`` in float64, in their arguments' shapes; for a table
        instead ``RopeTableGradient(x, cos, sin)``.

    Raises
    ------
    TypeError, ValueError
        As `rope`; also where `grad` does not have the shape of x, or for the inverse of a table (differentiate the
        inverted table instead).

    Notes
    -----
    With an attention_factor f the transpose is f times the inverse angle, not the inverse.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> g = posenc.rope_vjp(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), [0.0], [1.0], layout="half")
    >>> g.x, g.positions, g.frequencies
    (array([[0., 1.]]), array([1.]), array([0.]))
    """
    function = "rope_vjp"
    data = as_data(function, "x", x)
    if inverse and frequencies is None:
        fail(ValueError, function, "inverse", "a table", "positions and frequencies, or the table already inverted")
    turn = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
    )
    rows, table, where, w, *layouts = turn
    if frequencies is None:
        table = np.concatenate(np.broadcast_arrays(*table), axis=-1)
        d_x, d_table = np.empty(data.shape, table.dtype), np.empty((*data.shape[:-1], table.shape[-1]))
        given = cotangent(function, grad, data, table.dtype)
        _core.rope_table_vjp(function, given, cast_operand(rows, table.dtype), table, d_x, d_table, *layouts)
        halves = np.split(np.moveaxis(d_table, seq_axis, -2), 2, axis=-1)
        pair = [as_data(function, "table", part) for part in positions]
        d_cos, d_sin = (unbroadcast(half, part.shape, part.dtype) for half, part in zip(halves, pair, strict=True))
        return RopeTableGradient(d_x.astype(data.dtype, copy=False), d_cos, d_sin)
    turn = (rows, table, where[..., None], w[None], *layouts)
    d_data, d_positions, d_frequencies = turned_back(function, grad, turn, seq_axis)
    sign = -1.0 if inverse else 1.0
    return RopeGradient(d_data, sign * d_positions[..., 0], sign * d_frequencies[0])


def rope_table(
    positions: npt.ArrayLike | int, frequencies: Any, *, dtype: npt.DTypeLike | None = None
) -> tuple[Array, Array]:
    """``cos(p w)`` and ``sin(p w)``, times the attention_factor: a table to rotate many tensors with.

    Parameters
    ----------
    positions : int or array (..., N)
        ``n`` means 0..n-1.
    frequencies : array (e,) or RopeFrequencies
        Radians per position.
    dtype : dtype, optional
        Of the table; float32 unless given.

    Returns
    -------
    (cos, sin)
        Each (..., N, e); they share memory, cos before sin in each row.

    Raises
    ------
    TypeError, ValueError
        As `sinusoidal`.

    Examples
    --------
    >>> import posenc
    >>> cos, sin = posenc.rope_table(2, [1.0])
    >>> cos, sin
    (array([[1.       ], [0.5403023]], dtype=float32), array([[0.       ], [0.84147096]], dtype=float32))
    """
    function = "rope_table"
    where = as_positions(function, "positions", positions)
    w, factor = radians(function, frequencies)
    table = np.empty((*where.shape, 2 * len(w)), result_dtype(function, dtype, None))
    _core.sinusoid(function, where, w, None, table, len(w), 0, 1, factor, factor)
    return table[..., : len(w)], table[..., len(w) :]


def rope_matrix(position: float, frequencies: Any, *, layout: str, dim: int | None = None) -> Float64:
    """The block-diagonal matrix of `rope` at one position: ``rope(x, p) = matrix @ x``.

    Parameters
    ----------
    position : number
        An integer or a real.
    frequencies : array (e,) or RopeFrequencies
        Radians per position; the attention_factor is included.
    layout : {"half", "interleaved"}
        As in `rope`.
    dim : int, optional
        Width of the matrix, at least 2e (the default); channels past 2e are left alone.

    Returns
    -------
    ndarray of float64, shape (dim, dim)

    Raises
    ------
    TypeError, ValueError
        As `rope`.

    Notes
    -----
    Su et al. 2021, equation 15. ``rope_matrix(i).T @ rope_matrix(j)`` is ``rope_matrix(j - i)``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.rope_matrix(np.pi / 2, [1.0], layout="half").round(3) + 0.0
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    function = "rope_matrix"
    check_choice(function, "layout", layout, LAYOUTS)
    w, factor = radians(function, frequencies)
    where = as_reals(function, "position", position)
    if where.ndim:
        fail(ValueError, function, "position", f"{where.ndim} axes", "one number")
    check_positions(function, "position", where)
    width = 2 * len(w) if dim is None else as_index(function, "dim", dim, 2 * len(w))
    identity, rows = np.eye(width), np.empty((width, width))
    table = np.empty(2 * len(w))
    _core.sinusoid(function, where, w, None, table, len(w), 0, 1, factor, factor)
    interleaved = layout == "interleaved"
    _core.rope(function, identity, table, rows, 0, interleaved, interleaved, False)
    return np.ascontiguousarray(rows.T)


def convert_layout(
    x: npt.ArrayLike, *, source: str, target: str, rotary_dim: int | None = None, heads: int | None = None
) -> Array:
    """Reorder channel pairs from one rotary layout to the other: an exact copy.

    Parameters
    ----------
    x : array
        Activations (..., D); or, with `heads`, weights (heads * D, ...) or biases (heads * D,) of a query or key
        projection.
    source, target : {"half", "interleaved"}
        The layout of x and of the result.
    rotary_dim : int, optional
        How many leading channels of each head are rotary; all of them if None.
    heads : int, optional
        Number of heads along the first axis.

    Returns
    -------
    ndarray
        Shape and dtype of x. The conversion back restores x; as a linear map, that is also the transpose.

    Raises
    ------
    TypeError, ValueError
        An unknown layout, an odd rotary_dim, a first axis that `heads` does not divide.

    Notes
    -----
    Converting both projections leaves every ``q @ k`` as it was, and turns a checkpoint made for one layout into one
    for the other.

    Examples
    --------
    >>> import posenc
    >>> posenc.convert_layout([0.0, 1.0, 10.0, 11.0], source="half", target="interleaved")
    array([ 0., 10.,  1., 11.])
    """
    function = "convert_layout"
    check_choice(function, "source", source, LAYOUTS)
    check_choice(function, "target", target, LAYOUTS)
    array = as_data(function, "x", x)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 0:
        fail(ValueError, function, "x", "no axes", "at least 1")
    rows, axis = (1, -1) if heads is None else (as_index(function, "heads", heads, 1), 0)
    if array.shape[axis] % rows:
        fail(ValueError, function, "x", f"first axis {array.shape[0]}", f"a multiple of {rows} heads")
    width = array.shape[axis] // rows
    turned = width if rotary_dim is None else as_index(function, "rotary_dim", rotary_dim, 0)
    if rotary_dim is None and turned % 2:
        fail(ValueError, function, "x", f"width {width}", "an even width")
    if turned % 2 or turned > width:
        fail_value(ValueError, function, "rotary_dim", turned, f"an even number of at most {width}")
    order = np.arange(width)
    if source != target:
        pairs = order[:turned].reshape((2, -1) if source == "half" else (-1, 2))
        order[:turned] = pairs.T.reshape(-1)
    converted: Array = np.take(array, (width * np.arange(rows)[:, None] + order).reshape(-1), axis=axis)
    return converted
