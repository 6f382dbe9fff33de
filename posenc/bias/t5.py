"""T5: a learned number for each bucket of distances, the buckets decided by integers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Array, as_index, as_reals, fail, fail_value
from ._distance import Distance
from .operator import Bias, keep_arrays

__all__ = ["t5", "t5_bucket"]

FARTHEST = 2**63 - 1
REACH = 4096
"""Distances up to here are looked up; what is beyond is searched among the edges. 64 KB."""


def _smallest(power: int, value: int, near: float) -> int:
    """The smallest integer n with n**power >= value, which is close to `near`; by comparing integers."""
    low, high = int(near * (1 - 1e-9)) - 1, int(near * (1 + 1e-9)) + 1
    while low > 0 and low**power >= value:
        low //= 2
    while high**power < value:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if middle**power >= value:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=64)
def _edges(side: int, max_distance: int) -> tuple[int, ...]:
    """The distances at which buckets side // 2 + 1, ..., side - 1 begin.

    Bucket e + k, e = side // 2, begins where log(n / e) / log(max_distance / e) (side - e) reaches k: that is
    n**(side - e) >= max_distance**k e**(side - e - k), in which there are only integers.
    """
    exact = side // 2
    steps = side - exact
    edges = []
    for k in range(1, steps):
        size = (k * math.log(max_distance) + (steps - k) * math.log(exact)) / steps
        if size > 44:  # e**44 > 2**63: no int64 gets there
            break
        edges.append(_smallest(steps, max_distance**k * exact ** (steps - k), math.exp(size)))
    return tuple(edge for edge in edges if edge <= FARTHEST)


@lru_cache(maxsize=64)
def _steps(buckets: int, max_distance: int, bidirectional: bool) -> tuple[Array, Array]:
    """The buckets of -r .. r, and the distances beyond r at which a further one begins."""
    side = buckets // 2 if bidirectional else buckets
    exact, edges = side // 2, np.array(_edges(side, max_distance), I64)
    reach = int(np.clip(edges[-1] if edges.size else exact, exact, max(REACH, exact)))
    n = np.arange(reach + 1, dtype=I64)
    backward = np.where(n < exact, n, exact + np.searchsorted(edges, n, side="right"))
    forward = backward + side if bidirectional else np.zeros_like(n)
    lookup = np.concatenate([backward[::-1], forward[1:]])
    further = edges[edges > reach]
    lookup.flags.writeable = further.flags.writeable = False
    return lookup, further


def _check(function: str, argument: str, buckets: int, max_distance: Any, bidirectional: Any) -> int:
    if not isinstance(bidirectional, bool | np.bool_):
        fail(TypeError, function, "bidirectional", f"type {type(bidirectional).__name__}", "True or False")
    least = 4 if bidirectional else 2
    if buckets < least:
        has = buckets if argument == "buckets" else f"{buckets} rows"
        fail(ValueError, function, argument, has, f"at least {least}")
    exact = buckets // (4 if bidirectional else 2)
    distance = as_index(function, "max_distance", max_distance, 1, 2**63 - 1)
    if distance <= exact:
        reason = f"more than {exact}, up to which each distance has its own bucket"
        fail_value(ValueError, function, "max_distance", distance, reason)
    return distance


def _integers(function: str, rel: npt.ArrayLike) -> Array:
    """Distances cut to integers towards zero, held within int64."""
    array = as_reals(function, "rel", rel)
    if array.dtype.kind == "i":
        return np.maximum(array, -FARTHEST)
    if not np.isfinite(array).all():
        fail(ValueError, function, "rel", array[~np.isfinite(array)][0], "finite numbers")
    return np.clip(array, -(2.0**62), 2.0**62).astype(I64)


def t5_bucket(
    rel: npt.ArrayLike, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> npt.NDArray[np.int64]:
    """T5's bucket of a relative position: n below e, then ``e + floor(log(n/e) / log(max_distance/e) (s - e))``.

    Parameters
    ----------
    rel : array (...)
        Positions of keys - positions of queries, of any sign and size; fractions are cut towards zero.
    buckets : int
        Rows of the table; at least 4, or 2 with ``bidirectional=False``.
    max_distance : int
        From about here on all distances share the last bucket; more than e.
    bidirectional : bool
        True: s = buckets // 2 for keys before the query, as many for those after it. False (decoders): s = buckets,
        and every key after the query is in bucket 0.

    Returns
    -------
    ndarray of int64, the shape of `rel`
        With n = \\|rel\\| and e = s // 2, at most s - 1; plus s where rel > 0 and bidirectional.

    Raises
    ------
    TypeError, ValueError
        Numbers that are not finite, too few buckets, a `max_distance` that leaves no bucket for it.

    Notes
    -----
    Raffel et al. 2020 (T5), section 2.1, and the authors' code. The floor is decided by
    ``n**(s - e) >= max_distance**k e**(s - e - k)`` in integers. Code that takes logarithms in floating point is wrong
    at some distances where both sides are equal or close: with 12 buckets and max_distance 6591, PyTorch in float32
    has distance 39 in bucket 3 instead of 4; with 20 and 160, NumPy in float64 has distance 20 in bucket 6 instead of
    7. With the settings of published models all agree.

    Examples
    --------
    >>> import posenc
    >>> posenc.t5_bucket([0, -1, -8, -15, -16, 1, 127, 128])
    array([ 0,  1,  8,  9, 10, 17, 31, 31])
    """
    function = "t5_bucket"
    count = as_index(function, "buckets", buckets, 1)
    distance = _check(function, "buckets", count, max_distance, bidirectional)
    integers = _integers(function, rel)
    lookup, further = _steps(count, distance, bool(bidirectional))
    reach = len(lookup) // 2
    found = np.take(lookup, np.clip(integers, -reach, reach) + reach)
    if further.size:
        size = np.abs(integers)
        has_buckets = size > reach if bidirectional else -integers > reach
        found = found + np.where(has_buckets, np.searchsorted(further, size, side="right"), 0)
    return np.asarray(found, I64)


class T5(Distance):
    """A table by bucket of the distance."""

    __slots__ = ()

    @property
    def operands(self) -> tuple[Array, ...]:
        table, options = self.arrays.table, self.options
        return table, *_steps(len(table), options["max_distance"], options["bidirectional"])


def t5(table: npt.ArrayLike, *, bidirectional: bool = True, max_distance: int = 128) -> Bias:
    """T5's relative bias: ``b[h](rel) = table[bucket(rel), h]``.

    Parameters
    ----------
    table : array (buckets, H)
        Finite; as transformers keeps it (``relative_attention_bias.weight``). Differentiable.
    bidirectional, max_distance
        As in `t5_bucket`: whether keys after the query have buckets of their own, and how far buckets reach.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        A table that is not two-dimensional and finite, or has too few rows; a `max_distance` that leaves no bucket.

    Notes
    -----
    Raffel et al. 2020 (T5), section 2.1. T5 does not scale its logits: give ``scale=1`` to `attention`. Its encoder is
    bidirectional, its decoder is not. x-transformers and GPT-NeoX multiply the table by a scale; flaxformer stores it
    as (H, buckets).

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.t5(np.arange(32.0)[:, None]).matrix(3)
    array([[[ 0., 17., 18.],
            [ 1.,  0., 17.],
            [ 2.,  1.,  0.]]], dtype=float32)
    """
    (kept,), dtypes = keep_arrays("t5", table)
    distance = _check("t5", "table", len(kept), max_distance, bidirectional)
    columns = np.ascontiguousarray(kept.T).T  # the buckets of a head beside each other
    return T5("t5", (columns,), dtypes, (("bidirectional", bool(bidirectional)), ("max_distance", distance)))
