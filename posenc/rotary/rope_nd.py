"""Rotary position embeddings by any number of coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import MOST_CHANNELS, Array, Float64, as_index, check_table_size, door, fail
from ..absolute.frequency import exact_frequencies
from ..absolute.rotated_pairs import Layout
from .rotation import Angles, RopeGradient, Rotation, read_rotation


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
    is_array = isinstance(dims, np.ndarray) and dims.ndim > 0
    if not (is_array or isinstance(dims, Sequence)) or isinstance(dims, str):
        fail(TypeError, "dims", f"type {type(dims).__name__}", "a sequence of integers")
    widths = [as_index("dims", width, 0, MOST_CHANNELS) for width in dims]
    if sum(widths) == 0 or any(width % 2 for width in widths):
        fail(ValueError, "dims", f"{widths}", "even widths, not all 0")
    has_axis = isinstance(base, Iterable) and getattr(base, "ndim", None) != 0
    bases = list(cast("Iterable[float]", base)) if has_axis else [cast("float", base)] * len(widths)
    if len(bases) != len(widths):
        fail(ValueError, "base", f"{len(bases)} entries", f"{len(widths)}, as dims")
    check_table_size(len(widths) * sum(widths) // 2, dims=max(widths))
    result = np.zeros((len(widths), sum(widths) // 2))
    first = 0
    for axis, (width, own_base) in enumerate(zip(widths, bases, strict=True)):
        if width:
            result[axis, first : first + width // 2] = exact_frequencies(width, own_base, "dim")[0]
        first += width // 2
    return result


def _angles(rotation: Rotation, positions: npt.ArrayLike, frequencies: npt.ArrayLike) -> Angles:
    pairs = rotation.rotary_dim // 2
    array = _core.read("f64 frequencies()", frequencies=frequencies)
    if array.ndim not in (2, 3) or array.shape[-1] != pairs:
        expected = f"(A, {pairs}) or (A, H, {pairs}), coordinates and pairs"
        fail(ValueError, "frequencies", f"shape {array.shape}", expected)
    if array.ndim == 3:
        heads = np.moveaxis(rotation.x, rotation.seq_axis, -2).shape[-3] if rotation.x.ndim > 2 else 0
        if array.shape[1] != heads:
            fail(ValueError, "frequencies", f"{array.shape[1]} heads", f"{heads}, as {rotation.argument}")
    return Angles(rotation.coordinates(positions, len(array)), array)


@door
def rope_nd(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: npt.ArrayLike,
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
    frequencies : array (A, rotary_dim // 2) or (A, H, rotary_dim // 2)
        Angular frequencies of each coordinate, for all heads or for each head. The axis of heads of x is the one before
        the sequence axis, or after it with ``seq_axis=-3``. `axial_frequencies` gives each coordinate its own pairs.
    layout : {"half", "interleaved"}, optional
        As in `rope`. It is required, because `axial_frequencies` has no layout.
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
    rotation = read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    return rotation.rotate(rotation.table(_angles(rotation, positions, frequencies)), out)


@door
def rope_nd_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: npt.ArrayLike,
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
    rotation = read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles(rotation, positions, frequencies)
    return rotation.vjp(grad, rotation.table(angles), angles)
