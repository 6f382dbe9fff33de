"""Let the C library keep freed memory in the process, where it has a setting for that."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt; malloc.h calls them M_TRIM_THRESHOLD and so on."""


def keep_freed_memory() -> None:
    """Keep freed memory in the process instead of returning it to the system (glibc only).

    By default glibc returns the arrays of a training step to the system and requests them again in the next step; that
    took a third of the step.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has no mallopt
    if mallopt is not None:
        for parameter, size in ((TRIM_THRESHOLD, 1 << 30), (TOP_PAD, 1 << 26), (MMAP_THRESHOLD, 1 << 25)):
            mallopt(parameter, size)
