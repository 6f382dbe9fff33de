"""Rotary position embeddings by row and column, for images."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, cast_result, check_choice, door, fail
from ..absolute.rotated_pairs import Layout, halves
from .rotation import Angles, Frequencies, RopeGradient, Rotation, read_rotation
from .scaling import RopeFrequencies

Axes = Literal["concat", "blocks", "alternate"]
AXES: tuple[Axes, ...] = get_args(Axes)


def _one_coordinate(frequencies: Frequencies, axes: Axes) -> Frequencies:
    """Return frequencies whose rotary_dim counts the channels of x, not those of one coordinate."""
    if axes == "alternate" or not isinstance(frequencies, RopeFrequencies):
        return frequencies
    return replace(frequencies, rotary_dim=None)


def _angles(rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies, axes: Axes) -> Angles:
    """Return the angles of the pairs in the order of the channels of `axes`; those of one block for "blocks"."""
    positions, pairs = rotation.coordinates(positions, 2), rotation.rotary_dim // 2
    if axes == "alternate":
        w, factor = rotation.frequencies(frequencies)
        source = np.concatenate([np.arange(0, pairs, 2), np.arange(1, pairs, 2)])
        return Angles(positions, w[source], factor, source % 2, source)
    if pairs % 2:
        expected = "a multiple of 4, so that both coordinates rotate as many pairs"
        fail(ValueError, "x", f"{rotation.rotary_dim} rotated channels", expected)
    w, factor = rotation.frequencies(frequencies, 4)
    if axes == "blocks":
        return Angles(positions, w, factor)
    coordinate, source = np.divmod(np.arange(pairs), pairs // 2)
    return Angles(positions, w[source], factor, coordinate, source)


def _view_blocks(rotation: Rotation, array: Array) -> Array:
    """View the rotated channels as (..., 2, rotary_dim // 2): one row for each block."""
    channels = array[..., rotation.rotary_offset : rotation.rotary_offset + rotation.rotary_dim]
    return channels.reshape(*array.shape[:-1], 2, rotation.rotary_dim // 2)


def _blocks(rotation: Rotation, angles: Angles) -> tuple[Rotation, Angles]:
    """Return the rotation of x viewed as blocks, a sequence of 2 positions for each token, and its angles."""
    x = _view_blocks(rotation, rotation.x)
    blocks = Rotation(
        x, -2, rotation.rotary_dim // 2, 0,
        rotation.interleaved, rotation.out_interleaved, rotation.inverse, rotation.argument,
    )  # fmt: skip
    places = rotation.coordinates_last(angles.positions)
    places = rotation.along_sequence(places.reshape((1,) * (rotation.x.ndim - places.ndim) + places.shape))
    return blocks, Angles(places, angles.frequencies, angles.factor)


def _rotate_blocks(rotation: Rotation, angles: Angles, out: Array | None) -> Array:
    caller_out = out is not None
    x, out = _core.read("rope", x=rotation.x, out=out)
    if out is not x and np.may_share_memory(out, x):
        rotation = replace(rotation, x=x.copy())
    blocks, of_blocks = _blocks(rotation, angles)
    cos, sin = halves(blocks.table(of_blocks))
    _core.rope(
        x=blocks.x, cos=cos, sin=sin, out=_view_blocks(rotation, out), offset=0,
        interleaved=rotation.interleaved, out_interleaved=rotation.out_interleaved, caller_out=caller_out,
    )  # fmt: skip
    for rest in (slice(rotation.rotary_offset), slice(rotation.rotary_offset + rotation.rotary_dim, None)):
        out[..., rest] = rotation.x[..., rest]
    return out


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
    check_choice("axes", axes, AXES)
    w = _one_coordinate(frequencies, axes)
    rotation = read_rotation(x, w, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles(rotation, positions, w, axes)
    return _rotate_blocks(rotation, angles, out) if axes == "blocks" else rotation.rotate(rotation.table(angles), out)


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
    check_choice("axes", axes, AXES)
    w = _one_coordinate(frequencies, axes)
    rotation = read_rotation(x, w, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles(rotation, positions, w, axes)
    return (
        _blocks_vjp(grad, rotation, angles) if axes == "blocks" else rotation.vjp(grad, rotation.table(angles), angles)
    )


def _blocks_vjp(grad: npt.ArrayLike, rotation: Rotation, angles: Angles) -> RopeGradient:
    blocks, of_blocks = _blocks(rotation, angles)
    grad = rotation.read_grad(grad)
    found = blocks.vjp(_view_blocks(rotation, grad), blocks.table(of_blocks), of_blocks)
    d_x = np.array(grad)
    _view_blocks(rotation, d_x)[...] = found.x
    d_positions = np.moveaxis(found.positions, rotation.seq_axis, -2)  # (..., N, 2)
    d_positions = np.moveaxis(d_positions, -1, 0).reshape(angles.positions.shape)
    return RopeGradient(cast_result(d_x, rotation.x.dtype), np.ascontiguousarray(d_positions), found.frequencies)
