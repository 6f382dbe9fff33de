"""Contexts longer than the training length: rotate cached keys again, remap positions, and scale queries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import read
from .._core_api.arrays import F64, Array, Float64
from .._core_api.constants import LARGEST_POSITION
from .._core_api.door import door, fail, fail_value
from ..absolute.rotated_pairs import Layout, with_heads
from .rotations import Frequencies, read_options, refuse_table


@door
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
    """Move keys, which `rope` has rotated, from old positions to new positions.

    ``rerotate(rope(x, old), old, new) = rope(x, new)``, computed as one rotation by ``(new - old) w``.

    Parameters
    ----------
    k : array (..., N, D)
        Rotated keys, for example from a cache.
    old_positions, new_positions : int, or array (N,), (B, N) or (B, H, N)
        The positions that `rope` rotated the keys by, and the positions to rotate the keys to. An int n means
        0 .. n-1. See `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        Radians per position. An attention_factor is not applied, because k contains it already.
    layout : {"half", "interleaved"}, optional
        The layout in which k is stored: the `out_layout` of the call of `rope`. The default is the layout of the
        frequencies. If the frequencies have another layout than k, pass
        ``dataclasses.replace(frequencies, layout=...)``.
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
    Su et al. 2021 (RoFormer), equation 15: rotations add up. The difference of two integer positions is exact, so a key
    whose position does not change keeps its bits. There is no gradient function, because the map is linear in k and
    orthogonal: its transpose is ``rerotate(grad, new_positions, old_positions, ...)``.

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
    refuse_table(old_positions, "old_positions")
    refuse_table(new_positions, "new_positions")
    w, _, options = read_options(frequencies, layout, rotary_dim, rotary_offset, seq_axis=seq_axis)
    k, old, new = _core.read(
        "real k(n,d), pos old_positions(n) counted beside, pos new_positions(n) counted beside",
        k=k,
        old_positions=old_positions,
        new_positions=new_positions,
        seq_axis=seq_axis,
    )
    channels = k.shape[-1] - read.index("rotary_offset", rotary_offset, 0)
    if options["rotary_dim"] is None and (channels % 2 or channels < 2):  # C calls it x
        fail(ValueError, "k", f"last axis {k.shape[-1]}", "an even rotary_dim of at least 2")
    move = with_heads(new, k.ndim - 1) - with_heads(old, k.ndim - 1)
    too_far = np.abs(move) > LARGEST_POSITION
    if too_far.any():
        fail(ValueError, "new_positions", f"a move by {move[too_far][0]}", "moves of at most 2**53")
    return _core.rope_positions(x=k, positions=move, frequencies=w, out=out, **options)


@door
def logn_scale(positions: npt.ArrayLike, train_length: float, *, base_clip: float = 1.0, start: int = 0) -> Float64:
    """Return the factor that keeps the entropy of attention beyond the trained length.

    ``max(base_clip, log(p + 1) / log(train_length))``. Multiply the query at position p by it.

    Parameters
    ----------
    positions : int or array (..., N)
        At least 0. An int n means start .. start+n-1, by default 0 .. n-1. The causal query at p sees ``p + 1``
        keys.
    train_length : number
        Length that the model was trained with, more than 1.
    base_clip : number
        The smallest factor. With 1, queries within the trained length do not change. With 0, they shrink.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.

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
    positions from 1, and reads the factor from a table of limited length. `logn_scale` computes it for any position.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.logn_scale([0, 511, 262143], 512)
    array([1., 1., 2.])
    >>> q = np.ones((8, 1024, 64))
    >>> scaled = q * posenc.logn_scale(1024, 512)[:, None]
    """
    array = _core.read("rope_positions", positions=positions, start=start)
    length, smallest = read.number("train_length", train_length), read.number("base_clip", base_clip)
    if length <= 1:
        fail_value(ValueError, "train_length", train_length, "more than 1")
    if (array < 0).any():
        fail(ValueError, "positions", array.min(), "at least 0, because the query at p sees p + 1 keys")
    # Numerator and denominator both call log1p, so that the ratio is exactly 1 at p = train_length - 1.
    scale: Float64 = np.maximum(np.log1p(array.astype(F64)) / np.log1p(length - 1), smallest)
    return scale


@door
def floor_log_scale(
    positions: npt.ArrayLike, *, floor: float, scale: float, offset: float = 0.0, start: int = 0
) -> Float64:
    """Return the factor that sharpens attention step by step beyond the trained length.

    ``1 + scale log(1 + floor((p + offset) / floor))``. Multiply the query at position p by it.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means start .. start+n-1, by default 0 .. n-1.
    floor : number
        Positive. The factor is 1 where ``p + offset < floor``, and grows where ``p + offset`` is a multiple of floor.
    scale : number
        Factor of the logarithm.
    offset : number
        Added to the positions: 1 if they are counted from 1.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.

    Returns
    -------
    ndarray of float64, shape (..., N)

    Raises
    ------
    TypeError, ValueError
        A `floor` that is not positive, positions for which ``p + offset`` is negative.

    Notes
    -----
    Llama 4 scales queries so in the layers without rotation, with ``offset=1``. Its config calls `floor`
    ``floor_scale`` (8192) and `scale` ``attn_scale`` (0.1). Ministral 3 and Mistral 4 have ``offset=0``. Their config
    calls `floor` ``original_max_position_embeddings`` and `scale` ``llama_4_scaling_beta``. `logn_scale` grows without
    steps.

    Examples
    --------
    >>> import posenc
    >>> posenc.floor_log_scale([0, 8190, 8191, 16383], floor=8192, scale=0.1, offset=1).round(4)
    array([1.    , 1.    , 1.0693, 1.1099])
    """
    array = _core.read("rope_positions", positions=positions, start=start)
    length, growth = read.positive("floor", floor), read.number("scale", scale)
    counted = array + read.number("offset", offset)
    if (counted < 0).any():
        expected = f"at least {0.0 - offset}, because p + offset must not be negative"
        fail(ValueError, "positions", array.min(), expected)
    factors: Float64 = 1 + growth * np.log1p(np.floor(counted / length))
    return factors


@door
def rerope_positions(
    positions: npt.ArrayLike, *, window: float, leak: float | None = None, start: int = 0
) -> tuple[Float64, Float64]:
    """Return the positions of ReRoPE for the pairs at least `window` apart.

    ``q = window``, ``k = 0``, or for Leaky ReRoPE ``q = (i + window (leak - 1)) / leak``, ``k = j / leak``.

    Pairs nearer than `window` keep their own positions. For the other pairs ``q - k`` is `window`, or with `leak`
    ``window + (i - j - window) / leak``.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means start .. start+n-1, by default 0 .. n-1.
    window : number
        Positive, in positions.
    leak : number, optional
        Positive. The part of a distance beyond the window is divided by `leak`.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.

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
    Su 2023 (ReRoPE and Leaky ReRoPE, kexue.fm 9708). Two calls of `attention` compute it, for an int window w. The
    first, for the near pairs, takes queries and keys rotated by their own positions, ``causal=True`` and
    ``window=(w - 1, None)``. The second, for the far pairs, takes queries and keys rotated by the returned positions,
    and ``window=(None, -w)``. `merge_attention` combines the two results.

    Examples
    --------
    >>> import posenc
    >>> posenc.rerope_positions(3, window=2)
    (array([2., 2., 2.]), array([0., 0., 0.]))
    >>> posenc.rerope_positions([0, 10, 20], window=10, leak=2)
    (array([ 5., 10., 15.]), array([ 0.,  5., 10.]))
    """
    array = _core.read("rope_positions", positions=positions, start=start)
    window = read.positive("window", window)
    if leak is None:
        return np.full(array.shape, window), np.zeros(array.shape)
    leak = read.positive("leak", leak)
    return (array + window * (leak - 1)) / leak, array / leak


@door
def self_extend_positions(
    positions: npt.ArrayLike, *, group: int, window: float, start: int = 0
) -> tuple[Float64, Float64]:
    """Return the positions of Self-Extend for the pairs at least `window` apart.

    ``q = i // group + window - window / group``, ``k = j // group``.

    Pairs nearer than `window` keep their own positions.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means start .. start+n-1, by default 0 .. n-1.
    group : int
        Number of neighbouring positions that share one position, at least 1.
    window : number
        Positive, in positions. If it is not a multiple of `group`, positions of queries are fractions.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.

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
    the quotient down. Prefill and decoding agree only if `window` is a multiple of `group`. Two calls of
    `attention` compute Self-Extend, as in `rerope_positions`.

    Examples
    --------
    >>> import posenc
    >>> posenc.self_extend_positions(5, group=2, window=4)
    (array([2., 2., 3., 3., 4.]), array([0., 0., 1., 1., 2.]))
    """
    array = _core.read("rope_positions", positions=positions, start=start)
    group, window = read.index("group", group, 1), read.positive("window", window)
    k = (array // group).astype(F64, copy=False)
    return k + (window - window / group), k
