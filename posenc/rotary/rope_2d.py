"""Rotary position embeddings by row and column, for images."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, Float64, cast_result, check_choice, fail, finish_out, prepare_out
from .._core_api.variant import in_one_isa
from ._coordinates import Indices, coordinates_first, read_coordinates, table_by_coordinate
from ._rotation import Frequencies, Layout, Rotation, read_rotation
from .rope import RopeGradient

__all__ = ["rope_2d", "rope_2d_vjp"]

Axes = Literal["concat", "blocks", "alternate"]
AXES: tuple[Axes, ...] = get_args(Axes)


def _indices_of_pairs(axes: Axes, pairs: int) -> tuple[Indices, Indices]:
    """Return the coordinate (0 for the row, 1 for the column) and the frequency of each pair."""
    if axes == "concat":
        return np.repeat(np.arange(2), pairs // 2), np.tile(np.arange(pairs // 2), 2)
    k = np.concatenate([np.arange(0, pairs, 2), np.arange(1, pairs, 2)])
    return k % 2, k


def _read_angles(
    rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies, axes: Axes
) -> tuple[Array, Float64, float]:
    """Return positions (2, ..., N), the frequencies as the user wrote them, and the attention_factor."""
    positions = read_coordinates(rotation, positions, 2)
    if axes == "alternate":
        return positions, *rotation.frequencies(frequencies)
    if rotation.rotary_dim % 4:
        expected = "a multiple of 4, so that both coordinates rotate as many pairs"
        fail(ValueError, rotation.function, "x", f"{rotation.rotary_dim} rotated channels", expected)
    return positions, *rotation.frequencies(frequencies, 4)


def _angles(
    rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies, axes: Axes
) -> tuple[Array, Array, Float64]:
    """Return the table, positions (..., N, 2) and frequencies (2, pairs)."""
    positions, frequencies, factor = _read_angles(rotation, positions, frequencies, axes)
    coordinate_of_pair, frequency_of_pair = _indices_of_pairs(axes, rotation.rotary_dim // 2)
    return table_by_coordinate(rotation, positions, frequencies[frequency_of_pair], factor, coordinate_of_pair)


def _view_blocks(rotation: Rotation, array: Array) -> Array:
    """View the rotated channels as (..., 2, rotary_dim // 2): one row for each block."""
    channels = array[..., rotation.rotary_offset : rotation.rotary_offset + rotation.rotary_dim]
    return channels.reshape(*array.shape[:-1], 2, rotation.rotary_dim // 2)


def _block_angles(
    rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies
) -> tuple[Rotation, Array, Array, Float64]:
    """Return the rotation of x viewed as blocks, its table, positions (..., N, 2) and frequencies.

    The row of a token rotates the first block, the column the second: `rope` with 2 positions for each token.
    """
    positions, frequencies, factor = _read_angles(rotation, positions, frequencies, "blocks")
    positions = np.moveaxis(positions, 0, -1)
    x = _view_blocks(rotation, rotation.x)
    blocks = replace(rotation, x=x, seq_axis=-2, rotary_dim=rotation.rotary_dim // 2, rotary_offset=0)
    table = blocks.table(rotation.along_sequence(positions), frequencies, factor)
    return blocks, table, positions, frequencies


def _rotate_blocks(rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies, out: Array | None) -> Array:
    function, x = rotation.function, rotation.x
    blocks, table, _, _ = _block_angles(rotation, positions, frequencies)
    result, buffer = prepare_out(function, out, x.shape, x.dtype, (x,), in_place=True)
    first, end = rotation.rotary_offset, rotation.rotary_offset + rotation.rotary_dim
    buffer[..., :first] = x[..., :first]
    buffer[..., end:] = x[..., end:]
    _core.rope(
        function, x=blocks.x, table=table, out=_view_blocks(rotation, buffer), offset=0,
        interleaved=rotation.interleaved, out_interleaved=rotation.out_interleaved, caller_out=out is not None,
    )  # fmt: skip
    return finish_out(result, buffer)


@in_one_isa
def rope_2d(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout,
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
    positions : array (2, N), or (2, ...) with as many axes as x
        Row and column of each token, any integers or reals. The axes after the first are those of positions in `rope`.
    frequencies : array or RopeFrequencies
        Radians per row or column: rotary_dim // 4 of them, or rotary_dim // 2 with "alternate".
    layout : {"half", "interleaved"}
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
    function = "rope_2d"
    check_choice(function, "axes", axes, AXES)
    rotation = read_rotation(function, x, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    if axes == "blocks":
        return _rotate_blocks(rotation, positions, frequencies, out)
    table, _, _ = _angles(rotation, positions, frequencies, axes)
    return rotation.rotate(table, out)


@in_one_isa
def rope_2d_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout,
    axes: Axes = "concat",
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
) -> RopeGradient:
    """Return the gradients of `rope_2d`.

    Those of `rope_vjp` for each pair, where ``dtheta`` belongs to the coordinate that rotates the pair.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. The other arguments are those of `rope_2d`.

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
    function = "rope_2d_vjp"
    check_choice(function, "axes", axes, AXES)
    rotation = read_rotation(function, x, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    if axes == "blocks":
        return _blocks_vjp(grad, rotation, positions, frequencies)
    d_x, d_positions, d_spread = rotation.vjp(grad, *_angles(rotation, positions, frequencies, axes))
    pairs = d_spread.shape[-1]
    coordinate_of_pair, frequency_of_pair = _indices_of_pairs(axes, pairs)
    d_frequencies = np.zeros(int(frequency_of_pair.max()) + 1)
    np.add.at(d_frequencies, frequency_of_pair, d_spread[coordinate_of_pair, np.arange(pairs)])
    return RopeGradient(d_x, coordinates_first(d_positions), d_frequencies)


def _blocks_vjp(
    grad: npt.ArrayLike, rotation: Rotation, positions: npt.ArrayLike, frequencies: Frequencies
) -> RopeGradient:
    blocks, table, positions, frequencies = _block_angles(rotation, positions, frequencies)
    grad, along = rotation.read_grad(grad), rotation.along_sequence(positions)
    d_blocks, d_along, d_frequencies = blocks.vjp(
        _view_blocks(rotation, grad), table, along[..., None], frequencies[None]
    )
    d_x = np.array(grad)
    _view_blocks(rotation, d_x)[...] = d_blocks
    d_positions = np.moveaxis(d_along[..., 0], rotation.seq_axis, -2).reshape(positions.shape)
    return RopeGradient(cast_result(d_x, rotation.x.dtype), coordinates_first(d_positions), d_frequencies[0])
