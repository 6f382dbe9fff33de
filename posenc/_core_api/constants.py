"""Constants that C and Python share; csrc/constants.def has their values."""

from __future__ import annotations

from .. import _core

_shared = _core.CONSTANTS

LARGEST_POSITION: int = 2 ** _shared["POSITION_BITS"]
LARGEST_ANGLE: int = 2 ** _shared["ANGLE_BITS"]
MOST_THREADS: int = _shared["MOST_THREADS"]
MOST_WIDTH: int = _shared["MOST_WIDTH"]
"""Most channels of a head of attention."""

TABLEAUS: dict[str, tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]] = {
    name: (tuple(slopes[i * (i - 1) // 2 : i * (i + 1) // 2] for i in range(stages)), weights[:stages])
    for name, (stages, slopes, weights) in _shared["TABLEAUS"].items()
}
"""Runge-Kutta methods in the order of their codes: for each stage, the weights of the slopes before it; the weights of
the step."""
