"""Inputs that every check draws, and the results of the implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import Bias
from ._judge import as_numbers, coarser
from ._report import Array, Float64

__tracebackhide__ = True  # pytest shows the line of the implementation

Precision: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]
ToArray: TypeAlias = Callable[[Array], Any]
"""A function that converts an array of NumPy to one of another library, such as torch.as_tensor."""
SEED = 30
FAR = np.arange(4073, 4097)
"""Positions at which tables and angles in 16 bits show, if near positions are right."""


def draw(*shape: int, dtype: Precision, seed: int = SEED) -> Array:
    """Draw normal numbers that the dtype represents; numbers for bfloat16 are stored in float32."""
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return to_bfloat16(numbers).astype(np.float32) if dtype == "bfloat16" else numbers.astype(dtype)


def to_bfloat16(x: Float64) -> Float64:
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(fraction * 2**8) / 2**8, exponent))


def rounded(x: Float64, dtype: str) -> Float64:
    if dtype == "float64":
        return x
    return to_bfloat16(x) if dtype == "bfloat16" else np.asarray(x, dtype).astype(np.float64)


class Recorder:
    """An implementation that gets the right result before the arguments: it records what a check calls it with."""

    def __call__(self, wanted: Any, *arguments: Any) -> Any:
        raise NotImplementedError


def call(subject: str, impl: Any, *arguments: Any, right: Callable[[], Any] = lambda: np.zeros(1)) -> Any:
    """Call an implementation; or return it, if it is the result itself. `right` returns the right result."""
    if isinstance(impl, Recorder):
        return impl(right(), *arguments)
    if isinstance(impl, Bias):
        has = f"the operator {impl.name}"
        raise TypeError(f"check.{subject}: impl is {has}; expected a function or an array, such as its matrix")
    if callable(impl):
        try:
            return impl(*arguments)
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                given = ", ".join(f"{type(x).__name__} {getattr(x, 'shape', x)}" for x in arguments)
                error.add_note(f"check.{subject} called it with {given}; array=, inputs=, batch=, seq_axis= change it")
            raise
    if subject in ("rope", "softmax", "attention", "cache", "gradient"):
        raise TypeError(f"check.{subject}: impl has type {type(impl).__name__}; expected a function")
    return impl


def parts(subject: str, value: object, count: int) -> tuple[list[Float64], str]:
    """Return copies of the arrays of a result, and the coarsest of their dtypes."""
    several: list[object] = [value]
    if isinstance(value, tuple | list) and (count > 1 or (len(value) == 1 and np.ndim(value[0]) > 0)):
        several = list(value)
    if len(several) != count:
        has = f"{len(several)} arrays" if len(several) > 1 else type(value).__name__
        raise TypeError(f"check.{subject}: the result is {has}; expected {count} arrays")
    arrays, dtypes = zip(*(as_numbers(one, subject) for one in several), strict=True)
    return list(arrays), coarser(*dtypes)


def converted(array: ToArray, positions: Array) -> Any:
    """Convert positions, but not to a dtype that cannot represent them, such as bfloat16 above 256."""
    given = array(positions.copy())
    dtype = str(getattr(given, "dtype", ""))
    if not (dtype.endswith("float16") or (dtype.endswith("float32") and abs(positions).max(initial=0) > 2**24)):
        return given
    if not hasattr(given, "new_tensor"):
        return positions.copy()
    return (given.long() if positions.dtype.kind in "iu" else given.double()).new_tensor(positions)  # on its device


def places(subject: str, positions: npt.ArrayLike, several: bool = False) -> Array:
    """Positions as an array: an int n means 0 .. n-1. Several coordinates have an axis of their own."""
    given = np.array(positions)
    if given.ndim > 1 + several or (several and given.ndim < 2):
        expected = "expected an array (coordinates, N)" if several else "expected a number or an array (N,)"
        raise ValueError(f"check.{subject}: positions has shape {given.shape}; {expected}")
    return np.arange(int(given)) if given.ndim == 0 else given


def choice(subject: str, name: str, value: str | None, *known: str) -> str:
    """Return the value of an argument if it is known."""
    if value not in known:
        expected = " or ".join(f'"{one}"' for one in known)
        raise ValueError(f"check.{subject}: {name} is {value}; expected {expected}")
    return value
