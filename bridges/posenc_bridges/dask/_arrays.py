"""Read arguments as dask arrays, bind the arguments of a call, and compute where chunks begin and end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from inspect import Signature, signature
from typing import Any, ParamSpec, TypeAlias

import dask.array as da
import numpy as np

from posenc._core_api.arguments import INTEGERS, Array, as_index, as_positions, door, fail, fail_value
from posenc._core_api.constants import LARGEST_POSITION

P = ParamSpec("P")
Arguments: TypeAlias = dict[str, Any]
"""Arguments of a call by name."""
Chunks = tuple[int, ...]
"""Lengths of the chunks along one axis."""
AnyArray: TypeAlias = range | Array | da.Array
"""Consecutive positions, an array in memory, or a dask array."""


def is_xarray(value: object) -> bool:
    """Return whether a value is an object of xarray, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "xarray"


def read_array(argument: str, value: object, is_lazy: bool = True) -> da.Array:
    """Return an argument as a dask array with chunks of known lengths.

    An argument that need not be lazy may be in memory: the array becomes one chunk.
    """
    if isinstance(value, da.Array):
        if any(np.isnan(length) for axis in value.chunks for length in axis):  # their places are unknown too
            expected = "known ones: call its compute_chunk_sizes()"
            fail(ValueError, argument, "chunks of unknown length", expected)
        return value
    if is_xarray(value):
        fail(TypeError, argument, f"type {type(value).__name__} of xarray", "a dask array, such as its .data")
    if is_lazy:
        expected = "a dask array; posenc itself takes arrays in memory"
        fail(TypeError, argument, f"type {type(value).__name__}", expected)
    array = np.asarray(value)
    return da.from_array(array, chunks=array.shape)


def read_places(argument: str, value: object, start: object = 0) -> AnyArray:
    """Return positions: a dask array, an array in memory, or for an int n the range from `start` of length n."""
    if isinstance(value, da.Array) or is_xarray(value):
        if start:
            fail_value(TypeError, "start", start, "an int n for positions, meaning start .. start + n - 1")
        lazy = read_array(argument, value)
        if lazy.dtype.kind not in "iuf":
            fail(TypeError, argument, f"dtype {lazy.dtype}", "integers or reals")
        return lazy
    if isinstance(value, INTEGERS) and not isinstance(value, bool):
        n = as_index(argument, value, 0)
        first = as_index("start", start, -LARGEST_POSITION, LARGEST_POSITION - n)
        return range(first, first + n)
    return as_positions(argument, value, start)


def shape_of(array: AnyArray) -> tuple[int, ...]:
    shape: tuple[int, ...] = (len(array),) if isinstance(array, range) else array.shape
    return shape


def zeros_of(shape: tuple[int, ...], dtype: np.dtype[np.generic] | type = float) -> Array:
    """Return zeros that take no memory, for checks of shapes and dtypes."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def bounds_of(chunks: Chunks) -> list[int]:
    """Return where chunks begin and end: (3, 2) gives [0, 3, 5]."""
    return [0, *itertools.accumulate(chunks)]


def common_bounds(bounds: Iterable[Sequence[int]]) -> list[int]:
    """Return the bounds of the coarsest chunks that cut no chunk of any of the axes."""
    return sorted({place for axis in bounds for place in axis})


def lengths_of(bounds: Sequence[int]) -> Chunks:
    """Return the lengths of the chunks between bounds; an axis of length 0 has one chunk."""
    return tuple(b - a for a, b in itertools.pairwise(bounds)) or (0,)


def takes_arguments_of(twin: Callable[P, object]) -> Callable[[Callable[[Arguments], da.Array]], Callable[P, da.Array]]:
    """Return a decorator that gives a function the signature and the name of its twin, a function of posenc.

    The signature has no `out`, and ends with `chunks` if the function has `chunks`. The function itself takes one
    dict: the arguments that the caller passed, by name.
    """

    def decorate(function: Callable[[Arguments], da.Array]) -> Callable[P, da.Array]:
        own = [p for p in signature(function).parameters.values() if p.name == "chunks"]
        taken = Signature([*(p for p in signature(twin).parameters.values() if p.name != "out"), *own])
        name = function.__name__

        def call(*args: P.args, **options: P.kwargs) -> da.Array:
            try:
                arguments = taken.bind(*args, **options).arguments
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            return function(dict(arguments))

        call.__name__ = call.__qualname__ = name
        call.__module__, call.__doc__ = function.__module__, function.__doc__
        call.__signature__ = taken  # type: ignore[attr-defined]
        return door(call)

    return decorate
