"""The axes of the functions: which arrays share an axis, and which axes are cut. Arrays made of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from ._arrays import AnyArray, Chunks, Dtype, bounds_of, shape_of

Axes = tuple[str, ...]
Key = tuple[str | int, ...]
"""The key of a task: the name of an array or of a kind of tasks, and the numbers of the chunk."""
Tasks = dict[Key, object]
"""Tasks by their keys, or by the indices of the chunks that they make."""
At = dict[str, int]
"""The number of a chunk along each axis."""
Place = dict[str, tuple[int, int]]
"""The range of a chunk along each axis: its first index, and the one after its last."""


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
    run: Callable[..., object],
    result: Axes,
    arrays: Sequence[tuple[AnyArray, Axes]],
    dtype: Dtype,
    given: Mapping[str, Chunks] = MappingProxyType({}),
    **lengths: int,
) -> da.Array:
    """Return the array whose blocks are ``run(*blocks)``.

    The blocks of one call of `run` are at the same place along the axes that they share.

    The first dask array that has an axis decides where the axis is cut, unless the chunks of the axis are `given`.
    `lengths` has the axes that only the result has.
    """
    chunks = dict(given)
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


class Grid:
    """Chunks along the axes of a call."""

    def __init__(self, chunks: dict[str, Chunks]) -> None:
        self.chunks = chunks
        self.bounds = {axis: bounds_of(lengths) for axis, lengths in chunks.items()}

    def cells(self, axes: Axes) -> Iterator[At]:
        """Yield the numbers of all chunks along some axes."""
        for index in np.ndindex(*(len(self.chunks[axis]) for axis in axes)):
            yield dict(zip(axes, index, strict=True))

    def place(self, at: At) -> Place:
        """Return the range of a chunk along each axis."""
        return {axis: (self.bounds[axis][i], self.bounds[axis][i + 1]) for axis, i in at.items()}


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
