"""Inputs that every check draws, and the results of the implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import Bias
from ._judge import as_numbers, coarser, to_bfloat16
from ._report import Array, Float64

__tracebackhide__ = True  # pytest shows the line of the implementation

Precision: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]
ToArray: TypeAlias = Callable[[Array], Any]
"""A function that converts an array of NumPy to one of another library, such as torch.as_tensor."""
SEED = 30
FAR = np.roll(np.arange(4073, 4097)[::-1], 7)
"""Positions at which tables and angles in 16 bits show, and a count of tokens, if near positions are right."""


OF_INPUTS = {
    "rope": "array inputs seq_axis", "sinusoid": "array", "buckets": "array", "softmax": "array",
    "attention": "array batch", "cache": "array batch",
}  # fmt: skip
"""The arguments of checks that change what an implementation is called with."""


def draw(*shape: int, dtype: Precision, seed: int = SEED) -> Array:
    """Draw normal numbers that the dtype represents; numbers for bfloat16 are stored in float32."""
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return to_bfloat16(numbers).astype(np.float32) if dtype == "bfloat16" else numbers.astype(dtype)


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
                names = [f"{name}=" for name in OF_INPUTS.get(subject, "").split()]
                change = f"; {', '.join(names)} {'change' if len(names) > 1 else 'changes'} it" if names else ""
                error.add_note(f"check.{subject} called it with {given}{change}")
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


def without_weights(value: object, n: int, m: int | None = None) -> object:
    """Return the output of (output, weights) or (output, None), as modules of torch return them, or the value itself.

    The weights have shape (..., n, m); without m, the number of keys may be any.
    """
    if not (isinstance(value, tuple) and len(value) == 2):
        return value
    shape = tuple(getattr(value[1], "shape", ()))
    is_weights = value[1] is None or (len(shape) > 1 and shape[-2] == n and m in (None, shape[-1]))
    return value[0] if is_weights else value


def converted(array: ToArray, positions: Array) -> Any:
    """Convert positions, but not to a dtype that cannot represent them, such as bfloat16 above 256."""
    given = array(positions.copy())
    dtype = str(getattr(given, "dtype", ""))
    if not (dtype.endswith("float16") or (dtype.endswith("float32") and abs(positions).max(initial=0) > 2**24)):
        return given
    if not hasattr(given, "new_tensor"):
        return positions.copy()
    return (given.long() if positions.dtype.kind in "iu" else given.double()).new_tensor(positions)  # on its device


def places(
    subject: str, positions: npt.ArrayLike, axes: Sequence[int] = (0, 1), expected: str = "a number or an array (N,)"
) -> Array:
    """Positions as an array with one of these numbers of axes: an int n means 0 .. n-1."""
    given = np.array(positions)
    if given.ndim not in axes:
        raise ValueError(f"check.{subject}: positions has shape {given.shape}; expected {expected}")
    return np.arange(int(given)) if given.ndim == 0 else given


def choice(subject: str, name: str, value: str | None, *known: str) -> str:
    """Return the value of an argument if it is known."""
    if value not in known:
        expected = " or ".join(f'"{one}"' for one in known)
        raise ValueError(f"check.{subject}: {name} is {value}; expected {expected}")
    return value
