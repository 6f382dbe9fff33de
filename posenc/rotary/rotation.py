"""Rotary position embedding: channel pairs of queries and keys turned by position * frequency."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from .. import _core
from .._call import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    as_positions,
    as_reals,
    check_positions,
    fail,
    finish,
    one_of,
    output,
    reduce_to,
    result_dtype,
    working,
)
from ..absolute.sinusoid import given_frequencies
from .scaling import RopeFrequencies

__all__ = [
    "RopeGradient",
    "RopeTableGradient",
    "convert_layout",
    "rope",
    "rope_matrix",
    "rope_table",
    "rope_vjp",
]

LAYOUTS = ("half", "interleaved")


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


def _frequencies(function: str, frequencies: Any) -> tuple[Float64, float]:
    """Radians per position and the factor on cos and sin."""
    if type(frequencies) is np.ndarray and frequencies.dtype is F64 and frequencies.ndim == 1:
        return frequencies, 1.0
    if isinstance(frequencies, RopeFrequencies):
        factor = as_number(function, "attention_factor", frequencies.attention_factor)
        if factor == 0:
            fail(ValueError, function, "attention_factor", factor, "a number that is not 0")
        return given_frequencies(function, frequencies.inv_freq), factor
    return given_frequencies(function, frequencies), 1.0


# What `rope` and its gradient prepare alike: x with its sequence axis second to last, [cos | sin] of each position, the
# positions and frequencies unless a table was given, first channel that turns, interleaved in, interleaved out.
_Rotation = tuple[Array, Array, Array | None, Float64 | None, int, bool, bool]


def _rotation(
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
) -> _Rotation:
    if type(layout) is not str or layout not in LAYOUTS:  # inline: a call of a small array is all Python
        one_of(function, "layout", layout, LAYOUTS)
    if out_layout is not None:
        one_of(function, "out_layout", out_layout, LAYOUTS)
    if x.ndim < 2:
        fail(ValueError, function, "x", f"{x.ndim} axes", "at least 2, a sequence axis and channels")
    if seq_axis != -2:
        x = _sequence_axis(function, x, seq_axis)
    shape = x.shape
    width = shape[-1]
    simple = type(rotary_offset) is int and rotary_offset >= 0
    first = rotary_offset if simple else as_index(function, "rotary_offset", rotary_offset, 0)
    turned = width - first if rotary_dim is None else as_index(function, "rotary_dim", rotary_dim, 2)
    if turned % 2 or not 2 <= turned <= width - first:
        _refuse_width(function, width, rotary_dim, first)
    dtype = F64 if x.dtype.char == "d" else F32
    w: Float64 | None = None
    where: Array | None = None
    if frequencies is None:
        table = _given_table(function, positions, x, turned // 2, dtype, inverse)
    else:
        w, factor = _frequencies(function, frequencies)
        if len(w) != turned // 2:
            fail(ValueError, function, "frequencies", f"{len(w)} entries", f"rotary_dim // 2 = {turned // 2}")
        where = as_positions(function, "positions", positions)
        if where.shape != shape[-2:-1]:
            _fits_sequence(function, where.shape, x)
        cos_scale, sin_scale = (1 / factor, -1 / factor) if inverse else (factor, factor)
        table = np.empty(where.shape + (turned,), dtype)
        _core.sinusoid(function, where, w, None, table, turned // 2, 0, 1, sin_scale, cos_scale)
    interleaved = layout == "interleaved"
    return x, table, where, w, first, interleaved, interleaved if out_layout is None else out_layout == "interleaved"


def _refuse_width(function: str, width: int, rotary_dim: int | None, first: int) -> NoReturn:
    subject, has = ("x", f"last axis {width}") if rotary_dim is None else ("rotary_dim", str(rotary_dim))
    if (width - first if rotary_dim is None else rotary_dim) % 2:
        fail(ValueError, function, subject, has, "an even rotary_dim")
    fail(ValueError, function, subject, has, f"2 or more channels from rotary_offset {first} to {width}")


def _sequence_axis(function: str, x: Array, seq_axis: int) -> Array:
    seq_axis = as_index(function, "seq_axis", seq_axis, -x.ndim)
    axis = seq_axis + x.ndim if seq_axis < 0 else seq_axis
    if not 0 <= axis < x.ndim - 1:
        fail(ValueError, function, "seq_axis", seq_axis, f"an axis of x before the last of its {x.ndim}")
    return np.moveaxis(x, axis, -2)


def _fits_sequence(function: str, shape: tuple[int, ...], x: Array) -> None:
    """positions are (N,), or have as many axes as x less one and broadcast against them."""
    others = x.shape[:-1]
    if len(shape) not in (1, len(others)):
        fail(
            ValueError,
            function,
            "positions",
            f"{len(shape)} axes",
            f"1, or {len(others)} to broadcast against x, per batch (B, 1, N)",
        )
    if shape[-1] != others[-1]:
        expected = f"{others[-1]}, the sequence axis of x (an int n means 0..n-1, [p] one position)"
        fail(ValueError, function, "positions", f"length {shape[-1]}", expected)
    if len(shape) > 1:
        for mine, length in zip(shape[:-1], others[:-1], strict=True):
            if mine not in (1, length):
                fail(ValueError, function, "positions", f"shape {shape}", f"to broadcast against {others}")


def _given_table(function: str, table: Any, x: Array, half: int, dtype: np.dtype[Any], inverse: bool) -> Array:
    """A pair (cos, sin) as the kernels read it, [cos | sin] in each row."""
    if not (isinstance(table, tuple | list) and len(table) == 2):
        expected = f"those of rope_frequencies({2 * half}), or a pair (cos, sin) in place of positions"
        fail(TypeError, function, "frequencies", "nothing", expected)
    pair = []
    for argument, part in zip(("cos", "sin"), table, strict=True):
        array = as_data(function, argument, part)
        if array.ndim < 2 or array.shape[-1] != half:
            fail(ValueError, function, argument, f"shape {array.shape}", f"(..., N, rotary_dim // 2 = {half})")
        _fits_sequence(function, array.shape[:-1], x)
        pair.append(array.astype(F64 if inverse else dtype, copy=False))
    cos, sin = pair if pair[0].shape == pair[1].shape else np.broadcast_arrays(*pair)
    if inverse:
        norm = cos**2 + sin**2
        if not norm.all():
            fail(ValueError, function, "positions", "a table with cos = sin = 0", "a table that can be inverted")
        cos, sin = cos / norm, -sin / norm
    return np.concatenate([cos, sin], axis=-1, dtype=dtype)


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
    rows, table, _, _, first, pairs_in, pairs_out = _rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
    )
    # positions, frequencies and tables have been read by now: they may share memory with out
    out, memory, staged = output(function, out, data.shape, data.dtype, (data,), in_place=True)
    if seq_axis != -2:
        memory = np.moveaxis(memory, seq_axis, -2)
    _core.rope(function, rows, table, memory, first, pairs_in, pairs_out)
    return out if staged is None else finish(out, staged)


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
    rows, table, where, w, *layouts = _rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
    )
    cotangent = as_data(function, "grad", grad)
    if cotangent.shape != data.shape:
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(data.shape))
    given = cotangent.astype(table.dtype, copy=False)
    d_x = np.empty(data.shape, table.dtype)
    if seq_axis != -2:
        given = np.moveaxis(given, seq_axis, -2)
    operands = (given, working(rows, table.dtype is F64), table)
    into = d_x if seq_axis == -2 else np.moveaxis(d_x, seq_axis, -2)
    if where is None or w is None:
        d_table = np.empty((*rows.shape[:-1], table.shape[-1]))
        _core.rope_table_vjp(function, *operands, into, d_table, *layouts)
        halves, pair = np.split(d_table, 2, axis=-1), [as_data(function, "table", part) for part in positions]
        d_cos, d_sin = (reduce_to(half, part.shape, part.dtype) for half, part in zip(halves, pair, strict=True))
        return RopeTableGradient(d_x.astype(data.dtype, copy=False), d_cos, d_sin)
    d_positions, d_frequencies = np.empty(rows.shape[:-1]), np.empty(len(w))
    _core.rope_vjp(function, *operands, where, w, into, d_positions, d_frequencies, *layouts)
    sign = -1.0 if inverse else 1.0
    return RopeGradient(
        d_x.astype(data.dtype, copy=False), reduce_to(sign * d_positions, where.shape, F64), sign * d_frequencies
    )


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
    w, factor = _frequencies(function, frequencies)
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
    one_of(function, "layout", layout, LAYOUTS)
    w, factor = _frequencies(function, frequencies)
    where = as_reals(function, "position", position)
    if where.ndim:
        fail(ValueError, function, "position", f"{where.ndim} axes", "one number")
    check_positions(function, "position", where)
    width = 2 * len(w) if dim is None else as_index(function, "dim", dim, 2 * len(w))
    identity, rows = np.eye(width), np.empty((width, width))
    table = np.empty(2 * len(w))
    _core.sinusoid(function, where, w, None, table, len(w), 0, 1, factor, factor)
    interleaved = layout == "interleaved"
    _core.rope(function, identity, table, rows, 0, interleaved, interleaved)
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
    one_of(function, "source", source, LAYOUTS)
    one_of(function, "target", target, LAYOUTS)
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
        fail(ValueError, function, "rotary_dim", turned, f"an even number of at most {width}")
    order = np.arange(width)
    if source != target:
        pairs = order[:turned].reshape((2, -1) if source == "half" else (-1, 2))
        order[:turned] = pairs.T.reshape(-1)
    converted: Array = np.take(array, (width * np.arange(rows)[:, None] + order).reshape(-1), axis=axis)
    return converted
