"""T5: one learned number per head and bucket of distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import read
from .._core_api.arrays import I64, Array
from .._core_api.door import door, fail, fail_value
from . import operator
from .kinds import DISTANCE
from .operator import Bias, Operands, PositionBias, Scheme

_FARTHEST = 2**63 - 1
_REACH = 4096
"""Buckets of distances up to here are looked up, in a table of 64 KB; a binary search finds those of longer ones."""

_RELATIVE_ERROR = 1e-12
"""More than the error of ``exp(x)`` for an x of at most 44 that a few roundings produced, which is 3e-14."""


class T5Arrays(NamedTuple):
    """Arrays of `t5`, or their gradients.

    Attributes
    ----------
    table : array (buckets, H)
    """

    table: Array


def smallest_integer(near: float, reaches: Callable[[int], bool]) -> int:
    """Return the smallest integer that reaches a threshold, which is real and close to `near`.

    `reaches` compares powers exactly, in integers of thousands of digits. It is called only if an integer is so close
    to `near` that rounding could decide.
    """
    first, last = math.ceil(near * (1 - _RELATIVE_ERROR)), math.ceil(near * (1 + _RELATIVE_ERROR))
    while first < last:
        middle = (first + last) // 2
        if reaches(middle):
            last = middle
        else:
            first = middle + 1
    return first


@lru_cache(maxsize=64)
def _edges(side: int, max_distance: int) -> tuple[int, ...]:
    """Return the distances at which buckets side // 2 + 1, ..., side - 1 begin.

    Bucket e + k, e = side // 2, begins where log(n / e) / log(max_distance / e) (side - e) reaches k: that is
    n**(side - e) >= max_distance**k e**(side - e - k), in which there are only integers.
    """
    exact = side // 2
    steps = side - exact
    edges = []
    for k in range(1, steps):
        log_edge = (k * math.log(max_distance) + (steps - k) * math.log(exact)) / steps
        if log_edge > 44:  # exp(44) > 2**63: beyond int64
            break

        def reaches(n: int, k: int = k) -> bool:
            return bool(n**steps >= max_distance**k * exact ** (steps - k))

        edges.append(smallest_integer(math.exp(log_edge), reaches))
    return tuple(edge for edge in edges if edge <= _FARTHEST)


@lru_cache(maxsize=64)
def _bucket_tables(buckets: int, max_distance: int, bidirectional: bool) -> tuple[Array, Array]:
    """Return the buckets of rel = -r .. r, entry rel + r, and the distances beyond r at which further buckets begin.

    r is the last such distance, or _REACH if that is smaller. If not `bidirectional`, keys after the query are in
    bucket 0 at any distance.
    """
    side = buckets // 2 if bidirectional else buckets
    exact, edges = side // 2, np.array(_edges(side, max_distance), I64)
    reach = int(np.clip(edges[-1] if edges.size else exact, exact, max(_REACH, exact)))
    n = np.arange(reach + 1, dtype=I64)
    backward = np.where(n < exact, n, exact + np.searchsorted(edges, n, side="right"))
    forward = backward + side if bidirectional else np.zeros_like(n)
    lookup = np.concatenate([backward[::-1], forward[1:]])
    further = edges[edges > reach]
    lookup.flags.writeable = further.flags.writeable = False
    return lookup, further


def _read_max_distance(max_distance: object, buckets: int, bidirectional: bool) -> int:
    """Return `max_distance`, which must leave a bucket that holds several distances."""
    exact = buckets // (4 if bidirectional else 2)
    distance = read.index("max_distance", max_distance, 1, _FARTHEST)
    if distance <= exact:
        expected = f"more than {exact}, because each distance below {exact} has a bucket of its own"
        fail_value(ValueError, "max_distance", distance, expected)
    return distance


def _read_direction(bidirectional: object) -> bool:
    if bidirectional is None:
        expected = "True (encoders: keys before and after) or False (decoders)"
        fail_value(ValueError, "bidirectional", None, expected)
    return read.flag("bidirectional", bidirectional)


def _as_integers(rel: npt.ArrayLike) -> Array:
    """Return distances truncated towards zero and clipped: integers to +-(2**63 - 1), reals to +-2**62."""
    array = read.array("rel", rel)
    if array.dtype.kind in "iu":
        return np.maximum(_core.read("i64 rel()", rel=array), -_FARTHEST)
    return np.clip(_core.read("f64 rel() finite", rel=array), -(2.0**62), 2.0**62).astype(I64)


@door
def t5_bucket(
    rel: npt.ArrayLike, *, bidirectional: bool | None = None, num_buckets: int = 32, max_distance: int = 128
) -> npt.NDArray[np.int64]:
    """Return T5's bucket of each relative position, key minus query.

    The bucket is n for n = \\|rel\\| < e, then ``e + floor(log(n/e) / log(max_distance/e) (s - e))``, at most s - 1,
    where s is the number of buckets for one direction, and e = s // 2.

    Parameters
    ----------
    rel : array (...)
        Positions of keys - positions of queries, j - i; fractions are truncated towards zero.
    bidirectional : bool
        Required. If True (encoders), s = num_buckets // 2, and keys after the query have s more buckets: s is added if
        rel > 0. If False (decoders), s = num_buckets, and keys after the query are in bucket 0.
    num_buckets : int
        Rows of the table: at least 4, or 2 with ``bidirectional=False``.
    max_distance : int
        More than e. The last bucket begins somewhat before this distance: at 91 for the default.

    Returns
    -------
    ndarray of int64, in the shape of `rel`

    Raises
    ------
    TypeError, ValueError
        Numbers that are not finite, too few buckets, a `max_distance` of at most e.

    Notes
    -----
    Raffel et al. 2020 (T5), section 2.1, and the authors' code. Integers decide the floor:
    ``n**(s - e) >= max_distance**k e**(s - e - k)``. Code that takes logarithms in floating point is wrong at some
    distances where both sides are equal or close. With 12 buckets and max_distance 6591, PyTorch in float32 puts
    distance 39 into bucket 3 instead of 4; with 20 and 160, NumPy in float64 puts distance 20 into bucket 6 instead of
    7. With the settings of published models all agree.

    Examples
    --------
    >>> import posenc
    >>> posenc.t5_bucket([0, -1, -8, -15, -16, 1, 127, 128], bidirectional=True)
    array([ 0,  1,  8,  9, 10, 17, 31, 31])
    """
    both_sides = _read_direction(bidirectional)
    count = read.index("num_buckets", num_buckets, 4 if both_sides else 2)
    distance = _read_max_distance(max_distance, count, both_sides)
    integers = _as_integers(rel)
    lookup, further = _bucket_tables(count, distance, both_sides)
    reach = len(lookup) // 2
    found = np.take(lookup, np.clip(integers, -reach, reach) + reach)
    if further.size:
        distances = np.abs(integers)
        is_further = distances > reach if both_sides else -integers > reach
        found = found + np.where(is_further, np.searchsorted(further, distances, side="right"), 0)
    return np.asarray(found, I64)  # of one distance, too


def _operands(bias: Bias) -> Operands:
    table, options = bias.arrays.table, bias.options
    lookup, edges = _bucket_tables(len(table), options["max_distance"], options["bidirectional"])
    return {"table": table, "lookup": lookup, "edges": edges}


def _default_scale(bias: Bias, width: int) -> float | None:
    return 1.0 if bias.options["unscaled"] else None


T5 = Scheme("t5", DISTANCE, T5Arrays, _operands, _default_scale)


@door
def t5(
    table: npt.ArrayLike, *, bidirectional: bool | None = None, max_distance: int = 128, unscaled: bool = False
) -> PositionBias[T5Arrays]:
    """Return T5's relative position bias.

    ``b[h](rel) = table[t5_bucket(rel), h]``

    Parameters
    ----------
    table : array (buckets, H)
        Finite; transformers stores it so (``relative_attention_bias.weight``). A transposed table has another number of
        heads, which `attention` refuses, but `matrix` cannot. Differentiable.
    bidirectional : bool
        Required, as in `t5_bucket`. A decoder has False; with True, a causal call reads only the first half of the
        table.
    max_distance : int
        As in `t5_bucket`.
    unscaled : bool
        If True, attention's default scale becomes 1, as in T5. If False, it stays ``1 / sqrt(D)``.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        A table that is not two-dimensional and finite, or has too few rows; a `max_distance` that `t5_bucket` refuses.

    Notes
    -----
    Raffel et al. 2020 (T5), section 2.1. T5 does not scale its logits: pass ``unscaled=True``, or ``scale=1`` to
    `attention`. Its encoder is bidirectional, its decoder is not, and its cross-attention has the scale but no bias.
    x-transformers and GPT-NeoX multiply the table by a scale; flaxformer stores it as (H, buckets).

    Examples
    --------
    The decoder of a checkpoint with 32 buckets and 8 heads:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> weight = rng.standard_normal((32, 8), np.float32)  # relative_attention_bias.weight
    >>> q, k, v = rng.standard_normal((3, 8, 100, 64), np.float32)
    >>> bias = posenc.t5(weight, bidirectional=False, unscaled=True)
    >>> posenc.attention(q, k, v, bias=bias, causal=True).shape
    (8, 100, 64)

    Rows of the table that an encoder reads:

    >>> posenc.t5(np.arange(32.0)[:, None], bidirectional=True).matrix(3)
    array([[[ 0., 17., 18.],
            [ 1.,  0., 17.],
            [ 2.,  1.,  0.]]], dtype=float32)
    """
    (array,), dtypes = operator.copy_parameters("t5", table)
    both_sides = _read_direction(bidirectional)
    fewest = 4 if both_sides else 2
    if len(array) < fewest:
        fail(ValueError, "table", f"{len(array)} rows", f"at least {fewest}")
    distance = _read_max_distance(max_distance, len(array), both_sides)
    options = {"bidirectional": both_sides, "max_distance": distance, "unscaled": read.flag("unscaled", unscaled)}
    return T5.from_arrays(array, options=options, dtypes=dtypes)
