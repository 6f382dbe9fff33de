"""Longer contexts: moved keys, positions that stay within the trained ones, and queries that grow with length."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    as_positions,
    check_positions,
    fail,
    fail_value,
    finish_out,
    prepare_out,
)
from .._core_api.constants import LARGEST_POSITION
from ._rotation import fits_sequence, radians, rotation

__all__ = ["logn_scale", "rerope_positions", "rerotate", "self_extend_positions"]


def _angles_between(
    new_positions: Any, function: str, old_positions: Any, frequencies: Any, k: Array, turned: int,
    dtype: np.dtype[Any], inverse: bool,
) -> tuple[Array, Array, Float64]:  # fmt: skip
    w, _ = radians(function, frequencies)
    if len(w) != turned // 2:
        fail(ValueError, function, "frequencies", f"{len(w)} entries", f"rotary_dim // 2 = {turned // 2}")
    given = []
    for name, positions in (("old_positions", old_positions), ("new_positions", new_positions)):
        array = as_positions(function, name, positions)
        fits_sequence(function, array.shape, k, name)
        check_positions(function, name, array)
        given.append(array)
    move = given[1] - given[0]
    far = np.abs(move) > LARGEST_POSITION
    if far.any():
        fail(ValueError, function, "new_positions", f"a move by {move[far][0]}", "moves of at most 2**53")
    table = np.empty((*move.shape, turned), dtype)
    _core.sinusoid(function, move, w, None, table, turned // 2, 0, 1, 1.0, 1.0)
    return table, move[..., None], w[None]


def rerotate(
    k: npt.ArrayLike,
    old_positions: Any,
    new_positions: Any,
    frequencies: Any,
    *,
    layout: str,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """Move keys that `rope` has rotated: ``rope(k, new)`` from ``rope(k, old)``, by the angle ``(new - old) w``.

    Parameters
    ----------
    k : array (..., N, D)
        Rotated keys, such as those of a cache.
    old_positions, new_positions : int, array (N,) or array of as many axes as k less one
        Where the keys were rotated to, and where they shall be; see `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        Radians per position. An attention_factor is in k already and stays there once.
    layout : {"half", "interleaved"}
        As k is stored, which is the `out_layout` that it was rotated with.
    rotary_dim, rotary_offset, seq_axis
        As in `rope`.
    out : array like k, optional
        May be k itself.

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
    Su et al. 2021 (RoFormer), equation 15: rotations add up. The difference of two integer positions is exact, so
    that a key moved by 0 keeps its bits. There is no gradient of its own: as a linear map of k it is orthogonal, and
    its transpose is ``rerotate(grad, new_positions, old_positions, ...)``.

    Examples
    --------
    Two tokens are dropped from the front of a cache of 6:

    >>> import numpy as np, posenc
    >>> w = posenc.rope_frequencies(4)
    >>> cache = posenc.rope(np.ones((6, 4)), 6, w, layout="half")
    >>> kept = posenc.rerotate(cache[2:], np.arange(2, 6), 4, w, layout="half")
    >>> bool(np.allclose(kept, posenc.rope(np.ones((4, 4)), 4, w, layout="half")))
    True
    """
    function = "rerotate"
    data = as_data(function, "k", k)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, old_positions, frequencies, layout, rotary_dim, rotary_offset, False, None, seq_axis,
        partial(_angles_between, new_positions), "k",
    )  # fmt: skip
    given = out is not None
    out, buffer = prepare_out(function, out, data.shape, data.dtype, (data,), in_place=True)
    _core.rope(function, rows, table, buffer, first, pairs_in, pairs_out, given)
    return finish_out(out, buffer)


def logn_scale(positions: Any, train_length: float, *, base_clip: float = 1.0) -> Float64:
    """Factor on queries past the trained length: ``max(base_clip, log(p + 1) / log(train_length))``.

    Parameters
    ----------
    positions : int or array (..., N)
        ``n`` means 0..n-1; the query at p sees ``p + 1`` keys. At least 0.
    train_length : number
        Length that the model was trained with, more than 1.
    base_clip : number
        The least factor; 1 leaves queries within the trained length alone, 0 also shrinks those.

    Returns
    -------
    ndarray of float64, shape (..., N)
        Multiply with q: ``q * logn_scale(...)[:, None]``.

    Raises
    ------
    TypeError, ValueError
        Negative positions, a length of 1 or less.

    Notes
    -----
    Su 2021 (Entropy invariance of attention, kexue.fm 8823); Chiang and Cholak 2022, section 5.3. Qwen counts
    positions from 1 in a table that ends; here is no end.

    Examples
    --------
    >>> import posenc
    >>> posenc.logn_scale([0, 511, 262143], 512)
    array([1., 1., 2.])
    """
    function = "logn_scale"
    where = as_positions(function, "positions", positions)
    length, least = as_number(function, "train_length", train_length), as_number(function, "base_clip", base_clip)
    if length <= 1:
        fail_value(ValueError, function, "train_length", train_length, "more than 1")
    check_positions(function, "positions", where)
    if (where < 0).any():
        fail(
            ValueError,
            function,
            "positions",
            where.min(),
            "at least 0: the logarithm is that of how many keys are seen",
        )
    # the same function of the same numbers on both sides, so that the ratio is 1 at the trained length
    scale: Float64 = np.maximum(np.log1p(where.astype(F64)) / np.log1p(length - 1), least)
    return scale


def rerope_positions(positions: Any, *, window: float, leak: float | None = None) -> tuple[Float64, Float64]:
    """Positions for pairs at least `window` apart: ``q = w``, ``k = 0``; leaky, ``(i + w (c - 1)) / c`` and ``j / c``.

    Pairs nearer than `window` keep their own positions. Scores then see no distance beyond `window`, or with
    ``leak=c`` the distance ``w + (i - j - w) / c``.

    Parameters
    ----------
    positions : int or array (..., N)
        ``n`` means 0..n-1.
    window : number
        Positive, in positions.
    leak : number, optional
        c, positive: how many times slower distances grow beyond the window.

    Returns
    -------
    (q, k)
        float64 positions (..., N) to rotate the queries and the keys with, for the far pairs.

    Raises
    ------
    TypeError, ValueError
        A window or a leak that is not positive.

    Notes
    -----
    Su 2023 (ReRoPE and Leaky ReRoPE, kexue.fm 9708): a second pass of attention with these positions and
    ``window=(None, -w)``, merged with one of the near pairs by `merge_attention`.

    Examples
    --------
    >>> import posenc
    >>> posenc.rerope_positions(3, window=2)
    (array([2., 2., 2.]), array([0., 0., 0.]))
    >>> posenc.rerope_positions([0, 10, 20], window=10, leak=2)
    (array([ 5., 10., 15.]), array([ 0.,  5., 10.]))
    """
    function = "rerope_positions"
    where = _finite(function, positions)
    width = _positive(function, "window", window)
    if leak is None:
        return np.full(where.shape, width), np.zeros(where.shape)
    slower = _positive(function, "leak", leak)
    return (where + width * (slower - 1)) / slower, where / slower


def self_extend_positions(positions: Any, *, group: int, window: float) -> tuple[Float64, Float64]:
    """Positions for pairs at least `window` apart: ``q = i // group + window - window / group``, ``k = j // group``.

    Pairs nearer than `window` keep their own positions.

    Parameters
    ----------
    positions : int or array (..., N)
        ``n`` means 0..n-1.
    group : int
        How many neighbouring positions become one, at least 1.
    window : number
        Positive, in positions; where `group` does not divide it, queries get fractions.

    Returns
    -------
    (q, k)
        float64 positions (..., N) to rotate the queries and the keys with, for the far pairs.

    Raises
    ------
    TypeError, ValueError
        A group below 1, a window that is not positive.

    Notes
    -----
    Jin et al. 2024 (Self-Extend), section 3.2. Their prefill divides ``window / group`` as here, their decoding rounds
    it down: the two agree only where `group` divides `window`. A second pass of attention with these positions and
    ``window=(None, -w)`` is merged with one of the near pairs by `merge_attention`.

    Examples
    --------
    >>> import posenc
    >>> posenc.self_extend_positions(5, group=2, window=4)
    (array([2., 2., 3., 3., 4.]), array([0., 0., 1., 1., 2.]))
    """
    function = "self_extend_positions"
    where = _finite(function, positions)
    size, width = as_index(function, "group", group, 1), _positive(function, "window", window)
    k = (where // size).astype(F64, copy=False)
    return k + (width - width / size), k


def _finite(function: str, positions: Any) -> Array:
    where = as_positions(function, "positions", positions)
    check_positions(function, "positions", where)
    return where


def _positive(function: str, argument: str, value: Any) -> float:
    number = as_number(function, argument, value)
    if number <= 0:
        fail_value(ValueError, function, argument, value, "a positive number")
    return number
