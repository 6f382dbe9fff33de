"""Rotary position embeddings: each pair of channels of a query or key is rotated by position * frequency."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Float64
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail, fail_value
from .._core_api.foreign import EMPTY, refuse_rest, take_all
from ..absolute.rotated_pairs import LAYOUTS, Layout, cos_sin_table, halves
from .rotations import Frequencies, RopeGradient, gradient, read_frequencies, read_options, refuse_table
from .scaling import RopeFrequencies


@take_all
def rope(
    x: npt.ArrayLike,
    positions: npt.ArrayLike = EMPTY,
    frequencies: Frequencies = EMPTY,
    *more: NoReturn,
    layout: Layout | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    start: int = 0,
    out: Array | None = None,
    **unknown: NoReturn,
) -> Array:
    """Apply rotary position embeddings.

    ``y0 = x0 cos(p w) - x1 sin(p w)``, ``y1 = x0 sin(p w) + x1 cos(p w)`` for each pair of channels.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    positions : int or array (N,), (B, N) or (B, H, N)
        An int n means start .. start+n-1, by default 0 .. n-1. An array has N positions on its last axis: (N,), or with
        the axes of x before its sequence, which broadcast. The heads of x (B, H, N, D) share positions (B, N).
        `rope_by_table` takes a table of cos and sin in place of positions and frequencies.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        Radians per position, see `rope_frequencies`. The ``attention_factor`` of a RopeFrequencies multiplies cos and
        sin.
    layout : {"half", "interleaved"}, optional
        The channels of pair k: ``(k, k + rotary_dim // 2)`` for "half" (GPT-NeoX, LLaMA in transformers) or
        ``(2k, 2k + 1)`` for "interleaved" (RoFormer, GPT-J, Meta's LLaMA). By default it is read from the frequencies,
        if `rope_from_config` returned them. Other frequencies need it, because the wrong layout gives wrong results
        without an error.
    rotary_dim : int, optional
        Number of rotated channels, even. The other channels are copied bit for bit. By default it is read from the
        frequencies, if `rope_from_config` returned them; otherwise the channels from `rotary_offset` on are rotated.
    rotary_offset : int
        First rotated channel.
    inverse : bool
        Apply the inverse: negate the angle and divide by the attention_factor.
    out_layout : {"half", "interleaved"}, optional
        Layout of the rotated channels in the result; the default is `layout`.
    seq_axis : int
        The sequence axis of x. The sequence axis of positions is always the last.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError
        Bool, complex or object arrays; a bare float for positions.
    ValueError
        An odd width, a layout that is unknown or not given, options that contradict the frequencies, positions
        that do not fit the sequence axis, a wrong number of frequencies.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 34. The rotation is counter-clockwise, as in all public code, so
    ``rope(q, i) @ rope(k, j)`` depends on ``j - i`` alone. Angles are reduced in double-double and rounded once, so
    they are accurate at every position and for every dtype of x. Results in half precision are rounded once, at the
    end; other libraries round three times.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.rope(np.array([[1.0, 0.0]]), [np.pi / 2], [1.0], layout="half").round(6)
    array([[0., 1.]])

    Decode one query at position 99. The int 99 would mean 0 .. 98, so it is passed as a start or in an array.

    >>> q = np.ones((8, 1, 64), np.float32)
    >>> w = posenc.rope_frequencies(64)
    >>> bool((posenc.rope(q, 1, w, start=99, layout="half") == posenc.rope(q, [99], w, layout="half")).all())
    True

    Frequencies of a checkpoint include the layout:

    >>> w = posenc.rope_from_config({"model_type": "gptj"})
    >>> w
    <RopeFrequencies: 32 pairs, base 10000, interleaved>
    >>> posenc.rope(q, [99], w).shape
    (8, 1, 64)
    """
    if more or unknown or positions is EMPTY or frequencies is EMPTY:
        refuse_rest("rope", rope, {"x": x, "positions": positions, "frequencies": frequencies}, more, unknown)
    w, factor, chosen_layout, chosen_dim = frequencies, 1.0, layout, rotary_dim
    if isinstance(frequencies, RopeFrequencies):
        w, factor = frequencies.inv_freq, frequencies.attention_factor
        chosen_layout = layout if frequencies.layout is None else frequencies.layout
        chosen_dim = rotary_dim if frequencies.rotary_dim is None else frequencies.rotary_dim
    is_plain = (
        (type(positions) is int or type(positions) is np.ndarray)
        and type(w) is np.ndarray
        and chosen_layout is not None
        and (layout is None or layout is chosen_layout)
        and (rotary_dim is None or rotary_dim is chosen_dim)
    )
    if not is_plain:
        _check_options(positions, frequencies, layout, rotary_dim)
    rotated: Array = _core.rope_positions(
        "rope",
        x=x,
        positions=positions,
        frequencies=w,
        out=out,
        layout=chosen_layout,
        rotary_offset=rotary_offset,
        out_layout=out_layout,
        inverse=inverse,
        attention_factor=factor,
        rotary_dim=chosen_dim,
        start=start,
        seq_axis=seq_axis,
    )
    return rotated


@partial(door, name="rope")
def _check_options(
    positions: npt.ArrayLike, frequencies: Frequencies, layout: Layout | None, rotary_dim: int | None
) -> None:
    """Refuse what needs words that C has not: a table, no layout, and options that disagree."""
    refuse_table(positions)
    read_options(frequencies, layout, rotary_dim)


@door
def rope_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    start: int = 0,
) -> RopeGradient:
    """Return the gradients of `rope`.

    ``dtheta = dy1 y0 - dy0 y1``, ``dp = sum_k w dtheta``, ``dw = sum_n p dtheta``, where dy is `grad` and y is the
    result of `rope`, for each pair of channels. dx is dy rotated by the negated angle.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. See `rope` for the other arguments.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `rope`. Also if `grad` does not have the shape of x.

    Notes
    -----
    With an attention_factor f the gradient with respect to x is f times the rotation by the negated angle. It is not
    the inverse of `rope`, which divides by f.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> g = posenc.rope_vjp(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), [0.0], [1.0], layout="half")
    >>> g.x, g.positions, g.frequencies
    (array([[0., 1.]]), array([1.]), array([0.]))
    """
    refuse_table(positions)
    w, factor, options = read_options(frequencies, layout, rotary_dim, rotary_offset, out_layout, seq_axis)
    scale = {"inverse": inverse, "attention_factor": factor}
    x, where, w = _core.read("rope_positions", x=x, positions=positions, start=start, frequencies=w, **scale, **options)
    sign, size = (-1.0, 1 / factor) if inverse else (1.0, factor)
    table = cos_sin_table(where, w, convert.arithmetic(x), size, sign * size)
    found = gradient(grad, x, options, table, where[None], w[None])
    return RopeGradient(found.x, sign * found.positions[0], sign * found.frequencies[0])


@door
def rope_table(
    positions: npt.ArrayLike, frequencies: Frequencies, *, start: int = 0, dtype: npt.DTypeLike | None = None
) -> tuple[Array, Array]:
    """Tabulate cos and sin, to rotate many tensors by the same positions.

    ``cos(p w)`` and ``sin(p w)``, times the attention_factor.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means start .. start+n-1, by default 0 .. n-1.
    frequencies : array (e,) or RopeFrequencies
        Radians per position.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.
    dtype : dtype, optional
        The dtype of the table; float64 by default, so that it serves data of any dtype. Rotations of float32 and half
        precision round it to float32.

    Returns
    -------
    (cos, sin)
        Each (..., N, e). They are views of one array with rows [cos | sin].

    Raises
    ------
    TypeError, ValueError
        As `sinusoidal`.

    Notes
    -----
    Su et al. 2021 (RoFormer), section 3.4.2, rotates by such tables.

    Examples
    --------
    One table serves the queries and the keys of a layer:

    >>> import numpy as np, posenc
    >>> cos, sin = posenc.rope_table(6, posenc.rope_frequencies(8))
    >>> q, k = (posenc.rope_by_table(np.ones((heads, 6, 8)), cos, sin, layout="half") for heads in (4, 2))
    >>> q.shape, k.shape
    ((4, 6, 8), (2, 6, 8))
    """
    frequencies, factor = read_frequencies(frequencies)
    dtype = F64 if dtype is None else read.dtype(dtype)
    read.check_range("attention_factor", factor, dtype)
    pairs = len(frequencies)
    table = _core.sinusoid(
        positions=positions,
        frequencies=frequencies,
        sine=pairs,
        cosine=0,
        step=1,
        sine_scale=factor,
        cosine_scale=factor,
        d=2 * pairs,
        dtype=dtype,
        start=start,
    )
    return halves(table)


@door
def rope_matrix(
    position: float, frequencies: Frequencies, *, layout: Layout | None = None, dim: int | None = None
) -> Float64:
    """Return the block-diagonal matrix of `rope` at one position.

    ``rope(x, p) = matrix @ x``.

    Parameters
    ----------
    position : number
        An integer or a real.
    frequencies : array (e,) or RopeFrequencies
        Radians per position. The attention_factor is included in the matrix.
    layout : {"half", "interleaved"}, optional
        As in `rope`.
    dim : int, optional
        Width of the matrix, at least 2e, which is the default. The channels past 2e are not rotated.

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
    layout = read_options(frequencies, layout)[2]["layout"]
    frequencies, factor = read_frequencies(frequencies)
    array = _core.read("pos position()", position=position)
    if array.ndim:
        fail(ValueError, "position", f"{array.ndim} axes", "one number")
    rotary_dim = 2 * len(frequencies)
    dim = rotary_dim if dim is None else read.index("dim", dim, rotary_dim, MOST_WIDTH)
    read.check_table_size(dim * dim, dim=dim)
    rows = _core.rope_positions(
        x=np.eye(dim),
        positions=np.full(dim, array),
        frequencies=frequencies,
        layout=layout,
        attention_factor=factor,
        rotary_dim=rotary_dim,
    )
    return np.ascontiguousarray(rows.T)


@door
def convert_layout(
    x: npt.ArrayLike,
    *,
    source: Layout,
    target: Layout,
    rotary_dim: int | None = None,
    heads: int | None = None,
    axis: int | None = None,
    out: Array | None = None,
) -> Array:
    """Reorder channels from one rotary layout to the other.

    Parameters
    ----------
    x : array (..., D), or (heads * D, ...)
        Activations (..., D). With `heads`, weights (heads * D, ...) or biases (heads * D,) of a query or key
        projection. An array with two axes could be either, so it needs `heads` or `axis`.
    source, target : {"half", "interleaved"}
        The layout of x and of the result.
    rotary_dim : int, optional
        Number of leading rotary channels of each head; all channels by default.
    heads : int, optional
        Number of heads along the axis.
    axis : int, optional
        The axis of the channels: by default the first with `heads`, the last without.
    out : array like x, optional
        Filled and returned.

    Returns
    -------
    ndarray
        Shape and dtype of x. All values are copied exactly. The conversion from `target` to `source` restores x, and is
        the transpose of this linear map.

    Raises
    ------
    TypeError, ValueError
        An unknown layout, an odd rotary_dim, an axis that is no multiple of `heads`; two axes, and neither `heads` nor
        `axis`.

    Notes
    -----
    A conversion of both projections changes no product ``q @ k``, so it makes a checkpoint for one layout usable with
    the other.

    Examples
    --------
    Convert a key projection of 2 heads of width 4 from Meta's layout to the layout of transformers:

    >>> import numpy as np, posenc
    >>> weight = np.arange(8.0)[:, None] * np.ones(3)
    >>> posenc.convert_layout(weight, source="interleaved", target="half", heads=2)[:, 0]
    array([0., 2., 1., 3., 4., 6., 5., 7.])
    """
    read.choice("source", source, LAYOUTS)
    read.choice("target", target, LAYOUTS)
    array, out = _core.read("real x(d) -> real out(d) like_first", x=x, out=out)
    channels = _channel_axis(array, heads, axis)
    length, heads = array.shape[channels], 1 if heads is None else read.index("heads", heads, 1)
    if length % heads:
        fail(ValueError, "x", f"axis {channels} of length {length}", f"a multiple of {heads} heads")
    width = length // heads
    if rotary_dim is None:
        rotary_dim = width
        if width % 2:
            fail(ValueError, "x", f"width {width}", "an even width")
    rotary_dim = read.index("rotary_dim", rotary_dim, 0)
    if rotary_dim % 2 or rotary_dim > width:
        fail_value(ValueError, "rotary_dim", rotary_dim, f"an even number of at most {width}")
    order = np.arange(width)
    if source != target:
        pairs = order[:rotary_dim].reshape((2, -1) if source == "half" else (-1, 2))
        order[:rotary_dim] = pairs.T.reshape(-1)
    rows = (width * np.arange(heads)[:, None] + order).reshape(-1)
    # NumPy also writes to an `out` that overlaps x. The default mode would copy `out`.
    return np.take(array, rows, axis=channels, out=out, mode="clip")


def _channel_axis(x: Array, heads: int | None, axis: int | None) -> int:
    """Return the axis of the channels of `convert_layout`, at least 0."""
    if axis is None:
        if x.ndim == 2 and heads is None:
            expected = "heads= for weights (heads * D, ...), or axis=-1 for activations (..., D)"
            fail(ValueError, "x", "2 axes", expected)
        return x.ndim - 1 if heads is None else 0
    index = read.index("axis", axis, -x.ndim, x.ndim - 1)
    return index % x.ndim
