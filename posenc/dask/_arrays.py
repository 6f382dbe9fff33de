"""Arrays in chunks: the caller's arrays as dask arrays, bounds of chunks, and keys of the chunks that a task reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from posenc._core_api.arguments import fail

DaskArray: TypeAlias = Any
"""A `dask.array.Array`. The type is not named, because type checkers need not have dask."""
Chunks = tuple[int, ...]
"""Lengths of the chunks along one axis."""
Key = tuple[Any, ...]
Tasks = dict[Key, Any]
"""Tasks by their keys, or by the indices of the chunks that they make."""


def is_dask(value: Any) -> bool:
    return isinstance(value, da.Array)


def is_xarray(value: Any) -> bool:
    """Return whether a value is an object of xarray, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "xarray"


def read_array(function: str, argument: str, value: Any) -> DaskArray:
    """Return an argument that has to be a dask array."""
    if is_dask(value):
        return value
    if is_xarray(value):
        fail(TypeError, function, argument, f"type {type(value).__name__} of xarray", "a dask array, such as its .data")
    expected = f"a dask array, or posenc.{function} for arrays in memory"
    fail(TypeError, function, argument, f"type {type(value).__name__}", expected)


def as_chunked(function: str, argument: str, value: Any) -> DaskArray:
    """Return an argument as a dask array; an array in memory becomes one chunk."""
    if is_dask(value) or is_xarray(value):
        return read_array(function, argument, value)
    array = np.asarray(value)
    return da.from_array(array, chunks=array.shape)


def zeros_of(shape: tuple[int, ...], dtype: Any = float) -> Any:
    """Return zeros that take no memory, for checks of shapes and dtypes."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def check_known(function: str, argument: str, array: DaskArray) -> None:
    """Refuse chunks of unknown length, whose places are unknown too."""
    if any(np.isnan(length) for axis in array.chunks for length in axis):
        fail(ValueError, function, argument, "chunks of unknown length", "known ones: call its compute_chunk_sizes()")


def bounds_of(chunks: Chunks) -> list[int]:
    """Return where chunks begin and end: (3, 2) gives [0, 3, 5]."""
    return [0, *np.cumsum(chunks, dtype=int).tolist()]


def common_bounds(bounds: Iterable[Sequence[int]]) -> list[int]:
    """Return the bounds of the coarsest chunks that cut no chunk of any of the axes."""
    return sorted({place for axis in bounds for place in axis})


def lengths_of(bounds: Sequence[int]) -> Chunks:
    """Return the lengths of the chunks between bounds; an axis of length 0 has one chunk."""
    return tuple(b - a for a, b in itertools.pairwise(bounds)) or (0,)


class Source(NamedTuple):
    """An array whose chunks tasks read."""

    name: str
    axes: tuple[str, ...]
    """For each axis the name of the axis of the call along which it is cut; "" for one chunk."""

    def key(self, at: dict[str, int]) -> Key:
        """Return the key of the chunk at the given numbers of chunks along the axes of the call."""
        return (self.name, *(at[axis] if axis else 0 for axis in self.axes))


def cut(array: DaskArray, axes: Sequence[str], chunks: dict[str, Chunks]) -> tuple[DaskArray, Source]:
    """Return an array in the chunks of the call; an axis of length 1 stays whole, because it is broadcast."""
    names = tuple("" if length == 1 else axis for axis, length in zip(axes, array.shape, strict=True))
    wanted = tuple(chunks[axis] if axis else (length,) for axis, length in zip(names, array.shape, strict=True))
    rechunked = array if array.chunks == wanted else array.rechunk(wanted)
    return rechunked, Source(rechunked.name, names)


def from_blocks(
    name: str,
    blocks: Tasks,
    chunks: tuple[Chunks, ...],
    dtype: Any,
    *,
    shared: tuple[str, Tasks],
    reads: Sequence[DaskArray],
) -> DaskArray:
    """Return the array whose chunks are the given tasks, by index.

    `shared` is the name and the tasks of a layer that several results have in common. Its tasks read the arrays
    `reads`, and the chunks of the result read its tasks.
    """
    graph = HighLevelGraph.from_collections(*shared, reads)
    layers = {**graph.layers, name: {(name, *index): task for index, task in blocks.items()}}
    return da.Array(HighLevelGraph(layers, {**graph.dependencies, name: {shared[0]}}), name, chunks, dtype=dtype)
