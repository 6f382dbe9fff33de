"""Pairs of chunks in which some query may see some key, from positions and segments that are known before computing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from math import ceil, floor, inf
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ._arrays import Array

Known: TypeAlias = range | Array | None
"""Positions or segments (N,) or (batch rows, N); None if nothing reads them, or if they are known when computed."""


class Side(NamedTuple):
    """Known positions and segments of the queries or keys of some rows of the batch."""

    bounds: Sequence[int]
    positions: Known
    segments: Known


def visible_pairs(queries: Side, keys: Side, low: float, high: float) -> npt.NDArray[np.bool_]:
    """Return which chunks of queries (i) may see which chunks of keys (j), (number of i, number of j).

    A pair is False only if it is empty. A pair with both a query and a key of one segment, or of one row, is taken to
    have all distances between the least and the greatest one, so a few pairs may be True although they are empty.
    """
    found = np.zeros((len(queries.bounds) - 1, len(keys.bounds) - 1), bool)
    if all(isinstance(one, range) or (one is not None and one.dtype.kind in "iu") for one in (queries[1], keys[1])):
        low, high = (ceil(low) if low > -inf else low), (floor(high) if high < inf else high)
    if queries.segments is None or keys.segments is None:
        queries, keys = queries._replace(segments=None), keys._replace(segments=None)
    arrays = [one for one in (*queries[1:], *keys[1:]) if isinstance(one, np.ndarray) and one.ndim == 2]
    for row in range(max(map(len, arrays), default=1) if low <= high else 0):
        of_queries, of_keys = _runs(queries, row), _runs(keys, row)
        for segment in of_queries.keys() & of_keys.keys():
            (i, first, last), (j, left, right) = (np.array(one[segment]).T for one in (of_queries, of_keys))
            may_see = (right - first[:, None] >= low) & (left - last[:, None] <= high)
            found[np.ix_(i.astype(int), j.astype(int))] |= may_see
    return found


def _runs(side: Side, row: int) -> dict[int, list[tuple[float, ...]]]:
    """Return, for each segment, (chunk, least position, greatest position) of the chunks with a part of the segment.

    Without segments, a chunk is part of segment 0.
    """
    positions, segments = (
        one[row % len(one)] if isinstance(one, np.ndarray) and one.ndim == 2 else one for one in side[1:]
    )
    found: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for number, (a, b) in enumerate(itertools.pairwise(side.bounds)):
        if a == b:
            continue
        if segments is None and (positions is None or isinstance(positions, range)):
            found[0].append((number, -inf, inf) if positions is None else (number, positions[a], positions[b - 1]))
            continue
        places = np.zeros(b - a) if positions is None else np.asarray(positions[a:b])
        of_chunk = np.zeros(b - a, int) if segments is None else segments[a:b]
        order = np.argsort(of_chunk, kind="stable")
        names, firsts = np.unique(of_chunk[order], return_index=True)
        ends = (ufunc.reduceat(places[order], firsts).tolist() for ufunc in (np.minimum, np.maximum))
        for name, least, most in zip(names.tolist(), *ends, strict=True):
            found[name].append((number, -inf, inf) if positions is None else (number, least, most))
    return found
