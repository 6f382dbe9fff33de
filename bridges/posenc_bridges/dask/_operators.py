"""Operators on the logits in chunks: the part of an operator that a chunk of heads, queries and keys reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

import posenc
from posenc.interop import axes_of

from ._arrays import Array, Dtype
from ._blocks import Axes, name_axes

FIRST_CHUNK_ONLY = {"cls_to_any": "n", "any_to_cls": "m"}
"""Arrays that only row 0 ("n") or column 0 ("m") of the logits reads."""
Span: TypeAlias = tuple[int, int]
"""The range of a chunk along an axis: its first index, and the one after its last."""


def arrays_of(bias: posenc.Bias) -> list[tuple[Array, Axes] | None]:
    """Return the arrays of an operator, then its own positions of queries and keys, each with its axes, or None."""
    pairs = zip((*bias.arrays, *bias.own_positions), (*axes_of(bias), "n", "m"), strict=True)
    return [(a, name_axes("*" + axes, a.ndim)) if isinstance(a, np.ndarray) else None for a, axes in pairs]


def leading_shape(bias: posenc.Bias) -> tuple[int, ...]:
    """Return the shape of the matrix of an operator, or of a sum, without queries and keys."""
    leading = [(part.heads or 1,) for part in bias.parts if "heads" in part.options]
    for array, axes in (one for part in bias.parts for one in arrays_of(part) if one):
        before = tuple(n for axis, n in zip(axes, array.shape, strict=True) if axis == "h" or axis.isdigit())
        leading.append((*before, 1) if before and "h" not in axes else before)
    return np.broadcast_shapes(*leading)


class Operator:
    """An operator without its arrays, which makes the part of the operator that a chunk reads from pieces of them.

    The operator is no sum.
    """

    def __init__(self, bias: posenc.Bias) -> None:
        letters, others = axes_of(bias), [one if isinstance(one, tuple) else None for one in bias.arrays]
        self._has_distances = any("l" in axes for axes in letters)
        self._first_only = [FIRST_CHUNK_ONLY.get(name) for name in (*bias.arrays._fields, "", "")]
        dtypes: list[Dtype | None] = [None if dtype is None else np.dtype(np.float64) for dtype in bias.dtypes]
        for i, array in enumerate(bias.arrays):  # sums over chunks are in double, unless each has a piece of its own
            if {"n", "m"} <= {*letters[i]} and isinstance(array, np.ndarray) and array.dtype != np.float64:
                dtypes[i] = np.dtype(np.float32)
        self.bias = replace(bias, arrays=type(bias.arrays)(*others), dtypes=tuple(dtypes), own_positions=(None, None))

    def reads(self, queries: Span, keys: Span) -> list[bool]:
        """Return which of `arrays_of` the chunk of these queries and keys reads."""
        first = {None: 0, "n": queries[0], "m": keys[0]}
        return [first[axis] == 0 for axis in self._first_only]

    def distances(self, n: int, queries: Span, keys: Span) -> slice | None:
        """Return the entries of an axis of distances that the chunk reads; None without such an axis.

        Entry j - i + n - 1 is for key j and query i of n.
        """
        if not self._has_distances:
            return None
        (first, end), (left, right), start = queries, keys, n + keys[0] - queries[1]
        return slice(start, start if first == end or left == right else start + end - first + right - left - 1)

    def __call__(self, pieces: Sequence[Array | None], distances: slice | None) -> posenc.Bias:
        """Return the operator with these pieces of `arrays_of`; None is one that it lacks, or that the chunk lacks."""
        if distances is not None:
            pieces = [None if array is None else array[..., distances] for array in pieces]
        # the gradient of a piece can be in its memory order
        pieces = [array if array is None or array.flags.forc else np.ascontiguousarray(array) for array in pieces]
        *arrays, q, k = pieces
        others = self.bias.arrays
        both = [other if array is None else array for array, other in zip(arrays, others, strict=True)]
        return replace(self.bias, arrays=type(others)(*both), own_positions=(q, k))
