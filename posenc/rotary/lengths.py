"""Contexts longer than those of training: moved keys, positions within the trained range, and growing queries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_index,
    as_number,
    as_positions,
    as_positive,
    check_positions,
    fail,
    fail_value,
)
from .._core_api.constants import LARGEST_POSITION
from .._core_api.variant import in_one_isa
from .rotation import Angles, Frequencies, read_rotation
from .scaling import Layout

__all__ = ["floor_log_scale", "logn_scale", "rerope_positions", "rerotate", "self_extend_positions"]


@in_one_isa
def rerotate(
    k: npt.ArrayLike,
    old_positions: npt.ArrayLike,
    new_positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """Move keys that `rope` has rotated to other positions.

    ``rope(k, new)`` from ``rope(k, old)``, by a rotation by ``(new - old) w``.

    Parameters
    ----------
    k : array (..., N, D)
        Rotated keys, such as those of a cache.
    old_positions, new_positions : int, or array (N,), (B, N) or (B, H, N)
        The positions that the keys were rotated by, and those to move them to. See `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        Radians per position. An attention_factor is not applied, because k contains it already.
    layout : {"half", "interleaved"}, optional
        The layout in which k is stored: the `out_layout` that it was rotated with. The default is that of the
        frequencies, as in `rope`. If k is stored in another one, pass ``dataclasses.replace(frequencies, layout=...)``.
    rotary_dim, rotary_offset, seq_axis
        As in `rope`.
    out : array like k, optional
        Filled and returned. May be k itself.

    Returns
    -------
    ndarray
        Shape and dtype of k; integers become float64.

    Raises
    ------
    TypeError, ValueError
        As `rope`.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 15: rotations add up. The difference of two integer positions is exact, so a
    key moved by 0 keeps its bits. There is no gradient function, because the map is linear in k and orthogonal: its
    transpose is ``rerotate(grad, new_positions, old_positions, ...)``.

    Examples
    --------
    Drop two tokens from the front of a cache of 6:

    >>> import numpy as np, posenc
    >>> w = posenc.rope_frequencies(4)
    >>> cache = posenc.rope(np.ones((6, 4)), 6, w, layout="half")
    >>> kept = posenc.rerotate(cache[2:], np.arange(2, 6), 4, w, layout="half")
    >>> bool(np.allclose(kept, posenc.rope(np.ones((4, 4)), 4, w, layout="half")))
    True
    """
    function = "rerotate"
    rotation = read_rotation(
        function, k, frequencies, layout, rotary_dim, rotary_offset, seq_axis=seq_axis, argument="k"
    )
    frequencies, _ = rotation.frequencies(frequencies)
    old_positions = rotation.positions(old_positions, "old_positions")
    check_positions(function, "old_positions", old_positions)
    new_positions = rotation.positions(new_positions, "new_positions")
    check_positions(function, "new_positions", new_positions)
    move = rotation.with_heads(new_positions) - rotation.with_heads(old_positions)
    too_far = np.abs(move) > LARGEST_POSITION
    if too_far.any():
        fail(ValueError, function, "new_positions", f"a move by {move[too_far][0]}", "moves of at most 2**53")
    return rotation.rotate(rotation.table(Angles(move, frequencies)), out)


def logn_scale(positions: npt.ArrayLike, train_length: float, *, base_clip: float = 1.0) -> Float64:
    """Return the factor that keeps the entropy of attention beyond the trained length.

    ``max(base_clip, log(p + 1) / log(train_length))``, which multiplies the query at position p.

    Parameters
    ----------
    positions : int or array (..., N)
        At least 0. An int n means 0 .. n-1. The query at p sees ``p + 1`` keys.
    train_length : number
        Length that the model was trained with, more than 1.
    base_clip : number
        The smallest factor: 1 leaves queries within the trained length unchanged, 0 shrinks them too.

    Returns
    -------
    ndarray of float64, shape (..., N)

    Raises
    ------
    TypeError, ValueError
        Negative positions, a length of 1 or less.

    Notes
    -----
    Su 2021 (Entropy invariance of attention, kexue.fm 8823); Chiang and Cholak 2022, section 5.3. Qwen counts
    positions from 1, and reads the factor from a table that ends; here every position has a factor.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.logn_scale([0, 511, 262143], 512)
    array([1., 1., 2.])
    >>> q = np.ones((8, 1024, 64))
    >>> scaled = q * posenc.logn_scale(1024, 512)[:, None]
    """
    function = "logn_scale"
    array = as_positions(function, "positions", positions)
    length, smallest = as_number(function, "train_length", train_length), as_number(function, "base_clip", base_clip)
    if length <= 1:
        fail_value(ValueError, function, "train_length", train_length, "more than 1")
    check_positions(function, "positions", array)
    if (array < 0).any():
        fail(ValueError, function, "positions", array.min(), "at least 0, because p + 1 keys are seen")
    # The same function of the same numbers above and below, so that the ratio is exactly 1 at the trained length.
    scale: Float64 = np.maximum(np.log1p(array.astype(F64)) / np.log1p(length - 1), smallest)
    return scale


def floor_log_scale(positions: npt.ArrayLike, *, floor: float, scale: float, offset: float = 0.0) -> Float64:
    """Return the factor that sharpens attention step by step beyond the trained length.

    ``1 + scale log(1 + floor((p + offset) / floor))``, which multiplies the query at position p.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means 0 .. n-1.
    floor : number
        Positive: the factor grows at the multiples of this length, and is 1 before the first.
    scale : number
        Growth of the factor.
    offset : number
        Added to the positions: 1 if they are counted from 1.

    Returns
    -------
    ndarray of float64, shape (..., N)

    Raises
    ------
    TypeError, ValueError
        A `floor` that is not positive, positions for which ``p + offset`` is negative.

    Notes
    -----
    Llama 4 has it in the layers without rotation, with ``offset=1``, ``floor=8192`` and ``scale=0.1``, its config's
    ``floor_scale`` and ``attn_scale``. Ministral 3 and Mistral 4 have ``offset=0``; their config's
    ``original_max_position_embeddings`` is `floor` and ``llama_4_scaling_beta`` is `scale`. `logn_scale` grows
    smoothly.

    Examples
    --------
    >>> import posenc
    >>> posenc.floor_log_scale([0, 8190, 8191, 16383], floor=8192, scale=0.1, offset=1).round(4)
    array([1.    , 1.    , 1.0693, 1.1099])
    """
    function = "floor_log_scale"
    array = _finite_positions(function, positions)
    length, growth = as_positive(function, "floor", floor), as_number(function, "scale", scale)
    counted = array + as_number(function, "offset", offset)
    if (counted < 0).any():
        expected = f"at least {-float(offset)}, because p + offset is counted from 0"
        fail(ValueError, function, "positions", array.min(), expected)
    factors: Float64 = 1 + growth * np.log1p(np.floor(counted / length))
    return factors


def rerope_positions(positions: npt.ArrayLike, *, window: float, leak: float | None = None) -> tuple[Float64, Float64]:
    """Return the positions of ReRoPE for the pairs at least `window` apart.

    ``q = window``, ``k = 0``, or for Leaky ReRoPE ``q = (i + window (leak - 1)) / leak``, ``k = j / leak``.

    Pairs nearer than `window` keep their own positions. The scores of the others see the distance `window`, or with
    `leak` the distance ``window + (i - j - window) / leak``.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means 0 .. n-1.
    window : number
        Positive, in positions.
    leak : number, optional
        Positive: the factor by which distances grow more slowly beyond the window.

    Returns
    -------
    (q, k)
        Positions (..., N) in float64 to rotate the queries and the keys by.

    Raises
    ------
    TypeError, ValueError
        A window or a leak that is not positive.

    Notes
    -----
    Su 2023 (ReRoPE and Leaky ReRoPE, kexue.fm 9708). Two calls of `attention` compute it: the near pairs with their
    own positions, the far pairs with these positions and ``window=(None, -w)``. `merge_attention` combines the two.

    Examples
    --------
    >>> import posenc
    >>> posenc.rerope_positions(3, window=2)
    (array([2., 2., 2.]), array([0., 0., 0.]))
    >>> posenc.rerope_positions([0, 10, 20], window=10, leak=2)
    (array([ 5., 10., 15.]), array([ 0.,  5., 10.]))
    """
    function = "rerope_positions"
    array = _finite_positions(function, positions)
    window = as_positive(function, "window", window)
    if leak is None:
        return np.full(array.shape, window), np.zeros(array.shape)
    leak = as_positive(function, "leak", leak)
    return (array + window * (leak - 1)) / leak, array / leak


def self_extend_positions(positions: npt.ArrayLike, *, group: int, window: float) -> tuple[Float64, Float64]:
    """Return the positions of Self-Extend for the pairs at least `window` apart.

    ``q = i // group + window - window / group``, ``k = j // group``.

    Pairs nearer than `window` keep their own positions.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means 0 .. n-1.
    group : int
        Number of neighbouring positions that become one, at least 1.
    window : number
        Positive, in positions. If it is no multiple of `group`, positions of queries are fractions.

    Returns
    -------
    (q, k)
        Positions (..., N) in float64 to rotate the queries and the keys by.

    Raises
    ------
    TypeError, ValueError
        A group below 1, a window that is not positive.

    Notes
    -----
    Jin et al. 2024 (Self-Extend), section 3.2. Their prefill divides ``window / group`` as here, their decoding rounds
    the quotient down. The two agree only if `window` is a multiple of `group`. Two calls of `attention` compute it: the
    near pairs with their own positions, the far pairs with these positions and ``window=(None, -w)``.
    `merge_attention` combines the two.

    Examples
    --------
    >>> import posenc
    >>> posenc.self_extend_positions(5, group=2, window=4)
    (array([2., 2., 3., 3., 4.]), array([0., 0., 1., 1., 2.]))
    """
    function = "self_extend_positions"
    array = _finite_positions(function, positions)
    group, window = as_index(function, "group", group, 1), as_positive(function, "window", window)
    k = (array // group).astype(F64, copy=False)
    return k + (window - window / group), k


def _finite_positions(function: str, positions: npt.ArrayLike) -> Array:
    array = as_positions(function, "positions", positions)
    check_positions(function, "positions", array)
    return array
