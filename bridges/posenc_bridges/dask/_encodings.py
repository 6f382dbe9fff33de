"""Encodings and rotations, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

import posenc

from ._arrays import Arguments, Array, check, fail, is_lazy, is_xarray, places_of, read_array, read_numbers, twin_of
from ._blocks import Key, Operand, Tasks, bounds_of, cut, from_tasks, map_blocks, name_axes, shape_of

__all__ = ["combine", "learned", "rope", "rope_nd", "sinusoidal", "xpos"]

ChunksArgument = int | str | tuple[object, ...]
"""Chunks as dask.array takes them."""


# ---- rotations ----


def _rotate(twin: Callable[..., Array], arguments: Arguments, coordinates: str = "") -> da.Array:
    """Call a rotation of posenc on each chunk. `coordinates` is the letter of the first axis of positions, if any."""
    x, seq_axis, frequencies = arguments["x"], arguments["seq_axis"], arguments["frequencies"]
    if not coordinates:
        _refuse_table(arguments["positions"])
    if is_xarray(x):  # the result keeps the names; `seq_axis` may be one of them
        number = x.get_axis_num(seq_axis) if isinstance(seq_axis, str) else seq_axis
        return x.copy(data=_rotate(twin, {**arguments, "x": x.data, "seq_axis": number}, coordinates))
    x = read_numbers("x", x)
    positions = places_of(twin, {**arguments, "x": x})

    axes = [axis for axis in name_axes("*hnD", x.ndim) if axis != "n"]
    axes.insert(seq_axis % x.ndim, "n")
    count = len(shape_of(positions))
    letters = coordinates + ("*n" if count - len(coordinates) == x.ndim - 2 else "*hn")  # one row for all heads
    arrays: list[Operand] = [(x, tuple(axes)), (positions, name_axes(letters, count))]
    options = {name: value for name, value in arguments.items() if name not in ("x", "positions", "start")}
    if "h" in axes and np.ndim(frequencies) == 3:
        arrays.append((np.asarray(options.pop("frequencies")), ("A", "h", "P")))
    return map_blocks(partial(twin, **options), tuple(axes), arrays, x.dtype.newbyteorder("="))


def _refuse_table(positions: object) -> None:
    """Refuse a pair (cos, sin) as `posenc.rope` does, whose advice is `rope_by_table`."""
    halves: Sequence[Any] = positions if isinstance(positions, tuple | list) and len(positions) == 2 else [None]
    if all(getattr(half, "ndim", 0) > 1 and half.dtype.kind not in "iu" for half in halves):
        fail(ValueError, "positions has a table (cos, sin)", "positions; each task makes the table of its chunk")


@twin_of(posenc.rope)
def rope(arguments: Arguments) -> da.Array:
    """Apply rotary position embeddings to a dask array, as `posenc.rope` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries or keys. The channels are merged into one chunk. An xarray.DataArray over a dask array is accepted too,
        and `seq_axis` may then be the name of a dimension.
    positions : int, or array or dask array (N,), (B, N) or (B, H, N)
        As in `posenc.rope`. Each task makes the table of its chunk, so `posenc.rope_by_table` has no twin.
    frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis, start
        Those of `posenc.rope`.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.rope`, bit for bit, in the chunks of x.

    Raises
    ------
    TypeError, ValueError
        As `posenc.rope`; an x that is not a dask array; chunks of unknown length.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
    >>> x = da.ones((8, 1000, 64), chunks=(8, 300, 64), dtype=np.float32)
    >>> posenc_bridges.dask.rope(x, 1000, posenc.rope_frequencies(64), layout="half").chunks
    ((8,), (300, 300, 300, 100), (64,))
    """
    return _rotate(posenc.rope, arguments)


@twin_of(posenc.rope_nd)
def rope_nd(arguments: Arguments) -> da.Array:
    """Rotate by several coordinates, as `posenc.rope_nd` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries or keys; as in `rope`.
    positions : array or dask array (A, ..., N)
        The coordinates of each token.
    frequencies : array (A, rotary_dim // 2) or (A, H, rotary_dim // 2)
        As in `posenc.rope_nd`. Each task gets the frequencies of its heads.
    layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        Those of `posenc.rope_nd`.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.rope_nd`, bit for bit, in the chunks of x.

    Raises
    ------
    TypeError, ValueError
        As `posenc.rope_nd`; an x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
    >>> x, positions = da.ones((4, 12, 32), chunks=(2, 5, 32)), np.indices((2, 2, 3)).reshape(3, -1)
    >>> posenc_bridges.dask.rope_nd(x, positions, posenc.axial_frequencies((8, 12, 12)), layout="half").chunks
    ((2, 2), (5, 5, 2), (32,))
    """
    return _rotate(posenc.rope_nd, arguments, "A")


@twin_of(posenc.xpos)
def xpos(arguments: Arguments) -> da.Array:
    """Rotate with exponential decay, as `posenc.xpos` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries, or keys with ``downscale=True``; as in `rope`.
    positions, frequencies, layout, rotary_dim, rotary_offset, scale_base, gamma, center, downscale, seq_axis, start
        Those of `posenc.xpos`.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.xpos`, bit for bit, in the chunks of x.

    Raises
    ------
    TypeError, ValueError
        As `posenc.xpos`; an x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
    >>> x = da.ones((2, 10, 8), chunks=(2, 4, 8))
    >>> posenc_bridges.dask.xpos(x, 10, posenc.rope_frequencies(8), layout="half").numblocks
    (1, 3, 1)
    """
    return _rotate(posenc.xpos, arguments)


# ---- encodings that are added to vectors ----


@twin_of(posenc.sinusoidal)
def sinusoidal(arguments: Arguments, *, chunks: ChunksArgument | None = None) -> da.Array:
    """Encode positions by sines and cosines, as `posenc.sinusoidal` does.

    Parameters
    ----------
    positions : int, or array or dask array (..., N)
        Integers or reals.
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
    >>> import posenc_bridges.dask
    >>> posenc_bridges.dask.sinusoidal(1000, 64, chunks=(300, -1)).chunks
    ((300, 300, 300, 100), (64,))
    """
    chunks, places = arguments.pop("chunks"), places_of(posenc.sinusoidal, arguments)
    options = {name: value for name, value in arguments.items() if name not in ("positions", "start")}
    run, shape = partial(posenc.sinusoidal, **options), shape_of(places)
    sample = run(positions=1)
    if not shape:
        fail(ValueError, "positions has no axes", "at least one")
    if chunks is not None:
        wanted = (*(chunks,) * len(shape), -1) if isinstance(chunks, int | str) else chunks
        *leading, last = da.empty((*shape, sample.shape[-1]), chunks=wanted).chunks
        if len(last) != 1:
            fail(ValueError, f"chunks has {len(last)} chunks of the last axis", "one, written -1")
        axes = name_axes("*", len(shape))
        places = cut(places, axes, dict(zip(axes, leading, strict=True))).array
    elif not isinstance(places, da.Array):
        fail(TypeError, "chunks is None", "those of the result, such as (4096, -1), or positions as a dask array")
    meta = np.empty((0,) * (len(shape) + 1), sample.dtype)
    return places.map_blocks(run, chunks=(*places.chunks, sample.shape[-1:]), new_axis=len(shape), meta=meta)


@twin_of(posenc.combine)
def combine(arguments: Arguments) -> da.Array:
    """Combine vectors with their position encodings, as `posenc.combine` does.

    Parameters
    ----------
    x : dask array (..., d), or DataArray over one
        Vectors. Their chunks are those of the result.
    p : array or dask array that broadcasts to x
        Encodings; for "concat" their last axis has any length.
    mode : {"add", "mul", "mul1p", "replace", "concat"}
        As in `posenc.combine`. "concat" merges the last axis into one chunk, and refuses a DataArray.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.combine`, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As `posenc.combine`; an x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
    >>> x = da.ones((2, 1000, 64), chunks=(1, 300, 64), dtype=np.float32)
    >>> p = posenc_bridges.dask.sinusoidal(1000, 64, chunks=(300, -1))
    >>> posenc_bridges.dask.combine(x, p).chunks
    ((1, 1), (300, 300, 300, 100), (64,))
    """
    x, p = arguments["x"], arguments["p"]
    is_wide = arguments["mode"] == "concat"
    if is_xarray(x) and not is_wide:
        return x.copy(data=combine(**{**arguments, "x": x.data}))
    x, p = read_array("x", x), read_array("p", p) if is_lazy(p) else np.asarray(p)
    check(posenc.combine, {**arguments, "x": x, "p": p})
    run = partial(posenc.combine, mode=arguments["mode"])
    dtype = run(np.zeros(1, x.dtype), np.zeros(1, p.dtype)).dtype
    of_x, of_p, of_result = ("*D", "*E", "*F") if is_wide else ("*d", "*d", "*d")
    lengths = {"F": x.shape[-1] + p.shape[-1]} if is_wide else {}
    arrays: list[Operand] = [(x, name_axes(of_x, x.ndim)), (p, name_axes(of_p, p.ndim))]
    return map_blocks(run, name_axes(of_result, x.ndim), arrays, dtype, **lengths)


@twin_of(posenc.learned)
def learned(arguments: Arguments, *, chunks: ChunksArgument | None = None) -> da.Array:
    """Look up learned position embeddings, as `posenc.learned` does.

    Parameters
    ----------
    table : array or dask array (n, d)
        A row for each position. It may be larger than the memory of a worker, if its rows are split.
    positions : int, or array or dask array (..., N) of integers
        Row indices. If they are in memory, only the chunks of the table that contain their rows are loaded.
    start : int
        As in `posenc.learned`.
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
    >>> import dask.array as da, numpy as np, posenc_bridges.dask
    >>> table = da.random.default_rng(0).random((1000, 64), chunks=(250, 64))
    >>> posenc_bridges.dask.learned(table, np.arange(600), chunks=200).chunks
    ((200, 200, 200), (64,))
    """
    table, chunks = arguments["table"], arguments.pop("chunks")
    table = read_numbers("table", table if is_lazy(table) else da.from_array(np.asarray(table), chunks=-1))
    places = places_of(posenc.learned, {**arguments, "table": table})
    known = None if isinstance(places, da.Array) else np.asarray(places)
    if known is not None and chunks is None:
        fail(TypeError, "chunks is None", "the chunks of positions, because positions is no dask array")
    positions = places if isinstance(places, da.Array) else da.from_array(known, chunks=chunks)
    positions = positions if chunks is None else positions.rechunk(chunks)

    token, bounds = tokenize(table.name, positions.name), bounds_of(table.chunks[0])
    picks, blocks, spans = Tasks(), Tasks(), [bounds_of(axis) for axis in positions.chunks]
    for at in np.ndindex(positions.numblocks):
        needed: Sequence[int] = range(len(bounds) - 1)
        if known is not None:
            ids = known[tuple(slice(axis[i], axis[i + 1]) for axis, i in zip(spans, at, strict=True))]
            needed = np.unique(np.searchsorted(bounds, ids, side="right") - 1).tolist() or [0]
        for column in range(table.numblocks[1]):
            keys: list[Key] = [(f"learned-rows-{token}", *at, row, column) for row in needed]
            for row, key in zip(needed, keys, strict=True):
                read = (table.name, row, column), (positions.name, *at)
                picks[key] = (_pick_rows, *read, bounds[row], table.shape[0])
            blocks[(*at, column)] = (_join_rows, keys)
    shared = f"learned-rows-{token}", picks, [table, positions]
    return from_tasks(f"learned-{token}", blocks, (*positions.chunks, table.chunks[1]), table.dtype, shared)


def _pick_rows(chunk: Array, positions: Array, first: int, count: int) -> tuple[Array, Array]:
    """Return a mask of the positions with a row in a chunk that begins at row `first` of `count`, and their rows."""
    posenc.learned(np.empty((count, 0)), positions)  # raises the error of a position without a row
    hits = (positions >= first) & (positions < first + len(chunk))
    return hits, posenc.learned(chunk, positions[hits] - first)


def _join_rows(picks: list[tuple[Array, Array]]) -> Array:
    """Return the rows of all positions from those of each chunk of the table."""
    hits, rows = picks[0]
    joined = np.empty((*hits.shape, rows.shape[-1]), rows.dtype)
    for hits, rows in picks:
        joined[hits] = rows
    return joined
