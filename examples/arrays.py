"""Types of arrays in the tour and in the study."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Float64: TypeAlias = npt.NDArray[np.float64]
Traced: TypeAlias = Any
"""An array, or the box that autograd puts around one while it records a gradient; mypy knows neither autograd nor its
boxes."""
