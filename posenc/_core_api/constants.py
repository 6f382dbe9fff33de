"""Constants that C and Python share; csrc/constants.def has their values."""

from __future__ import annotations

from .. import _core

_shared = _core.constants()


def _options(name: str) -> tuple[str, ...]:
    """Names of options in the order of their codes, without their prefix."""
    return tuple(option.partition("_")[2].lower() for option in _shared[name].split(", "))


BLOCK_M: int = _shared["BLOCK_M"]
"""Queries in a block of attention."""
VJP_PARTS: int = _shared["VJP_PARTS"]
"""Most chunks of a kv head in the gradient of attention."""
KEY_PARTS: int = _shared["KEY_PARTS"]
"""Most parts of the keys of a head in attention."""
FEWEST_KEYS: int = _shared["FEWEST_KEYS"]
"""Fewest keys of a part."""
VECTOR_PADDING: int = _shared["VECTOR_PADDING"]
"""Rows of table gradients are rounded up to a multiple of it."""
LARGEST_POSITION: int = 2 ** _shared["POSITION_BITS"]
LARGEST_ANGLE: int = 2 ** _shared["ANGLE_BITS"]
MOST_THREADS: int = _shared["MOST_THREADS"]
MOST_WIDTH: int = _shared["MOST_WIDTH"]
"""Most channels of a head of attention."""

VJP_MODES = _options("VJP_MODES")
GRAM_MODES = _options("GRAM_MODES")

TABLEAUS: dict[str, tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]] = {
    name: (tuple(slopes[i * (i - 1) // 2 : i * (i + 1) // 2] for i in range(stages)), weights[:stages])
    for name, (stages, slopes, weights) in _shared["TABLEAUS"].items()
}
"""Runge-Kutta methods in the order of their codes: for each stage, the weights of the slopes before it; the weights of
the step."""
