"""Arguments of the functions of this room: frequencies and positions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .. import RopeFrequencies
from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.door import fail, fail_value

PairFrequencies: TypeAlias = "npt.ArrayLike | RopeFrequencies"
"""Radians per position of each pair of channels, (e,)."""


def read_finite(argument: str, value: object) -> Float64:
    """Convert to finite float64 numbers."""
    array = read.data(argument, value).astype(np.float64)
    if not np.isfinite(array).all():
        fail(ValueError, argument, "NaN or infinity", "finite numbers")
    return array


def read_pairs(argument: str, value: PairFrequencies, count: int | None = None) -> Float64:
    """Convert to finite float64 numbers, one per pair of channels."""
    array = read_finite(argument, getattr(value, "inv_freq", value))
    if array.ndim == 0 and argument == "frequencies":
        expected = "an array (e,), one number per pair, such as frequencies(dim)"
        fail_value(ValueError, argument, value, expected)
    if array.ndim != 1 or len(array) == 0:
        fail(ValueError, argument, f"shape {array.shape}", "one number per pair, at least one")
    if count is not None and len(array) != count:
        fail(ValueError, argument, f"{len(array)} entries", f"{count}, one per frequency")
    return array


def read_places(argument: str, value: npt.ArrayLike) -> Array:
    """Convert to finite int64 or float64 positions of any shape; an int is one position, not a count."""
    array = read.array(argument, value)
    return read.positions(argument, array.reshape(-1)).reshape(array.shape)
