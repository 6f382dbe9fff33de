"""How far a peer that computes its angles in float32 may be from the truth."""

from __future__ import annotations

from typing import Any

import numpy as np


def angle_error(positions: Any) -> np.ndarray:
    """Tolerance for sin and cos of ``position * frequency`` in float32, a column over positions.

    The frequency (at most 1) is rounded twice on its way, as an exponent and as a power, and the product once more:
    2**-24, 6e-8, of the angle each, and the angle is at most the position. The result itself is rounded too.
    """
    return (3 * np.abs(np.asarray(positions, np.float64)) + 2)[:, None] * 2.0**-24
