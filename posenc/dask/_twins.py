"""Signatures and positions, which functions of posenc.dask have in common with their twins in posenc."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

import dask.array as da
import numpy as np

from posenc._core_api.arguments import INTEGERS, as_index, as_positions, fail_value
from posenc._core_api.constants import LARGEST_POSITION

from ._arrays import Chunks, DaskArray, is_dask, is_xarray, read_array

Function = Callable[..., Any]


def takes_arguments_of(twin: Function) -> Callable[[Function], Function]:
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


def position_chunks(
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
