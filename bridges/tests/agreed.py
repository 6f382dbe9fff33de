"""Comparisons with peers."""

from __future__ import annotations

from typing import Any

import numpy as np


def agree(operator: str, ours: Any, theirs: Any, allowed: Any, reference: str = "the peer") -> None:
    """Assert |ours - theirs| <= allowed, entry by entry; infinities must be equal."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite])
    error = np.abs(ours[finite] - theirs[finite])
    bound = np.broadcast_to(np.asarray(allowed, np.float64), ours.shape)[finite]
    assert (error <= bound).all(), f"{operator} and {reference} are {error.max():.3g} apart"


def angle_error(positions: Any) -> np.ndarray:
    """Tolerance for sin and cos of ``position * frequency`` in float32, a column over positions.

    The frequency (at most 1) is rounded twice, as an exponent and as a power, and the product once: 2**-24 of the angle
    each, and the angle is at most the position. The result is rounded, too.
    """
    return (3 * np.abs(np.asarray(positions, np.float64)) + 2)[:, None] * 2.0**-24
