"""Types and dtypes of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Dtype: TypeAlias = np.dtype[Any]
Float64 = npt.NDArray[np.float64]

F32, F64, I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
LARGEST32 = float(np.finfo(F32).max)
LARGEST_SCALE32 = 2.0**127
"""The largest scale of logits in float32: the kernels multiply it by log2(e)."""
STORAGE_DTYPES = "float16, bfloat16, float32 or float64"


def is_bfloat16(dtype: Dtype) -> bool:
    """Return whether a dtype is bfloat16 of ml_dtypes, which need not be installed."""
    return dtype.itemsize == 2 and dtype.name == "bfloat16"


def is_storage_dtype(dtype: Dtype) -> bool:
    """Return whether a dtype is one of the four that data may have."""
    return dtype.char in "efd" or is_bfloat16(dtype)
