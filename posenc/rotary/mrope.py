"""Rotary position embeddings by time, height and width, for text with images and video."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Array, as_bool, as_index, door, fail, fail_value
from ..absolute.rotated_pairs import Layout
from .rotation import Angles, Frequencies, Indices, RopeGradient, Rotation, read_rotation


def _coordinate_of_pair(rotation: Rotation, sections: Iterable[int], interleaved: bool, overflow: int) -> Indices:
    """Return the coordinate of each pair: 0 for time, 1 for height, 2 for width."""
    pairs = rotation.rotary_dim // 2
    is_scalar = getattr(sections, "ndim", 1) == 0  # an array without axes is an Iterable
    if not isinstance(sections, Iterable) or isinstance(sections, str | bytes) or is_scalar:
        fail(TypeError, "sections", f"type {type(sections).__name__}", "three integers")
    counts = [as_index("sections", count, 0) for count in sections]
    if len(counts) != 3 or sum(counts) != pairs:
        expected = f"three numbers that add up to rotary_dim // 2 = {pairs}"
        fail(ValueError, "sections", f"{counts}, {sum(counts)} pairs", expected)
    overflow = as_index("overflow", overflow, 0)
    if overflow > 2:
        fail_value(ValueError, "overflow", overflow, "0, 1 or 2, a row of positions")
    if not as_bool("interleaved", interleaved):
        return np.repeat(np.arange(3), counts)
    k = np.arange(pairs)
    return np.where(k < 3 * np.array(counts, I64)[k % 3], k % 3, overflow)


def _angles(
    rotation: Rotation,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    sections: Iterable[int],
    interleaved: bool,
    overflow: int,
) -> Angles:
    positions, (w, factor) = rotation.coordinates(positions, 3), rotation.frequencies(frequencies)
    return Angles(positions, w, factor, _coordinate_of_pair(rotation, sections, interleaved, overflow))


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
    rotation = read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles(rotation, positions, frequencies, sections, interleaved, overflow)
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
    rotation = read_rotation(x, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)
    angles = _angles(rotation, positions, frequencies, sections, interleaved, overflow)
    return rotation.vjp(grad, rotation.table(angles), angles)
