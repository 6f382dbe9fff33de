"""Operators on the logits in chunks: the part of an operator that a chunk of heads, queries and keys reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import posenc
from posenc.interop import axes_of

from ._arrays import Array, Chunks, Dtype
from ._blocks import At, Grid, Key, Source, Tasks, cut, name_axes

FIRST_CHUNK_ONLY = {"cls_to_any": "n", "any_to_cls": "m"}
"""Arrays that only row 0 ("n") or column 0 ("m") of the logits reads."""
Pieces: TypeAlias = list[Array | None]
"""A piece of each array of an operator, then of its own positions of queries and keys; None where a chunk has none."""
Part: TypeAlias = tuple[Callable[[Pieces, slice | None], posenc.Bias], Pieces, slice | None]
"""The part of an operator that a chunk reads: a function that makes it, and its two arguments."""


class Operator:
    """An operator whose arrays are cut as the axes of a call are.

    Attributes
    ----------
    bias : Bias
        The operator, which is no sum.
    sources : list
        Its arrays, then its own positions of queries and keys, each in chunks; None where it has none.
    leading : tuple of int
        The axes of its matrix before queries and keys.
    """

    def __init__(self, bias: posenc.Bias, chunks: Mapping[str, Chunks]) -> None:
        self.bias, letters = bias, axes_of(bias)
        self._has_distances = any("l" in axes for axes in letters)
        self._first_only = [FIRST_CHUNK_ONLY.get(name) for name in (*bias.arrays._fields, "", "")]
        self.sources: list[Source | None] = []
        leading: list[tuple[Any, ...]] = [(bias.heads,)] if "heads" in bias.options else []
        for array, axes in zip((*bias.arrays, *bias.own_positions), (*letters, "n", "m"), strict=True):
            source = None
            if isinstance(array, np.ndarray):
                names = name_axes("*" + axes, array.ndim)
                source = cut(array, names, chunks)
                before = [n for axis, n in zip(names, array.shape, strict=True) if axis == "h" or axis.isdigit()]
                leading.append((*before, 1) if before and "h" not in names else tuple(before))
            self.sources.append(source)
        self.leading = np.broadcast_shapes(*leading)
        dtypes: list[Dtype | None] = [None] * len(letters)
        for i, array in enumerate(bias.arrays):
            if isinstance(array, np.ndarray):  # sums over chunks are in double, unless each has a piece of its own
                is_large = {"n", "m"} <= {*letters[i]} and array.dtype != np.float64
                dtypes[i] = np.dtype(np.float32 if is_large else np.float64)
        others: list[object] = [array if isinstance(array, tuple) else None for array in bias.arrays]
        self._make = partial(_make, type(bias), bias.name, type(bias.arrays), others, dict(bias.options), tuple(dtypes))

    def keys(self, at: At) -> list[Key | None]:
        """Return the keys of the pieces that a chunk reads."""
        pairs = zip(self.sources, self._first_only, strict=True)
        return [source.key(at) if source and not (first and at[first]) else None for source, first in pairs]

    def task(self, name: str, number: int, at: At, grid: Grid, layer: Tasks) -> list[object]:
        """Return what a task makes the part of a chunk of; add the node of the function.

        `number` is the place of this operator among those of the call.
        """
        make: Key = (name, number)
        layer.setdefault(make, self._make)
        distances = None
        if self._has_distances:  # entry j - i + n - 1 is for key j and query i of n
            (first, end), (left, right) = (grid.place({axis: at[axis]})[axis] for axis in "nm")
            start = grid.bounds["n"][-1] + left - end
            is_empty = first == end or left == right
            distances = slice(start, start if is_empty else start + end - first + right - left - 1)
        return [make, self.keys(at), distances]


def _make(
    kind: type[posenc.Bias],
    name: str,
    fields: type,
    others: list[object],
    options: dict[str, object],
    dtypes: tuple[Dtype | None, ...],
    pieces: Pieces,
    distances: slice | None,
) -> posenc.Bias:
    """Return an operator from pieces of its arrays and of its own positions, and from everything else of it."""
    if distances is not None:
        pieces = [None if array is None else array[..., distances] for array in pieces]
    # the gradient of a piece can be in its memory order
    pieces = [array if array is None or array.flags.forc else np.ascontiguousarray(array) for array in pieces]
    *arrays, q, k = pieces
    both = [other if array is None else array for array, other in zip(arrays, others, strict=True)]
    return kind(name, fields(*both), options, dtypes, (q, k))
