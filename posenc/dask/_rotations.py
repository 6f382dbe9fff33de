"""Rotations, chunk by chunk."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask.array as da
import numpy as np

import posenc
from posenc._core_api.arguments import as_data, as_float64, as_reals, fail
from posenc.rotary.rotation import read_rotation

from ._arrays import Chunks, DaskArray, check_known, is_dask, is_xarray, read_array, zeros_of
from ._twins import Function, position_chunks, takes_arguments_of

__all__ = ["mrope", "rope", "rope_2d", "rope_nd", "xpos"]

_OF_ROTATIONS = ("layout", "rotary_dim", "rotary_offset", "inverse", "out_layout", "seq_axis")
"""The options of a rotation that `read_rotation` takes."""


def _rotate(twin: Function, arguments: dict[str, Any], coordinates: bool = False) -> DaskArray:
    """Call a rotation of posenc on each chunk; with `coordinates`, axis 0 of positions is one of them each."""
    function, x = twin.__name__, arguments["x"]
    if is_xarray(x) and hasattr(x, "dims"):
        return _rotate_named(twin, arguments, coordinates)
    options = {name: value for name, value in arguments.items() if name not in ("x", "positions", "start")}
    x = read_array(function, "x", x)
    check_known(function, "x", x)
    dtype = as_data(function, "x", np.zeros((), x.dtype)).dtype
    of_rotation = {name: options[name] for name in _OF_ROTATIONS if name in options}
    rotation = read_rotation(function, zeros_of(x.shape, dtype), options.get("frequencies"), **of_rotation)
    if options.get("frequencies") is None:
        expected = "positions and frequencies: each task makes the table of its own chunk"
        fail(TypeError, function, "positions", "a table (cos, sin)", expected)

    def chunks_of(shape: tuple[int, ...]) -> tuple[Chunks, ...]:
        first, shape = (shape[:1], shape[1:]) if coordinates else ((), shape)
        rotation.check_fits_sequence("positions", shape)
        pairs = zip(rotation.axes_of(len(shape)), shape, strict=True)
        return (*((n,) for n in first), *(x.chunks[axis] if n == x.shape[axis] else (n,) for axis, n in pairs))

    positions = arguments["positions"]
    if coordinates:
        positions = _read_coordinates(function, positions)
    positions = position_chunks(function, positions, arguments.get("start", 0), chunks_of)
    of_positions = rotation.axes_of(positions.ndim - coordinates)
    heads = _axis_of_heads(options["frequencies"], rotation.axes_of(x.ndim - 1))
    _check_options(twin, x, dtype, positions, heads, coordinates, options)
    every = tuple(range(x.ndim))
    of_coordinates = [x.ndim] if coordinates else []  # an axis that the result does not have
    by_head: tuple[Any, ...] = ()
    if heads is not None:
        frequencies = options.pop("frequencies")
        lengths = (frequencies.shape[:1], x.chunks[heads], frequencies.shape[2:])
        by_head = (da.from_array(frequencies, chunks=lengths), (x.ndim, heads, x.ndim + 1))
    return da.blockwise(
        partial(twin, **options), every, x.rechunk({x.ndim - 1: -1}), every,
        positions, (*of_coordinates, *of_positions), *by_head,
        dtype=dtype, align_arrays=False, concatenate=True, meta=np.empty((0,) * x.ndim, dtype),
    )  # fmt: skip


def _rotate_named(twin: Function, arguments: dict[str, Any], coordinates: bool) -> Any:
    """Rotate a DataArray, which keeps its names; `seq_axis` may be one of them."""
    x = arguments["x"]
    arguments = {**arguments, "x": x.data}
    if isinstance(arguments.get("seq_axis"), str):
        arguments["seq_axis"] = x.get_axis_num(arguments["seq_axis"])
    return x.copy(data=_rotate(twin, arguments, coordinates))


def _read_coordinates(function: str, positions: Any) -> Any:
    if is_xarray(positions):
        read_array(function, "positions", positions)
    if not is_dask(positions):
        positions = as_reals(function, "positions", positions)
    if positions.ndim < 2:
        fail(ValueError, function, "positions", f"shape {positions.shape}", "one row of positions for each coordinate")
    return positions


def _axis_of_heads(frequencies: Any, axes: list[int]) -> int | None:
    """Return the axis of x whose heads have frequencies (A, H, P) of their own; `axes` ends with the sequence axis."""
    return axes[-2] if getattr(frequencies, "ndim", 1) == 3 and len(axes) > 1 else None


def _check_options(
    twin: Function,
    x: DaskArray,
    dtype: np.dtype[Any],
    positions: DaskArray,
    heads: int | None,
    coordinates: bool,
    options: dict[str, Any],
) -> None:
    """Raise the errors of the twin for one token."""
    shape = [x.shape[axis] if axis in (heads, x.ndim - 1) else 1 for axis in range(x.ndim)]
    of_positions = [*positions.shape[:1], *(1,) * (positions.ndim - 1)] if coordinates else (1,) * positions.ndim
    twin(np.zeros(shape, dtype), np.zeros(of_positions, positions.dtype), **options)


@takes_arguments_of(posenc.rope)
def rope(arguments: dict[str, Any]) -> DaskArray:
    """Apply rotary position embeddings to a dask array, as `posenc.rope` does.

    Parameters
    ----------
    x : dask array (..., N, D)
        Queries or keys. The channels are merged into one chunk. An xarray.DataArray over a dask array is accepted too,
        and `seq_axis` may then be the name of a dimension.
    positions : int, or array or dask array (N,), (B, N) or (B, H, N)
        As in `posenc.rope`. A table (cos, sin) is refused, because each task makes that of its own chunk.
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


@takes_arguments_of(posenc.rope_2d)
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


@takes_arguments_of(posenc.mrope)
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


@takes_arguments_of(posenc.rope_nd)
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


@takes_arguments_of(posenc.xpos)
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
