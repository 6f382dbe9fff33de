"""Pairs of chunks in which some query may see some key, from positions and segments that are known before computing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, floor, inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posenc._core_api.arguments import Array

Pairs = npt.NDArray[np.bool_]
Known = range | Array
"""Positions or segments (N,) or (batch rows, N)."""


class Side(NamedTuple):
    """Known positions and segments of the queries or keys of some rows of the batch."""

    bounds: Sequence[int]
    positions: Known | None
    """None if nothing reads positions, or if they are known only when they are computed."""
    segments: Array | None
    """None for one segment, or if they are known only when they are computed."""

    def rows(self) -> int:
        return max(_rows_of(self.positions), _rows_of(self.segments))

    def row(self, number: int) -> Side:
        return Side(self.bounds, _row_of(self.positions, number), _row_of(self.segments, number))


def visible_pairs(queries: Side, keys: Side, low: float, high: float) -> Pairs:
    """Return which chunks of queries (i) may see which chunks of keys (j), (number of i, number of j).

    A pair is False only if it is empty. A pair with both a query and a key of one segment, or of one row, is taken to
    have all distances between the least and the greatest one, so a few pairs may be True although they are empty.
    """
    if all(_is_integer(side.positions) for side in (queries, keys)):
        low, high = (ceil(low) if low > -inf else low), (floor(high) if high < inf else high)
    found = np.zeros((len(queries.bounds) - 1, len(keys.bounds) - 1), bool)
    if low > high:
        return found
    for number in range(max(queries.rows(), keys.rows())):
        found |= _pairs_of_row(queries.row(number), keys.row(number), low, high)
    return found


def _pairs_of_row(queries: Side, keys: Side, low: float, high: float) -> Pairs:
    found = np.zeros((len(queries.bounds) - 1, len(keys.bounds) - 1), bool)
    if queries.segments is None or keys.segments is None:
        (q_first, q_last), (k_first, k_last) = _extremes(queries), _extremes(keys)
        some_key, some_query = (np.diff(side.bounds) > 0 for side in (keys, queries))
        found = (k_last - q_first[:, None] >= low) & (k_first - q_last[:, None] <= high)
        return found & some_key & some_query[:, None]
    of_segment = defaultdict(list)
    for j, segment, least, most in _runs(keys):
        of_segment[segment].append((j, least, most))
    for i, segment, least, most in _runs(queries):
        for j, k_least, k_most in of_segment.get(segment, ()):
            found[i, j] |= k_most - least >= low and k_least - most <= high
    return found


def _extremes(side: Side) -> tuple[Array, Array]:
    """Return the least and the greatest position of each chunk; infinities if positions are not known."""
    starts, ends = np.array(side.bounds[:-1], float), np.array(side.bounds[1:], float)
    if side.positions is None:
        return np.full(len(starts), -inf), np.full(len(starts), inf)
    if isinstance(side.positions, range):
        return starts + side.positions.start, ends - 1 + side.positions.start
    chunks = [side.positions[a:b] for a, b in zip(side.bounds[:-1], side.bounds[1:], strict=True)]
    return (np.array([chunk.min(initial=inf) for chunk in map(_as_float, chunks)]),
            np.array([chunk.max(initial=-inf) for chunk in map(_as_float, chunks)]))  # fmt: skip


def _runs(side: Side) -> list[tuple[int, int, float, float]]:
    """Return (chunk, segment, least position, greatest position) of each segment of each chunk."""
    found = []
    for number, (a, b) in enumerate(zip(side.bounds[:-1], side.bounds[1:], strict=True)):
        if a == b or side.segments is None:
            continue
        segments = side.segments[a:b]
        order = np.argsort(segments, kind="stable")
        names, firsts = np.unique(segments[order], return_index=True)
        if side.positions is None:
            found += [(number, int(name), -inf, inf) for name in names]
            continue
        positions = _as_float(np.asarray(side.positions[a:b]))[order]
        edges = zip(np.minimum.reduceat(positions, firsts), np.maximum.reduceat(positions, firsts), strict=True)
        found += [(number, int(name), float(a), float(b)) for name, (a, b) in zip(names, edges, strict=True)]
    return found


def _as_float(array: Array) -> Array:
    return array.astype(np.float64)


def _is_integer(positions: Known | None) -> bool:
    return isinstance(positions, range) or (positions is not None and positions.dtype.kind in "iu")


def _rows_of(known: Any) -> int:
    return known.shape[0] if isinstance(known, np.ndarray) and known.ndim == 2 else 1


def _row_of(known: Any, number: int) -> Any:
    """Return a row of (rows, N); one row is shared by all."""
    if isinstance(known, np.ndarray) and known.ndim == 2:
        return known[number if len(known) > 1 else 0]
    return known
