"""Rotations by several coordinates: rows and columns, time, height and width, or any others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import I64, Array, Dtype, Float64
from .._core_api.door import door, fail
from ..absolute.frequency import exact_frequencies
from ..absolute.rotated_pairs import Layout, halves, with_heads
from .rotations import Frequencies, Options, RopeGradient, gradient, read_options, unpack
from .scaling import RopeFrequencies


@door
def mrope_frequencies(
    frequencies: Frequencies, sections: Iterable[int], *, interleaved: bool = False, overflow: int = 0
) -> Float64 | RopeFrequencies:
    """Return frequencies for `rope_nd`, where sections of the pairs belong to coordinates (M-RoPE).

    Pair k is rotated by coordinate a(k): ``result[a(k), k] = frequencies[k]``, and all other frequencies are 0.

    Parameters
    ----------
    frequencies : array (pairs,) or RopeFrequencies
        Radians per position of each pair, as for `rope`. They do not depend on the coordinate that rotates the pair.
    sections : sequence of A integers
        Numbers of pairs of each coordinate, mostly of time, height and width. They add up to the number of pairs.
    interleaved : bool
        If False, a(k) is 0 for the first ``sections[0]`` pairs, 1 for the next ``sections[1]``, and so on. If True,
        a(k) is ``k % A`` where ``k < A * sections[k % A]``, and `overflow` for the other pairs; then a coordinate may
        rotate more or fewer pairs than its section has.
    overflow : int
        The coordinate of the pairs with ``k >= A * sections[k % A]``. Used only if `interleaved` is True.

    Returns
    -------
    ndarray of float64 (A, pairs), or RopeFrequencies
        A RopeFrequencies, with these ``inv_freq``, if `frequencies` is one: its factors, layout and rotary_dim are
        kept.

    Raises
    ------
    TypeError, ValueError
        Sections that are no integers of at least 0, or that do not add up to the number of pairs; no such coordinate.

    Notes
    -----
    Wang et al. 2024 (Qwen2-VL), section 2.1: sections that are not interleaved, such as (16, 24, 24). Qwen3-VL
    interleaves sections of (24, 20, 20), and time also rotates pairs 61 and 62, as here with ``overflow=0``. In
    llama.cpp a fourth coordinate, which is 0 in text, rotates these two pairs. A token of text has equal coordinates,
    and `rope_nd` rotates it as `rope` does, bit for bit.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.mrope_frequencies([1.0, 0.1, 0.01, 0.001], (2, 1, 1))
    array([[1.   , 0.1  , 0.   , 0.   ],
           [0.   , 0.   , 0.01 , 0.   ],
           [0.   , 0.   , 0.   , 0.001]])

    For text the result equals the result of `rope`:

    >>> x, w = np.ones((5, 16)), posenc.rope_frequencies(16)
    >>> text = np.broadcast_to(np.arange(5), (3, 5))
    >>> rotated = posenc.rope_nd(x, text, posenc.mrope_frequencies(w, (2, 3, 3)), layout="half")
    >>> bool((rotated == posenc.rope(x, 5, w, layout="half")).all())
    True
    """
    w: Float64 = _core.read("f64 frequencies(e) finite alone", frequencies=unpack(frequencies)[0])
    counts, k = np.array(_read_integers("sections", sections), I64), np.arange(len(w))
    axes = len(counts)
    if not axes or counts.sum() != len(w):
        expected = f"numbers that add up to {len(w)}, the number of frequencies"
        fail(ValueError, "sections", f"{counts.tolist()}, {counts.sum()} pairs", expected)
    overflow = read.index("overflow", overflow, 0, axes - 1)
    if read.flag("interleaved", interleaved):
        coordinate = np.where(k < axes * counts[k % axes], k % axes, overflow)
    else:
        coordinate = np.repeat(np.arange(axes), counts)
    result = np.zeros((axes, len(w)))
    result[coordinate, k] = w
    return replace(frequencies, inv_freq=result) if isinstance(frequencies, RopeFrequencies) else result


def _read_integers(argument: str, values: Iterable[int]) -> list[int]:
    is_scalar = getattr(values, "ndim", 1) == 0  # an array without axes is an Iterable
    if not isinstance(values, Iterable) or isinstance(values, str | bytes) or is_scalar:
        fail(TypeError, argument, f"type {type(values).__name__}", "a sequence of integers")
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
    The ladder of each coordinate starts at 1. FLUX (Black Forest Labs 2024) has dims (16, 56, 56); Qwen-Image,
    HunyuanVideo and Wan rotate by time, row and column in the same way. The vision towers of Qwen2-VL, in the layout
    "half", and EVA-02, timm and rotary-embedding-torch, "interleaved", have two equal dims, for row and column.

    Examples
    --------
    >>> import posenc
    >>> posenc.axial_frequencies((2, 4))
    array([[1.  , 0.  , 0.  ],
           [0.  , 1.  , 0.01]])
    """
    widths = _read_integers("dims", dims)
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
        the sequence axis, or after it with ``seq_axis=-3``. `axial_frequencies` and `mrope_frequencies` give each pair
        one coordinate.
    layout : {"half", "interleaved"}, optional
        As in `rope`. An array has no layout.
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
    A scheme is its frequencies. With one coordinate per pair they are those of `axial_frequencies` (FLUX, EVA-02, timm)
    or of `mrope_frequencies` (Qwen2-VL). Learned frequencies in which all coordinates take part are RoPE-Mixed (Heo et
    al. 2024, Rotary Position Embedding for Vision Transformer, equation 9). Pixel coordinates in [-1, 1] or in [0, 1]
    are positions like any others. Angles are added in double precision after each was reduced to a fraction of a turn.

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
    w, factor, options = read_options(frequencies, layout, rotary_dim, rotary_offset, out_layout, seq_axis)
    x, table, _, _ = _read(x, positions, w, factor, inverse, options)
    cos, sin = halves(table)
    return _core.rope(x=x, cos=cos, sin=sin, out=out, **options)


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

    ``dpositions[a] = sum_k frequencies[a, k] dtheta[k]``, ``dfrequencies[a] = sum_n positions[a] dtheta``, with the
    dtheta of `rope_vjp`.

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
    w, factor, options = read_options(frequencies, layout, rotary_dim, rotary_offset, out_layout, seq_axis)
    x, table, positions, w = _read(x, positions, w, factor, inverse, options)
    found = gradient(grad, x, options, table, positions, w)
    return RopeGradient(found.x, -found.positions, -found.frequencies) if inverse else found


def _read(
    x: npt.ArrayLike, positions: npt.ArrayLike, w: npt.ArrayLike, factor: float, inverse: bool, options: Options
) -> tuple[Array, Array, Array, Float64]:
    """Return x, the table [cos | sin] that rotates it, positions (A, ..., N) and frequencies."""
    w, positions = _core.read("f64 frequencies()", frequencies=w), _core.read("pos positions()", positions=positions)
    if w.ndim not in (2, 3) or not len(w):
        expected = "(A, rotary_dim // 2) or (A, H, rotary_dim // 2), coordinates and pairs"
        fail(ValueError, "frequencies", f"shape {w.shape}", expected)
    if positions.ndim < 2 or len(positions) != len(w):
        expected = "({0}, N), ({0}, B, N) or ({0}, B, H, N): one row for each coordinate".format(len(w))
        fail(ValueError, "positions", f"shape {positions.shape}", expected)
    x, *_ = _core.read(
        "rope_positions",
        x=x,
        positions=positions[0],
        frequencies=np.zeros(w.shape[-1]),  # as many as there are
        inverse=inverse,
        attention_factor=factor,
        **options,
    )
    if w.ndim == 3:
        heads = np.moveaxis(x, options["seq_axis"], -2).shape[-3] if x.ndim > 2 else 0
        if w.shape[1] != heads:
            fail(ValueError, "frequencies", f"{w.shape[1]} heads", f"{heads}, as x")
    scale = 1 / factor if inverse else factor
    return x, _table(positions, w, x, scale, -scale if inverse else scale), positions, w


def _table(positions: Array, frequencies: Float64, x: Array, cosine_scale: float, sine_scale: float) -> Array:
    """Return [cos | sin] (..., N, 2 pairs) of the sums of angles, times their scales, in the arithmetic of x."""
    dtype = convert.arithmetic(x)
    if frequencies.ndim == 2:
        coordinate = (frequencies != 0).argmax(axis=0)
        w = frequencies[coordinate, np.arange(frequencies.shape[1])]
        if np.count_nonzero(w) == np.count_nonzero(frequencies):  # a pair has one coordinate
            return _table_by_coordinate(positions, w, coordinate, dtype, cosine_scale, sine_scale)
    else:
        positions = np.stack([with_heads(one, x.ndim - 1) for one in positions])
        frequencies = np.moveaxis(frequencies, 0, 1)[:, None]  # (H, 1, A, pairs)
    return _core.rotation_table(
        positions=np.moveaxis(positions, 0, -1),
        frequencies=frequencies,
        sine_scale=sine_scale,
        cosine_scale=cosine_scale,
        t=2 * frequencies.shape[-1],
        dtype=dtype,
    )


def _table_by_coordinate(
    positions: Array, frequencies: Float64, coordinate: Array, dtype: Dtype, cosine_scale: float, sine_scale: float
) -> Array:
    """Return the table of pairs that have one coordinate each."""
    pairs = len(frequencies)
    table = np.empty((*positions.shape[1:], 2 * pairs), dtype)
    order = coordinate.argsort(kind="stable")
    first = coordinate[order].searchsorted(np.arange(len(positions) + 1))
    for axis, (begin, end) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
        if begin < end:
            _core.sinusoid(  # Each call clears the columns right of its own.
                positions=positions[axis],
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
