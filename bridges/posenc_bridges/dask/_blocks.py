"""The axes of the functions: which arrays share an axis, and which axes are cut. Arrays made of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from ._arrays import AnyArray, Dtype

Chunks = tuple[int, ...]
"""Lengths of the chunks along one axis."""
Axes: TypeAlias = tuple[str, ...]
Operand: TypeAlias = tuple[AnyArray, Axes]
"""An array and the names of its axes."""
Key = tuple[str | int, ...]
"""The key of a task: the name of an array or of a kind of tasks, and the numbers of the chunk."""
Tasks = dict[Key, object]
"""Tasks by their keys, or by the indices of the chunks that they make."""
At = dict[str, int]
"""The number of a chunk along each axis."""


def shape_of(array: AnyArray) -> tuple[int, ...]:
    return (len(array),) if isinstance(array, range) else array.shape


def bounds_of(chunks: Chunks) -> list[int]:
    """Return where chunks begin and end: (3, 2) gives [0, 3, 5]."""
    return [0, *itertools.accumulate(chunks)]


def common_bounds(bounds: Iterable[Sequence[int]]) -> list[int]:
    """Return the bounds of the coarsest chunks that cut no chunk of any of the axes."""
    return sorted({place for axis in bounds for place in axis})


def lengths_of(bounds: Sequence[int]) -> Chunks:
    """Return the lengths of the chunks between bounds; an axis of length 0 has one chunk."""
    return tuple(b - a for a, b in itertools.pairwise(bounds)) or (0,)


def name_axes(letters: str, ndim: int) -> Axes:
    """Return the names of the axes of an array, one letter for each; "*" are any axes before or between the others.

    Arrays are cut at the same places along axes of one name, where an axis of length 1 is broadcast. An uppercase axis
    is one chunk. The axes of "*" are "0", "1", ... from the last one on. An array with fewer axes than letters has the
    last ones.
    """
    before, _, after = letters.partition("*") if "*" in letters else ("", "", letters)
    count = ndim - len(before) - len(after)
    return (*before, *map(str, reversed(range(count))), *after[max(0, -count) :])


class Source(NamedTuple):
    """An array whose chunks tasks read."""

    array: da.Array
    axes: Axes
    """The axis of the call along which each axis is cut; "" for one chunk."""

    def key(self, at: At) -> Key:
        """Return the key of a chunk."""
        return (self.array.name, *[at[axis] if axis else 0 for axis in self.axes])


def cut(array: AnyArray, axes: Axes, chunks: Mapping[str, Chunks]) -> Source:
    """Return an array in the given chunks. An axis of length 1 stays whole, because it is broadcast."""
    pairs = list(zip(axes, shape_of(array), strict=True))
    names = tuple(axis if axis in chunks and sum(chunks[axis]) == length != 1 else "" for axis, length in pairs)
    wanted = tuple(chunks[axis] if axis else (length,) for axis, (_, length) in zip(names, pairs, strict=True))
    if isinstance(array, range):
        array = da.arange(array.start, array.stop, chunks=wanted, dtype=np.int64)
    elif isinstance(array, np.ndarray):
        array = da.from_array(array, chunks=wanted)
    return Source(array if array.chunks == wanted else array.rechunk(wanted), names)


def map_blocks(
    run: Callable[..., object], result: Axes, arrays: Sequence[Operand], dtype: Dtype, **lengths: int
) -> da.Array:
    """Return the array whose blocks are ``run(*blocks)``.

    The blocks of one call of `run` are at the same place along the axes that they share.

    The first dask array that has an axis decides where the axis is cut. `lengths` has the axes that only the result
    has.
    """
    chunks: dict[str, Chunks] = {}
    for array, axes in arrays:
        if isinstance(array, da.Array):
            for axis, own in zip(axes, array.chunks, strict=True):
                chunks.setdefault(axis, (sum(own),) if axis.isupper() else own)
    pairs = [one for array, axes in arrays for one in (cut(array, axes, chunks).array, axes)]
    return da.blockwise(
        run,
        result,
        *pairs,
        new_axes=lengths,
        dtype=dtype,
        align_arrays=False,
        concatenate=True,
        meta=np.empty((0,) * len(result), dtype),
    )


def from_tasks(
    name: str, blocks: Tasks, chunks: tuple[Chunks, ...], dtype: Dtype, shared: tuple[str, Tasks, Sequence[da.Array]]
) -> da.Array:
    """Return the array whose chunks are the given tasks, by index.

    `shared` is the name and the tasks of a layer that several results have in common, and the arrays that its tasks
    read. The tasks in `blocks` read the tasks of this layer.
    """
    graph = HighLevelGraph.from_collections(*shared)
    layers = {**graph.layers, name: {(name, *index): task for index, task in blocks.items()}}
    return da.Array(HighLevelGraph(layers, {**graph.dependencies, name: {shared[0]}}), name, chunks, dtype=dtype)
