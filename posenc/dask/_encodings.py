"""Encodings and rotations, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Signature, signature
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

import posenc
from posenc._core_api.arguments import (
    INTEGERS,
    Array,
    as_data,
    as_float64,
    as_index,
    as_positions,
    as_reals,
    broadcasts_to,
    check_choice,
    fail,
    fail_value,
)
from posenc._core_api.constants import LARGEST_POSITION
from posenc.absolute.embedding import _read_ids, read_table
from posenc.absolute.merge import MODES, Mode
from posenc.rotary._rotation import read_rotation

from ._arrays import Chunks, DaskArray, bounds_of, check_known, is_dask, is_xarray, read_array, sample_of

__all__ = ["learned", "merge", "mrope", "rope", "rope_2d", "rope_nd", "sinusoidal", "xpos"]

Function = Callable[..., Any]
_OF_ROTATIONS = ("layout", "rotary_dim", "rotary_offset", "inverse", "out_layout", "seq_axis")
"""The options of a rotation that `read_rotation` takes."""


def _takes_arguments_of(twin: Function) -> Callable[[Function], Function]:
    """Give a function of (name, arguments) the signature of its twin, without `out` and with `chunks` if it has it."""

    def decorate(function: Function) -> Function:
        own = [p for p in signature(function).parameters.values() if p.name == "chunks"]
        kept = [p for p in signature(twin).parameters.values() if p.name != "out"]
        taken = Signature([*kept, *own])

        def call(*args: Any, **options: Any) -> DaskArray:
            try:
                arguments = dict(taken.bind(*args, **options).arguments)
            except TypeError as error:
                raise TypeError(f"{twin.__name__}: {error}") from None
            return function(arguments)

        call.__name__ = call.__qualname__ = twin.__name__
        call.__module__, call.__doc__ = function.__module__, function.__doc__
        call.__signature__ = taken  # type: ignore[attr-defined]
        return call

    return decorate


# ---- positions ----


def _position_chunks(
    function: str, positions: Any, start: Any, chunks: Callable[[tuple[int, ...]], tuple[Chunks, ...]]
) -> DaskArray:
    """Return positions as a dask array, in the chunks that `chunks` gives for a shape; tasks make those of an int n."""
    if is_dask(positions):
        if start:
            fail_value(TypeError, function, "start", start, "an int n for positions, meaning start .. start + n - 1")
        return positions.rechunk(chunks(positions.shape))
    if is_xarray(positions):
        return read_array(function, "positions", positions)
    if isinstance(positions, INTEGERS) and not isinstance(positions, bool):
        n = as_index(function, "positions", positions, 0)
        first = as_index(function, "start", start, -LARGEST_POSITION, LARGEST_POSITION - n)
        return da.arange(first, first + n, chunks=chunks((n,)), dtype=np.int64)
    array = as_positions(function, "positions", positions, start)
    return da.from_array(array, chunks=chunks(array.shape))


# ---- rotations ----


def _rotate(twin: Function, arguments: dict[str, Any], coordinates: bool = False) -> DaskArray:
    """Call a rotation of posenc on each chunk; with `coordinates`, axis 0 of positions is one of them each."""
    function, x = twin.__name__, arguments["x"]
    if is_xarray(x) and hasattr(x, "dims"):
        arguments = {**arguments, "x": x.data}
        if isinstance(arguments.get("seq_axis"), str):
            arguments["seq_axis"] = x.get_axis_num(arguments["seq_axis"])
        return x.copy(data=_rotate(twin, arguments, coordinates))
    options = {name: value for name, value in arguments.items() if name not in ("x", "positions", "start")}
    x = read_array(function, "x", x)
    check_known(function, "x", x)
    dtype = as_data(function, "x", np.zeros((), x.dtype)).dtype
    of_rotation = {name: options[name] for name in _OF_ROTATIONS if name in options}
    rotation = read_rotation(function, sample_of(x).view(dtype) if dtype == x.dtype else _zeros(x.shape), **of_rotation)
    if options.get("frequencies") is None:
        expected = "positions and frequencies: each task makes the table of its own chunk"
        fail(TypeError, function, "positions", "a table (cos, sin)", expected)

    seq_axis = rotation.seq_axis % x.ndim
    axes = [*(axis for axis in range(x.ndim - 1) if axis != seq_axis), seq_axis]

    def chunks_of(shape: tuple[int, ...]) -> tuple[Chunks, ...]:
        first, shape = (shape[:1], shape[1:]) if coordinates else ((), shape)
        rotation.check_fits_sequence("positions", shape)
        pairs = zip(axes[len(axes) - len(shape) :], shape, strict=True)
        return (*((n,) for n in first), *(x.chunks[axis] if n == x.shape[axis] else (n,) for axis, n in pairs))

    positions = arguments["positions"]
    if is_xarray(positions):
        read_array(function, "positions", positions)
    if coordinates and not is_dask(positions):
        positions = as_reals(function, "positions", positions)
    if coordinates and positions.ndim < 2:
        fail(ValueError, function, "positions", f"shape {positions.shape}", "one row of positions for each coordinate")
    positions = _position_chunks(function, positions, arguments.get("start", 0), chunks_of)
    of_positions = tuple(axes[len(axes) - (positions.ndim - coordinates) :])
    first = (x.ndim,) if coordinates else ()  # an axis that the result does not have

    sample = [1] * (x.ndim - 1) + [x.shape[-1]]
    of_heads: tuple[Any, ...] = ()
    frequencies = options["frequencies"]
    by_head = getattr(frequencies, "ndim", 1) == 3 and x.ndim > 2
    if by_head:
        sample[axes[-2]] = x.shape[axes[-2]]
    tiny = np.zeros((*positions.shape[:1], *(1,) * len(of_positions)) if coordinates else (1,) * positions.ndim)
    twin(np.zeros(sample, dtype), tiny.astype(positions.dtype), **options)  # checks the other options
    if by_head:
        lengths = (frequencies.shape[:1], x.chunks[axes[-2]], frequencies.shape[2:])
        of_heads = (da.from_array(options.pop("frequencies"), chunks=lengths), (x.ndim, axes[-2], x.ndim + 1))
    run = partial(twin, **options)
    whole = x.rechunk({x.ndim - 1: -1})
    every = tuple(range(x.ndim))
    return da.blockwise(
        run, every, whole, every, positions, (*first, *of_positions), *of_heads, dtype=dtype, align_arrays=False,
        concatenate=True, meta=np.empty((0,) * x.ndim, dtype),
    )  # fmt: skip


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.zeros(()), shape)


@_takes_arguments_of(posenc.rope)
def rope(arguments: dict[str, Any]) -> DaskArray:
    """Apply rotary position embeddings to a dask array, as `posenc.rope` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries or keys. The channels are merged into one chunk. An xarray.DataArray over a dask array is accepted too,
        and `seq_axis` may then be the name of a dimension.
    positions : int, or array or dask array (N,), or with as many axes as x less one
        A table (cos, sin) is refused, because each task makes that of its own chunk.
    frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis, start
        Those of `posenc.rope`.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.rope`, bit for bit, in the chunks of x.

    Raises
    ------
    TypeError, ValueError
        As `posenc.rope`; an x that is not a dask array; a table; chunks of unknown length.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x = da.ones((8, 1000, 64), chunks=(8, 300, 64), dtype=np.float32)
    >>> posenc.dask.rope(x, 1000, posenc.rope_frequencies(64), layout="half").chunks
    ((8,), (300, 300, 300, 100), (64,))
    """
    return _rotate(posenc.rope, arguments)


@_takes_arguments_of(posenc.rope_2d)
def rope_2d(arguments: dict[str, Any]) -> DaskArray:
    """Rotate by rows and columns of an image, as `posenc.rope_2d` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries or keys; as in `rope`.
    positions : array or dask array (2, ..., N)
        Rows and columns of the tokens.
    frequencies, layout, axes, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        Those of `posenc.rope_2d`.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.rope_2d`, bit for bit, in the chunks of x.

    Raises
    ------
    TypeError, ValueError
        As `posenc.rope_2d`; an x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x, positions = da.ones((2, 12, 8), chunks=(1, 5, 8)), np.indices((3, 4)).reshape(2, 12)
    >>> posenc.dask.rope_2d(x, positions, posenc.rope_frequencies(4), layout="half").chunks
    ((1, 1), (5, 5, 2), (8,))
    """
    return _rotate(posenc.rope_2d, arguments, coordinates=True)


@_takes_arguments_of(posenc.mrope)
def mrope(arguments: dict[str, Any]) -> DaskArray:
    """Rotate by time, height and width, as `posenc.mrope` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries or keys; as in `rope`.
    positions : array or dask array (3, ..., N)
        Times, rows and columns of the tokens.
    frequencies, layout, sections, interleaved, overflow, rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        Those of `posenc.mrope`.

    Returns
    -------
    dask array, or DataArray
        Equal to the result of `posenc.mrope`, bit for bit, in the chunks of x.

    Raises
    ------
    TypeError, ValueError
        As `posenc.mrope`; an x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x, positions = da.ones((2, 10, 8), chunks=(2, 4, 8)), np.tile(np.arange(10), (3, 1))
    >>> posenc.dask.mrope(x, positions, posenc.rope_frequencies(8), layout="half", sections=(2, 1, 1)).numblocks
    (1, 3, 1)
    """
    return _rotate(posenc.mrope, {**arguments, "sections": tuple(arguments["sections"])}, coordinates=True)


@_takes_arguments_of(posenc.rope_nd)
def rope_nd(arguments: dict[str, Any]) -> DaskArray:
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
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x, positions = da.ones((4, 12, 32), chunks=(2, 5, 32)), np.indices((2, 2, 3)).reshape(3, -1)
    >>> posenc.dask.rope_nd(x, positions, posenc.axial_frequencies((8, 12, 12)), layout="half").chunks
    ((2, 2), (5, 5, 2), (32,))
    """
    frequencies = as_float64("rope_nd", "frequencies", arguments["frequencies"])
    return _rotate(posenc.rope_nd, {**arguments, "frequencies": frequencies}, coordinates=True)


@_takes_arguments_of(posenc.xpos)
def xpos(arguments: dict[str, Any]) -> DaskArray:
    """Rotate with exponential decay, as `posenc.xpos` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries, or keys with ``downscale=True``; as in `rope`.
    positions, frequencies, layout, scale_base, gamma, center, downscale, seq_axis
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
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x = da.ones((2, 10, 8), chunks=(2, 4, 8))
    >>> posenc.dask.xpos(x, 10, posenc.rope_frequencies(8), layout="half").numblocks
    (1, 3, 1)
    """
    return _rotate(posenc.xpos, arguments)


# ---- encodings that are added ----


@_takes_arguments_of(posenc.sinusoidal)
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
    places = _position_chunks(function, positions, arguments.get("start", 0), chunks_of)
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
        known = _read_ids(function, positions, table.shape[0])
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
    ids = _read_ids("learned", positions, count)
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
        posenc.merge(_zeros(x.shape), _zeros(p.shape), mode=mode)  # raises the error of posenc.merge
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
