"""Types and errors of the arguments of a figure."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NoReturn, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import RopeFrequencies

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
PairFrequencies: TypeAlias = "npt.ArrayLike | RopeFrequencies"
"""Radians per position of each pair of channels, (e,)."""


def fail(kind: type[Exception], argument: str, has: str, expected: str) -> NoReturn:
    """Raise ": <argument> has <has>; expected <expected>"; see `door`."""
    raise kind(f": {argument} has {has}; expected {expected}")


def as_index(argument: str, value: SupportsIndex, least: int) -> int:
    """Return an integer as a Python int of at least `least`."""
    number = operator.index(value)
    if number < least:
        raise ValueError(f": {argument} is {number}; expected at least {least}")
    return number


def check_choice(argument: str, value: str, choices: Iterable[str]) -> None:
    """Refuse everything but the strings in `choices`."""
    if value not in choices:
        raise ValueError(f": {argument} is {value!r}; expected one of {', '.join(map(repr, choices))}")


def as_matrix(argument: str, value: npt.ArrayLike) -> Float64:
    """Convert to a float64 array with two axes, not empty."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufV":  # bfloat16 is of kind V
        fail(TypeError, argument, f"dtype {array.dtype}", "float16, bfloat16, float32, float64 or integers")
    if array.ndim != 2 or array.size == 0:
        fail(ValueError, argument, f"shape {array.shape}", "two axes, not empty")
    return array.astype(np.float64)
