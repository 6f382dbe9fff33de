"""The error of a peer that computes angles in float32."""

from __future__ import annotations

from typing import Any

import numpy as np


def angle_error(positions: Any) -> np.ndarray:
    """Tolerance for sin and cos of ``position * frequency`` in float32, a column over positions.

    The frequency (at most 1) is rounded twice, as an exponent and as a power, and the product once: 2**-24 of the angle
    each, and the angle is at most the position. The result is rounded, too.
    """
    return (3 * np.abs(np.asarray(positions, np.float64)) + 2)[:, None] * 2.0**-24
