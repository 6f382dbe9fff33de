"""Freed memory stays with the process, where the C library lets us say so."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""As malloc.h of glibc calls them, with an M_ before."""


def keep_freed() -> None:
    """glibc hands the arrays of a step back to the system and asks for them in the next: a third of a step was that."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        for parameter, size in ((TRIM_THRESHOLD, 1 << 30), (TOP_PAD, 1 << 26), (MMAP_THRESHOLD, 1 << 25)):
            mallopt(parameter, size)
