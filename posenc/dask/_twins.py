"""Helpers of functions of posenc.dask: the signature of the twin, the function of posenc of that name; positions."""

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
    """Return a decorator that gives a function the signature and the name of its twin.

    The signature has no `out`, and ends with `chunks` if the function has `chunks`. The function itself takes one dict:
    the arguments that the caller passed, by name.
    """

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
    """Return positions as a dask array.

    A dask array is rechunked to ``chunks(shape)``. An int n becomes start .. start + n - 1 in ``chunks((n,))``, which
    tasks compute. An array in memory becomes one chunk. An object of xarray is refused.
    """
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
