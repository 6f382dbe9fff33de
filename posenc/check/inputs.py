"""Inputs that every check draws, and the results of the implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .judge import Case, as_numbers
from .report import Array, Float64

Precision: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]
ToArray: TypeAlias = Callable[[Array], Any]
"""A function that converts an array of NumPy to one of another library, such as torch.as_tensor."""
SEED = 30


def draw(*shape: int, dtype: Precision, seed: int = SEED) -> Array:
    """Draw normal numbers that the dtype represents; numbers for bfloat16 are stored in float32."""
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return to_bfloat16(numbers).astype(np.float32) if dtype == "bfloat16" else numbers.astype(dtype)


def to_bfloat16(x: Float64) -> Float64:
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(fraction * 2**8) / 2**8, exponent))


def rounded(x: Float64, dtype: str) -> Float64:
    return to_bfloat16(x) if dtype == "bfloat16" else np.asarray(x, dtype).astype(np.float64)


def rounding(field: str, dtype: str) -> Callable[[Case], object]:
    """A field of the case, rounded to a dtype."""
    return lambda c: rounded(c[field], dtype)


def parts(value: object) -> list[Float64]:
    """Return the arrays of a result that may be one array or several."""
    several: Sequence[object] = value if isinstance(value, tuple | list) else (value,)
    return [as_numbers(one)[0] for one in several]


def dtype_of(value: object) -> str:
    """Return the name of the dtype of a result, or of its first array."""
    return as_numbers(value[0] if isinstance(value, tuple | list) and value else value)[1]


def converted(array: ToArray, positions: Array) -> Any:
    """Convert positions, but not to a dtype that cannot represent them, such as bfloat16 above 256."""
    given = array(positions)
    dtype = str(getattr(given, "dtype", ""))
    if not (dtype.endswith("float16") or (dtype.endswith("float32") and abs(positions).max(initial=0) > 2**24)):
        return given
    if not hasattr(given, "new_tensor"):
        return positions
    return (given.long() if positions.dtype.kind in "iu" else given.double()).new_tensor(positions)  # on its device


def places(positions: npt.ArrayLike) -> Array:
    """Positions as an array: an int n means 0 .. n-1."""
    given = np.asarray(positions)
    if given.ndim > 1:
        raise ValueError(f"check: positions has shape {given.shape}; expected a number or an array (N,)")
    return np.arange(int(given)) if given.ndim == 0 else given


def choice(name: str, value: str | None, *known: str) -> str:
    """Return the value of an argument if it is known."""
    if value not in known:
        expected = " or ".join(f'"{one}"' for one in known)
        raise ValueError(f"check: {name} is {value}; expected {expected}")
    return value
