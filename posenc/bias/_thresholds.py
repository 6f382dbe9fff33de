"""Exact integer thresholds of buckets that are logarithmic in the distance."""

from __future__ import annotations

import math
from collections.abc import Callable

_RELATIVE_ERROR = 1e-12
"""More than the error of ``exp(x)`` for an x of at most 44 that a few roundings produced, which is 3e-14."""


def smallest_integer(near: float, reaches: Callable[[int], bool]) -> int:
    """Return the smallest integer that reaches a threshold, which is real and close to `near`.

    `reaches` compares powers exactly, in integers of thousands of digits. It is called only if an integer is so close
    to `near` that rounding could decide.
    """
    first, last = math.ceil(near * (1 - _RELATIVE_ERROR)), math.ceil(near * (1 + _RELATIVE_ERROR))
    while first < last:
        middle = (first + last) // 2
        if reaches(middle):
            last = middle
        else:
            first = middle + 1
    return first
