"""Encodings that are added to vectors, chunk by chunk."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

import posenc
from posenc._core_api.arguments import Array, as_data, broadcasts_to, check_choice, fail, fail_value
from posenc.absolute.embedding import read_ids, read_table
from posenc.absolute.merge import MODES, Mode

from ._arrays import Chunks, DaskArray, bounds_of, check_known, is_dask, is_xarray, read_array, zeros_of
from ._twins import Function, position_chunks, takes_arguments_of

__all__ = ["learned", "merge", "sinusoidal"]


@takes_arguments_of(posenc.sinusoidal)
def sinusoidal(arguments: dict[str, Any], *, chunks: Any = None) -> DaskArray:
    """Encode positions by sines and cosines, as `posenc.sinusoidal` does.

    Parameters
    ----------
    positions : int, or array or dask array (..., N)
        Any integers or reals.
    dim, base, frequencies, layout, order, denominator, scale, start, dtype
        Those of `posenc.sinusoidal`.
    chunks : int or tuple
        Chunks of the result (..., N, dim), as dask.array takes them; the last axis is one chunk. An int is the length
        of the chunks along the other axes. Required unless `positions` is a dask array.

    Returns
    -------
    dask array (..., N, dim)
        Equal to the result of `posenc.sinusoidal`, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As `posenc.sinusoidal`; no chunks; chunks that cut the last axis.

    Examples
    --------
    >>> import posenc.dask
    >>> posenc.dask.sinusoidal(1000, 64, chunks=(300, -1)).chunks
    ((300, 300, 300, 100), (64,))
    """
    function, positions, dim = "sinusoidal", arguments["positions"], arguments["dim"]
    chunks = arguments.pop("chunks", None)
    options = {name: value for name, value in arguments.items() if name not in ("positions", "start")}

    def chunks_of(shape: tuple[int, ...]) -> tuple[Chunks, ...]:
        if chunks is None:
            if not is_dask(positions):
                expected = "the chunks of the result, such as (4096, -1), because positions is no dask array"
                fail_value(TypeError, function, "chunks", None, expected)
            return tuple(positions.chunks)
        wanted = (*(chunks,) * len(shape), -1) if isinstance(chunks, int | str) else chunks
        *leading, last = da.core.normalize_chunks(wanted, (*shape, dim), dtype=np.dtype(np.float64))
        if len(last) != 1:
            fail(ValueError, function, "chunks", f"{len(last)} chunks of the last axis", "one, written -1")
        return tuple(leading)

    run: Function = partial(posenc.sinusoidal, **options)
    sample = run(np.zeros(1, positions.dtype) if is_dask(positions) else 1)
    places = position_chunks(function, positions, arguments.get("start", 0), chunks_of)
    if not places.ndim:
        fail(ValueError, function, "positions", "no axes", "at least one")
    every = tuple(range(places.ndim))
    return da.blockwise(
        run, (*every, places.ndim), places, every, dtype=sample.dtype, new_axes={places.ndim: dim},
        align_arrays=False, meta=np.empty((0,) * (places.ndim + 1), sample.dtype),
    )  # fmt: skip


def learned(table: Any, positions: Any, *, chunks: Any = None) -> DaskArray:
    """Look up learned position embeddings, as `posenc.learned` does.

    Parameters
    ----------
    table : array or dask array (n, d)
        A row for each position. It may be larger than the memory of a worker, if its rows are split.
    positions : int, or array or dask array (..., N) of integers
        Row indices. The chunks of a table that positions in memory do not read are not loaded.
    chunks : int or tuple
        Chunks of the positions (..., N). Required unless `positions` is a dask array.

    Returns
    -------
    dask array (..., N, d)
        Rows of the table, bit for bit; split along d as the table is.

    Raises
    ------
    TypeError, ValueError
        As `posenc.learned`; no dask array among the arguments and no chunks.
    IndexError
        A position that has no row; it is raised when the chunk is computed if positions are a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc.dask
    >>> table = da.random.default_rng(0).random((1000, 64), chunks=(250, 64))
    >>> posenc.dask.learned(table, np.arange(600), chunks=200).chunks
    ((200, 200, 200), (64,))
    """
    function = "learned"
    if is_dask(table):
        check_known(function, "table", table)
        if table.ndim != 2:
            fail(ValueError, function, "table", f"{table.ndim} axes", "2: a row for each position")
        as_data(function, "table", np.zeros((), table.dtype))
    else:
        in_memory = read_table(function, read_array(function, "table", table) if is_xarray(table) else table)
        table = da.from_array(in_memory, chunks=in_memory.shape)
    if table.dtype.kind in "iu":
        table = table.astype(np.float64)
    known = None
    if is_xarray(positions):
        read_array(function, "positions", positions)
    if is_dask(positions):
        if positions.dtype.kind not in "iu":
            fail(TypeError, function, "positions", f"dtype {positions.dtype}", "integers")
        check_known(function, "positions", positions)
    else:
        known = read_ids(function, positions, table.shape[0])
        if chunks is None:
            expected = "the chunks of positions, because positions is no dask array"
            fail_value(TypeError, function, "chunks", None, expected)
    chunks = positions.chunks if chunks is None else chunks
    places = positions.rechunk(chunks) if is_dask(positions) else da.from_array(known, chunks=chunks)
    return _look_up(table, places, known)


def _look_up(table: DaskArray, positions: DaskArray, known: Array | None) -> DaskArray:
    """Return rows of a table; each chunk of positions reads the chunks of rows that it needs."""
    token = tokenize(table.name, positions.name)
    name = f"learned-{token}"
    bounds = bounds_of(table.chunks[0])
    layer: dict[Any, Any] = {}
    places = [bounds_of(axis) for axis in positions.chunks]
    for at in np.ndindex(positions.numblocks):
        needed = list(range(len(bounds) - 1))
        if known is not None:
            ids = known[tuple(slice(axis[i], axis[i + 1]) for axis, i in zip(places, at, strict=True))]
            needed = np.unique(np.searchsorted(bounds, ids, side="right") - 1).tolist() or [0]
        for column in range(table.numblocks[1]):
            picks = {
                (f"learned-rows-{token}", *at, row, column): (
                    _pick_rows, (table.name, row, column), (positions.name, *at), bounds[row], table.shape[0],
                )
                for row in needed
            }  # fmt: skip
            if len(picks) > 1:
                layer.update(picks)
            layer[(name, *at, column)] = (_join_rows, list(picks) if len(picks) > 1 else list(picks.values()))
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[table, positions])
    return da.Array(graph, name, (*positions.chunks, table.chunks[1]), dtype=table.dtype)


def _pick_rows(chunk: Array, positions: Array, first: int, count: int) -> tuple[Array, Array]:
    """Return which positions are rows of a chunk, whose first row is `first` of `count`, and these rows."""
    ids = read_ids("learned", positions, count)
    hits = (ids >= first) & (ids < first + len(chunk))
    return hits, posenc.learned(chunk, ids[hits] - first)


def _join_rows(picks: list[tuple[Array, Array]]) -> Array:
    """Return the rows of all positions from those of each chunk of the table."""
    hits, rows = picks[0]
    joined = np.empty((*hits.shape, rows.shape[-1]), rows.dtype)
    for hits, rows in picks:
        joined[hits] = rows
    return joined


def merge(x: DaskArray, p: Any, *, mode: Mode = "add") -> DaskArray:
    """Combine vectors with their position encodings, as `posenc.merge` does.

    Parameters
    ----------
    x : dask array (..., d), or DataArray over one
        Vectors. Their chunks are those of the result.
    p : array or dask array that broadcasts to x
        Encodings; for "concat" their last axis has any length.
    mode : {"add", "mul", "mul1p", "replace", "concat"}
        As in `posenc.merge`. "concat" merges the last axis into one chunk, and refuses a DataArray.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.merge`, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As `posenc.merge`; an x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x = da.ones((2, 1000, 64), chunks=(1, 300, 64), dtype=np.float32)
    >>> p = posenc.dask.sinusoidal(1000, 64, chunks=(300, -1))
    >>> posenc.dask.merge(x, p).chunks
    ((1, 1), (300, 300, 300, 100), (64,))
    """
    check_choice("merge", "mode", mode, MODES)
    if is_xarray(x) and hasattr(x, "dims") and mode != "concat":
        return x.copy(data=merge(x.data, p, mode=mode))
    x = read_array("merge", "x", x)
    check_known("merge", "x", x)
    if not is_dask(p):
        in_memory = as_data("merge", "p", p if not is_xarray(p) else read_array("merge", "p", p))
        p = da.from_array(in_memory, chunks=in_memory.shape)
    wide = mode == "concat"
    shape = (*x.shape[:-1], p.shape[-1]) if wide and p.ndim and x.ndim else x.shape
    if x.ndim < 1 or (wide and p.ndim < 1) or not broadcasts_to(p.shape, shape):
        posenc.merge(zeros_of(x.shape), zeros_of(p.shape), mode=mode)  # raises the error of posenc.merge
    if wide:
        x, p = x.rechunk({x.ndim - 1: -1}), p.rechunk({p.ndim - 1: -1})
    axes = range(x.ndim - p.ndim, x.ndim)
    pairs = zip(axes, p.shape, strict=True)
    p = p.rechunk(tuple(x.chunks[a] if n == x.shape[a] and not (wide and a == x.ndim - 1) else (n,) for a, n in pairs))
    run = partial(posenc.merge, mode=mode)
    dtype = run(np.zeros((1,), x.dtype), np.zeros((1,), p.dtype)).dtype
    every = tuple(range(x.ndim))
    names = every if not wide else (*every[:-1], x.ndim)  # the last axis of p and of the result have other names
    of_p = tuple(x.ndim + 1 if wide and axis == x.ndim - 1 else axis for axis in axes)
    adjusted = {x.ndim: (x.shape[-1] + p.shape[-1],)} if wide else None
    return da.blockwise(
        run, names, x, every, p, of_p, dtype=dtype, align_arrays=False, concatenate=True,
        new_axes=adjusted, meta=np.empty((0,) * x.ndim, dtype),
    )  # fmt: skip
