"""Rotary position embeddings by time, height and width, for text with images and video."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Array, Float64, as_index, fail, fail_value
from .._core_api.variant import in_one_isa
from ._coordinates import Indices, coordinates_first, read_coordinates, table_by_coordinate
from ._rotation import Frequencies, Layout, Rotation, read_rotation
from .rope import RopeGradient

__all__ = ["mrope", "mrope_vjp"]


def _coordinate_of_pair(rotation: Rotation, sections: Any, interleaved: bool, overflow: int) -> Indices:
    """Return the coordinate that rotates each pair."""
    function, pairs = rotation.function, rotation.rotary_dim // 2
    if not isinstance(sections, Iterable) or isinstance(sections, str | bytes):
        fail(TypeError, function, "sections", f"type {type(sections).__name__}", "three integers")
    counts = [as_index(function, "sections", count, 0) for count in sections]
    if len(counts) != 3 or sum(counts) != pairs:
        expected = f"three numbers that add up to rotary_dim // 2 = {pairs}"
        fail(ValueError, function, "sections", f"{counts}, {sum(counts)} pairs", expected)
    overflow = as_index(function, "overflow", overflow, 0)
    if overflow > 2:
        fail_value(ValueError, function, "overflow", overflow, "0, 1 or 2, a row of positions")
    if not interleaved:
        return np.repeat(np.arange(3), counts)
    k = np.arange(pairs)
    return np.where(k < 3 * np.array(counts, I64)[k % 3], k % 3, overflow)


def _angles(
    rotation: Rotation,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    sections: Any,
    interleaved: bool,
    overflow: int,
) -> tuple[Array, Array, Float64, Indices]:
    """Return the table, positions (..., N, 3), frequencies (3, pairs), and the coordinate of each pair."""
    positions = read_coordinates(rotation, positions, 3)
    frequencies, factor = rotation.frequencies(frequencies)
    coordinate_of_pair = _coordinate_of_pair(rotation, sections, interleaved, overflow)
    return *table_by_coordinate(rotation, positions, frequencies, factor, coordinate_of_pair), coordinate_of_pair


@in_one_isa
def mrope(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout,
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

    `rope`, where pair k is rotated by ``positions[a(k)] * w[k]``, and the coordinate a(k) is time, height or width.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    positions : array (3, N), or (3, ...) with as many axes as x
        Time, height and width of each token; all three are equal for text. The axes after the first are those of
        positions in `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        The frequencies of `rope`, which the three coordinates share.
    layout : {"half", "interleaved"}
        As in `rope`.
    sections : three integers
        Numbers of pairs that time, height and width rotate. They add up to rotary_dim // 2.
    interleaved : bool
        False: a(k) is 0 for the first ``sections[0]`` pairs, then 1, then 2. True: a(k) is ``k % 3`` while
        ``k < 3 * sections[k % 3]``, and `overflow` for the other pairs.
    overflow : {0, 1, 2}
        The coordinate of the pairs past their section. Read only if `interleaved` is True.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64. Where the three coordinates are equal, the result is that of
        `rope`, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As `rope`. Also for positions without a first axis of 3, and for sections that do not add up.

    Notes
    -----
    Wang et al. 2024 (Qwen2-VL), section 2.1, has sections, such as [16, 24, 24]. Qwen3-VL interleaves, with
    [24, 20, 20], and time rotates the pairs past 60, as here with ``overflow=0``. In llama.cpp a fourth coordinate,
    which is 0 in text, rotates pairs 61 and 62.

    Examples
    --------
    For text the result is that of `rope`:

    >>> import numpy as np, posenc
    >>> x, w = np.ones((5, 16)), posenc.rope_frequencies(16)
    >>> text = np.broadcast_to(np.arange(5), (3, 5))
    >>> same = posenc.mrope(x, text, w, layout="half", sections=(2, 3, 3)) == posenc.rope(x, 5, w, layout="half")
    >>> bool(same.all())
    True
    """
    rotation = read_rotation("mrope", x, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    table, _, _, _ = _angles(rotation, positions, frequencies, sections, interleaved, overflow)
    return rotation.rotate(table, out)


@in_one_isa
def mrope_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout,
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

    Those of `rope_vjp` for each pair, where ``dtheta`` belongs to the coordinate that rotates the pair.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. The other arguments are those of `mrope`.

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
    rotation = read_rotation("mrope_vjp", x, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    table, positions, spread, coordinate_of_pair = _angles(
        rotation, positions, frequencies, sections, interleaved, overflow
    )
    d_x, d_positions, d_spread = rotation.vjp(grad, table, positions, spread)
    d_frequencies = d_spread[coordinate_of_pair, np.arange(len(coordinate_of_pair))]
    return RopeGradient(d_x, coordinates_first(d_positions), d_frequencies)
