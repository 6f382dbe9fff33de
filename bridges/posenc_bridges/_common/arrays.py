"""Types of arrays, and their casts."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Dtype: TypeAlias = np.dtype[Any]


def cast_result(array: Array, dtype: Dtype) -> Array:
    """Return a result in `dtype` and native byte order. Numbers beyond its range become infinite, without a warning."""
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if array.dtype == dtype:  # np.errstate takes 10 us inside the backward pass of torch
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)
