"""Rotations by several coordinates: rows and columns, time, height and width, or any others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import I64, Array, Float64
from .._core_api.door import door, fail, fail_value
from ..absolute.frequency import exact_frequencies
from ..absolute.rotated_pairs import Layout
from . import rotations
from .rotations import Angles, Frequencies, RopeGradient, Rotation
from .scaling import RopeFrequencies

Axes = Literal["concat", "blocks", "alternate"]
AXES: tuple[Axes, ...] = get_args(Axes)


@door
def rope_2d(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    axes: Axes = "concat",
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """Apply rotary position embeddings by row and column.

    `rope`, where half of the pairs are rotated by ``row * w`` and the other half by ``column * w``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys, with the tokens in any order.
    positions : array (2, N), (2, B, N) or (2, B, H, N)
        Row and column of each token, any integers or reals. The other axes are as in `rope`.
    frequencies : array (rotary_dim // 4,) or RopeFrequencies
        Radians per row or column. With "alternate" there are rotary_dim // 2 frequencies, and the ``rotary_dim`` of a
        RopeFrequencies is read; otherwise it is not.
    layout : {"half", "interleaved"}, optional
        As in `rope`.
    axes : {"concat", "blocks", "alternate"}
        The assignment of pairs to rows and columns.

        - ``"concat"``: the first half of the pairs is rotated by the row, the second half by the column, with the same
          frequencies.
        - ``"blocks"``: the first half of the channels is rotated by the row, the second half by the column, and each
          half has its own pairs. This differs from ``"concat"`` in the layout "half" only.
        - ``"alternate"``: as ``"concat"``, with frequencies 0, 2, 4, ... for the row and 1, 3, 5, ... for the column.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`. With ``"blocks"``, `out_layout` is the layout within each block.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError, ValueError
        As `rope`. Also for positions without a first axis of 2, and for rotated channels that are no multiple of 4.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 15, for each coordinate. References pair channels differently. Qwen2-VL's
    vision tower: "half", ``"concat"``. Gemma 4's: "half", ``"blocks"``. Pixtral: "half", ``"alternate"``.
    rotary-embedding-torch (axial), EVA-02, timm: "interleaved", ``"concat"``. In all of them the row comes before the
    column. Pixel coordinates in [-1, 1] or in [0, 1] are positions like any others.

    Examples
    --------
    Rotate the 2 x 3 patches of an image, stored row by row:

    >>> import numpy as np, posenc
    >>> patches = np.indices((2, 3)).reshape(2, -1)
    >>> q = np.ones((6, 8), np.float32)
    >>> posenc.rope_2d(q, patches, posenc.rope_frequencies(4), layout="half").shape
    (6, 8)
    """
    frequencies = _of_rows(frequencies, axes)
    rotation = rotations.read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles_2d(rotation, positions, frequencies, axes)
    if axes != "blocks":
        return rotation.rotate(rotation.table(angles), out)
    half = rotation.rotary_dim // 2
    row, column = (replace(rotation, rotary_dim=half, rotary_offset=rotation.rotary_offset + i) for i in (0, half))
    row_table, column_table = (row.table(angles._replace(positions=places)) for places in angles.positions)
    out = row.rotate(row_table, out)  # after both tables, because `out` may be the memory of positions or frequencies
    return replace(column, x=out).rotate(column_table, out)


@door
def rope_2d_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    axes: Axes = "concat",
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
) -> RopeGradient:
    """Return the gradients of `rope_2d`.

    As `rope_vjp`, but the gradient of a pair's angle contributes only to the coordinate that rotates the pair.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. See `rope_2d` for the other arguments.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` (2, ...) and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `rope_2d`. Also if `grad` does not have the shape of x.

    Notes
    -----
    With an attention_factor f the gradient with respect to x is f times the rotation by the negated angle, not the
    inverse.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> grad, x = np.array([[0.0, 0.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 0.0, 0.0]])
    >>> posenc.rope_2d_vjp(grad, x, np.zeros((2, 1)), [1.0], layout="half").positions
    array([[1.],
           [2.]])
    """
    frequencies = _of_rows(frequencies, axes)
    rotation = rotations.read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles_2d(rotation, positions, frequencies, axes)
    return _blocks_vjp(grad, rotation, angles) if axes == "blocks" else rotation.vjp(grad, angles)


def _blocks_vjp(grad: npt.ArrayLike, rotation: Rotation, angles: Angles) -> RopeGradient:
    """Return the gradients of x viewed as blocks, a sequence of 2 positions for each token."""
    places = rotation.coordinates_last(angles.positions)
    places = rotation.along_sequence(places.reshape((1,) * (rotation.x.ndim - places.ndim) + places.shape))
    half = rotation.rotary_dim // 2
    blocks = replace(rotation, x=_view_blocks(rotation, rotation.x), seq_axis=-2, rotary_dim=half, rotary_offset=0)
    grad = rotation.read_grad(grad)
    gradient = blocks.vjp(_view_blocks(rotation, grad), angles._replace(positions=places))
    d_x = np.array(grad)
    _view_blocks(rotation, d_x)[...] = gradient.x
    d_positions = np.moveaxis(gradient.positions, rotation.seq_axis, -2)  # (..., N, 2)
    d_positions = np.moveaxis(d_positions, -1, 0).reshape(angles.positions.shape)
    return RopeGradient(convert.result(d_x, rotation.x.dtype), np.ascontiguousarray(d_positions), gradient.frequencies)


def _view_blocks(rotation: Rotation, array: Array) -> Array:
    """View the rotated channels as (..., 2, rotary_dim // 2): one row for each block."""
    channels = array[..., rotation.rotary_offset : rotation.rotary_offset + rotation.rotary_dim]
    return channels.reshape(*array.shape[:-1], 2, rotation.rotary_dim // 2)


def _of_rows(frequencies: Frequencies, axes: Axes) -> Frequencies:
    """Return frequencies whose rotary_dim counts the channels of x, not those of one coordinate."""
    read.choice("axes", axes, AXES)
    if axes == "alternate" or not isinstance(frequencies, RopeFrequencies):
        return frequencies
    return replace(frequencies, rotary_dim=None)


def _angles_2d(rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies, axes: Axes) -> Angles:
    """Return the angles of the pairs in the order of the channels of `axes`; those of one block for "blocks"."""
    positions, pairs = rotation.coordinates(positions, 2), rotation.rotary_dim // 2
    if axes == "alternate":
        w, factor = rotation.frequencies(frequencies)
        place = np.concatenate([np.arange(0, pairs, 2), np.arange(1, pairs, 2)])
        return Angles.of_pairs(positions, w, factor, place % 2, place)
    if pairs % 2:
        expected = "a multiple of 4, so that both coordinates rotate as many pairs"
        fail(ValueError, "x", f"{rotation.rotary_dim} rotated channels", expected)
    w, factor = rotation.frequencies(frequencies, 4)
    if axes == "blocks":
        return Angles(positions, w, factor)
    return Angles.of_pairs(positions, w, factor, *np.divmod(np.arange(pairs), pairs // 2))


@door
def mrope(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    sections: Iterable[int],
    interleaved: bool = False,
    overflow: int = 0,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """Apply multimodal rotary position embeddings (M-RoPE).

    Pair k is rotated as in `rope`, by the angle ``positions[a(k)] * w[k]``: a(k) is 0 (time), 1 (height) or 2 (width).

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    positions : array (3, N), (3, B, N) or (3, B, H, N)
        Time, height and width of each token; for a token of text all three are equal. After the first axis, the
        axes are as in `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        w, as in `rope`. The frequency of a pair does not depend on the coordinate that rotates the pair.
    layout : {"half", "interleaved"}, optional
        As in `rope`.
    sections : three integers
        Sizes of the sections of time, height and width. They add up to rotary_dim // 2.
    interleaved : bool
        If False, a(k) is 0 for the first ``sections[0]`` pairs, 1 for the next ``sections[1]`` and 2 for the last
        ``sections[2]``. If True, a(k) is ``k % 3`` where ``k < 3 * sections[k % 3]``, and `overflow` for the other
        pairs; then a coordinate may rotate more or fewer pairs than its section has.
    overflow : {0, 1, 2}
        The coordinate of the pairs with ``k >= 3 * sections[k % 3]``. Used only if `interleaved` is True.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64. Where the three coordinates are equal, the result equals the
        result of `rope`, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As `rope`. Also for positions without a first axis of 3, and for sections that do not add up.

    Notes
    -----
    Wang et al. 2024 (Qwen2-VL), section 2.1: sections that are not interleaved, such as [16, 24, 24]. Qwen3-VL
    interleaves sections of [24, 20, 20], and time also rotates pairs 61 and 62, as here with ``overflow=0``. In
    llama.cpp a fourth coordinate, which is 0 in text, rotates these two pairs.

    Examples
    --------
    For text the result equals the result of `rope`:

    >>> import numpy as np, posenc
    >>> x, w = np.ones((5, 16)), posenc.rope_frequencies(16)
    >>> text = np.broadcast_to(np.arange(5), (3, 5))
    >>> same = posenc.mrope(x, text, w, layout="half", sections=(2, 3, 3)) == posenc.rope(x, 5, w, layout="half")
    >>> bool(same.all())
    True
    """
    rotation = rotations.read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles_by_sections(rotation, positions, frequencies, sections, interleaved, overflow)
    return rotation.rotate(rotation.table(angles), out)


@door
def mrope_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    sections: Iterable[int],
    interleaved: bool = False,
    overflow: int = 0,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
) -> RopeGradient:
    """Return the gradients of `mrope`.

    As `rope_vjp`, but the gradient of a pair's angle contributes only to the coordinate that rotates the pair.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. See `mrope` for the other arguments.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` (3, ...) and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `mrope`. Also if `grad` does not have the shape of x.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> grad, x = np.array([[0.0] * 3 + [1.0] * 3]), np.array([[1.0, 2.0, 3.0] + [0.0] * 3])
    >>> g = posenc.mrope_vjp(grad, x, np.zeros((3, 1)), np.ones(3), layout="half", sections=(1, 1, 1))
    >>> g.positions[:, 0]
    array([1., 2., 3.])
    """
    rotation = rotations.read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles_by_sections(rotation, positions, frequencies, sections, interleaved, overflow)
    return rotation.vjp(grad, angles)


def _angles_by_sections(
    rotation: Rotation,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    sections: Iterable[int],
    interleaved: bool,
    overflow: int,
) -> Angles:
    """Return the angles of pairs that have one coordinate each: 0 for time, 1 for height, 2 for width."""
    positions, (w, factor) = rotation.coordinates(positions, 3), rotation.frequencies(frequencies)
    counts, k = _read_integers("sections", sections, "three integers"), np.arange(len(w))
    if len(counts) != 3 or sum(counts) != len(w):
        expected = f"three numbers that add up to rotary_dim // 2 = {len(w)}"
        fail(ValueError, "sections", f"{counts}, {sum(counts)} pairs", expected)
    overflow = read.index("overflow", overflow, 0)
    if overflow > 2:
        fail_value(ValueError, "overflow", overflow, "0, 1 or 2, a row of positions")
    if read.flag("interleaved", interleaved):
        coordinate = np.where(k < 3 * np.array(counts, I64)[k % 3], k % 3, overflow)
    else:
        coordinate = np.repeat(np.arange(3), counts)
    return Angles.of_pairs(positions, w, factor, coordinate)


def _read_integers(argument: str, values: Iterable[int], expected: str) -> list[int]:
    is_scalar = getattr(values, "ndim", 1) == 0  # an array without axes is an Iterable
    if not isinstance(values, Iterable) or isinstance(values, str | bytes) or is_scalar:
        fail(TypeError, argument, f"type {type(values).__name__}", expected)
    return [read.index(argument, value, 0, read.MOST_CHANNELS) for value in values]


@door
def axial_frequencies(dims: Sequence[int], *, base: float | Sequence[float] = 10000.0) -> Float64:
    """Return frequencies for `rope_nd`, where each pair belongs to one coordinate.

    Coordinate a rotates dims[a] // 2 pairs, by ``base[a]**(-2 i / dims[a])``; its other frequencies are 0.

    Parameters
    ----------
    dims : sequence of A integers
        Channels that each coordinate rotates, even.
    base : float, or sequence of A floats
        Positive. One for all coordinates, or one for each.

    Returns
    -------
    ndarray of float64, shape (A, sum(dims) // 2)

    Raises
    ------
    TypeError, ValueError
        Widths that are odd or all 0, bases that are not positive or not A of them.

    Notes
    -----
    The ladder of each axis starts at 1. This is the encoding of FLUX, with dims (16, 56, 56), of Qwen-Image,
    HunyuanVideo and Wan.

    Examples
    --------
    >>> import posenc
    >>> posenc.axial_frequencies((2, 4))
    array([[1.  , 0.  , 0.  ],
           [0.  , 1.  , 0.01]])
    """
    widths = _read_integers("dims", dims, "a sequence of integers")
    if sum(widths) == 0 or any(width % 2 for width in widths):
        fail(ValueError, "dims", f"{widths}", "even widths, not all 0")
    has_axis = isinstance(base, Iterable) and getattr(base, "ndim", None) != 0
    bases = list(cast("Iterable[float]", base)) if has_axis else [cast("float", base)] * len(widths)
    if len(bases) != len(widths):
        fail(ValueError, "base", f"{len(bases)} entries", f"{len(widths)}, as dims")
    read.check_table_size(len(widths) * sum(widths) // 2, dims=max(widths))
    result = np.zeros((len(widths), sum(widths) // 2))
    first = 0
    for axis, (width, base_of_axis) in enumerate(zip(widths, bases, strict=True)):
        if width:
            result[axis, first : first + width // 2] = exact_frequencies(width, base_of_axis, "dim")[0]
        first += width // 2
    return result


def _angles_nd(rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies) -> Angles:
    pairs = rotation.rotary_dim // 2
    w, factor = rotation.unpack(frequencies)
    array = _core.read("f64 frequencies()", frequencies=w)
    if array.ndim not in (2, 3) or array.shape[-1] != pairs or not len(array):
        expected = f"(A, {pairs}) or (A, H, {pairs}), coordinates and pairs"
        fail(ValueError, "frequencies", f"shape {array.shape}", expected)
    if array.ndim == 3:
        heads = np.moveaxis(rotation.x, rotation.seq_axis, -2).shape[-3] if rotation.x.ndim > 2 else 0
        if array.shape[1] != heads:
            fail(ValueError, "frequencies", f"{array.shape[1]} heads", f"{heads}, as {rotation.argument}")
    return Angles(rotation.coordinates(positions, len(array)), array, factor)


@door
def rope_nd(
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
    out: Array | None = None,
) -> Array:
    """Apply rotary position embeddings by several coordinates.

    `rope`, where pair k is rotated by the angle ``sum_a positions[a] * frequencies[a, k]``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys, with the tokens in any order.
    positions : array (A, N), (A, B, N) or (A, B, H, N)
        The coordinates of each token, any integers or reals. The other axes are as in `rope`.
    frequencies : array (A, rotary_dim // 2) or (A, H, rotary_dim // 2), or RopeFrequencies of one
        Angular frequencies of each coordinate, for all heads or for each head. The axis of heads of x is the one before
        the sequence axis, or after it with ``seq_axis=-3``. `axial_frequencies` gives each coordinate its own pairs.
    layout : {"half", "interleaved"}, optional
        As in `rope`. The array of `axial_frequencies` has no layout.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError, ValueError
        As `rope`. Also for positions and frequencies of different A, and for frequencies of another number of heads.

    Notes
    -----
    Frequencies with one coordinate per pair are the axial encodings of Black Forest Labs 2024 (FLUX), Qwen-Image, Wan
    and HunyuanVideo. Learned frequencies in which all coordinates take part are RoPE-Mixed (Heo et al. 2024, Rotary
    Position Embedding for Vision Transformer, equation 9). `rope_2d` and `mrope` are special cases. Angles are added in
    double precision after each was reduced to a fraction of a turn.

    Examples
    --------
    Two frames of 2 x 3 patches, as a video model rotates them:

    >>> import numpy as np, posenc
    >>> positions = np.indices((2, 2, 3)).reshape(3, -1)  # time, row, column of each patch
    >>> w = posenc.axial_frequencies((8, 12, 12))
    >>> x = np.ones((4, 12, 32), np.float32)
    >>> posenc.rope_nd(x, positions, w, layout="interleaved").shape
    (4, 12, 32)

    A patch that is moved along a coordinate of frequency 0 stays as it is:

    >>> posenc.rope_nd(np.array([[1.0, 0.0]]), [[5.0], [np.pi]], [[0.0], [0.5]], layout="half").round(3)
    array([[0., 1.]])
    """
    rotation = rotations.read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    return rotation.rotate(rotation.table(_angles_nd(rotation, positions, frequencies)), out)


@door
def rope_nd_vjp(
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
) -> RopeGradient:
    """Return the gradients of `rope_nd`.

    ``dpositions[a] = sum_k frequencies[a, k] dtheta[k]``, ``dfrequencies[a] = sum_n positions[a] dtheta``

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. See `rope_nd` for the other arguments.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `rope_nd`. Also if `grad` does not have the shape of x.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> grad, x = np.array([[0.0, 1.0]]), np.array([[2.0, 0.0]])
    >>> g = posenc.rope_nd_vjp(grad, x, np.zeros((2, 1)), [[3.0], [5.0]], layout="half")
    >>> g.positions
    array([[ 6.],
           [10.]])
    """
    rotation = rotations.read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    return rotation.vjp(grad, _angles_nd(rotation, positions, frequencies))
