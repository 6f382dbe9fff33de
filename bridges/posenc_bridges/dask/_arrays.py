"""Read arguments as dask arrays, and bind and check the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import Signature, signature
from typing import Any, NoReturn, ParamSpec, TypeAlias, TypeVar

import dask.array as da
import numpy as np
import numpy.typing as npt

from posenc.interop import door, rehearse

P = ParamSpec("P")
R = TypeVar("R")
Array: TypeAlias = npt.NDArray[Any]
Dtype: TypeAlias = np.dtype[Any]
Arguments: TypeAlias = dict[str, Any]
"""Arguments of a call by name."""
AnyArray: TypeAlias = range | Array | da.Array
"""Consecutive positions, an array in memory, or a dask array."""


def fail(error: type[Exception], what: str, expected: str) -> NoReturn:
    """Raise an error about an argument; `door` puts the name of the function before it."""
    raise error(f": {what}; expected {expected}")


def check(twin: Callable[..., Any], arguments: Arguments) -> None:
    """Raise the errors of a function of posenc; dask arrays are zeros, whose values are checked when computed."""
    zeros = {name: zeros_like(one) if isinstance(one, da.Array) else one for name, one in arguments.items()}
    try:
        with suppress(MemoryError):  # all checks are before the results, which need not fit in memory
            rehearse(twin, zeros)
    except (TypeError, ValueError, IndexError) as error:  # `door` puts the name of this call before the message
        raise type(error)(str(error).removeprefix(twin.__name__)) from None


def zeros_like(array: da.Array) -> Array:
    """Return zeros of a shape and dtype that take the memory of one row."""
    return np.broadcast_to(np.zeros(array.shape[-1:], array.dtype), array.shape)


def is_xarray(value: object) -> bool:
    """Return whether a value is an object of xarray, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "xarray"


def is_lazy(value: object) -> bool:
    """Return whether an argument is a dask array, or an object of xarray, which `read_array` refuses."""
    return isinstance(value, da.Array) or is_xarray(value)


def read_array(argument: str, value: object) -> da.Array:
    """Return a dask array with chunks of known lengths."""
    if is_xarray(value):
        fail(TypeError, f"{argument} has type {type(value).__name__} of xarray", "a dask array, such as its .data")
    if not isinstance(value, da.Array):
        expected = "a dask array; posenc itself takes arrays in memory"
        fail(TypeError, f"{argument} has type {type(value).__name__}", expected)
    if np.isnan(value.size):  # the places of the chunks are unknown too
        fail(ValueError, f"{argument} has chunks of unknown length", "known ones: call its compute_chunk_sizes()")
    return value


def read_numbers(argument: str, value: object) -> da.Array:
    """Return a dask array of numbers; integers become float64, as in posenc."""
    array = read_array(argument, value)
    return array.astype(np.float64) if array.dtype.kind in "iu" else array


def read_places(argument: str, value: Any, start: int = 0) -> AnyArray:
    """Return checked positions: for an int n the range from `start` of length n."""
    if is_lazy(value):
        return read_array(argument, value)
    if isinstance(value, int | np.integer):
        return range(int(start), int(start) + int(value))
    return np.asarray(value)


def places_of(twin: Callable[..., Any], arguments: Arguments) -> AnyArray:
    """Return the positions of a call, as `read_places` does; raise the errors of a function of posenc."""
    places = read_places("positions", arguments["positions"], arguments.get("start", 0))
    check(twin, arguments if isinstance(places, range) else {**arguments, "positions": places})
    return places


def array_of(places: range) -> Array:
    """Return consecutive positions as an array."""
    return np.arange(places.start, places.stop, dtype=np.int64)


def twin_of(twin: Callable[P, object]) -> Callable[[Callable[[Arguments], R]], Callable[P, R]]:
    """Return a decorator that gives a function the signature of its twin, a function of posenc.

    The signature has no `out` that is filled, and ends with `chunks` if the function has `chunks`. The function itself
    takes one dict: all arguments by name.
    """

    def decorate(function: Callable[[Arguments], R]) -> Callable[P, R]:
        own = [p for p in signature(function).parameters.values() if p.name == "chunks"]
        is_input = function.__name__.endswith("_vjp")
        taken = Signature([*(p for p in signature(twin).parameters.values() if p.name != "out" or is_input), *own])

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            try:
                bound = taken.bind(*args, **options)
            except TypeError as error:
                raise TypeError(f": {error}") from None
            bound.apply_defaults()
            return function(dict(bound.arguments))

        call.__signature__ = taken  # type: ignore[attr-defined]
        return door(call)

    return decorate
