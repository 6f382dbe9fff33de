"""Biases that are functions in Python: what `distance_function` and `pair_function` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import F64, Array, as_data, as_index, fail, fail_value
from .operator import PositionBias
from .terms import Options

Function = Callable[..., npt.ArrayLike]
Vjp = Callable[..., Sequence[npt.ArrayLike]]


class FunctionArrays(NamedTuple):
    """Arrays of `distance_function` and `pair_function`, or their gradients.

    Attributes
    ----------
    arrays : tuple of arrays
        The arrays in the order of the argument, of any shapes.
    """

    arrays: tuple[Array, ...]


class FunctionBias(PositionBias[FunctionArrays]):
    """A bias that calls a function of the user."""

    def __repr__(self) -> str:
        function = self.options["function"]
        name = getattr(function, "__qualname__", type(function).__name__)
        shapes = "".join(f", {array.shape}" for array in self.arrays.arrays)
        return f"<posenc.{self.name}: {name}, heads={self.heads}{shapes}>"


def call_vjp(bias: FunctionBias, function: str, grad: Array, *positions: Array) -> tuple[Array, ...]:
    """Return the gradient of each array for a cotangent of the result of the user's function."""
    arrays, vjp = bias.arrays.arrays, bias.options["vjp"]
    if not arrays:
        return ()
    if vjp is None:
        fail_value(TypeError, function, "vjp", None, "a function, because there are arrays")
    gradients = vjp(grad, *positions, *arrays)
    if not isinstance(gradients, tuple | list) or len(gradients) != len(arrays):
        count = len(gradients) if isinstance(gradients, tuple | list) else type(gradients).__name__
        fail(ValueError, function, "vjp", f"a result of {count}", f"a tuple of {len(arrays)}, one per array")
    found = tuple(as_data(function, "vjp", gradient) for gradient in gradients)
    for gradient, array in zip(found, arrays, strict=True):
        if gradient.shape != array.shape:
            fail(ValueError, function, "vjp", f"a gradient of shape {gradient.shape}", str(array.shape))
    return found


def read_arguments(
    name: str, function: Function, heads: int | None, arrays: Sequence[npt.ArrayLike], vjp: Vjp | None
) -> tuple[FunctionArrays, Options]:
    """Return copies of the arrays, and the options of an operator."""
    for argument, value in (("function", function), ("vjp", vjp)):
        if not callable(value) and not (argument == "vjp" and value is None):
            fail(TypeError, name, argument, f"type {type(value).__name__}", "a function")
    if not isinstance(arrays, tuple | list):
        fail(TypeError, name, "arrays", f"type {type(arrays).__name__}", "a tuple or list of arrays")
    kept = tuple(np.array(as_data(name, "arrays", array)) for array in arrays)
    for array in kept:
        if not np.isfinite(array.astype(F64, copy=False)).all():
            fail(ValueError, name, "arrays", "NaN or infinity", "finite numbers")
        array.flags.writeable = False
    count = None if heads is None else as_index(name, "heads", heads, 1)
    return FunctionArrays(kept), {"function": function, "heads": count, "vjp": vjp}
