"""Memory layouts of the same numbers. The gaps between the numbers are NaN (or 1), so that a wrong read is seen."""

import numpy as np

from . import BF16


def reversed_axes(a):
    return np.flip(np.flip(a).copy())


def step_two(a):
    buffer = np.full([2 * length for length in a.shape], 1 if a.dtype.kind in "biu" else np.nan, a.dtype)
    view = buffer[(..., *(slice(None, None, 2) for _ in a.shape))]  # ...: a view of an array without axes too
    view[...] = a
    return view


def broadcast_first(a):
    return np.broadcast_to(a[:1].copy(), a.shape) if a.ndim and a.shape[0] else a


def broadcast_last(a):
    return np.broadcast_to(a[..., :1].copy(), a.shape) if a.ndim and a.shape[-1] else a


def transposed(a):
    return a.T.copy().T


def unaligned(a):
    buffer = np.empty(a.nbytes + 1, np.uint8)[1:]
    view = buffer.view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def byte_swapped(a):
    return a if a.dtype == BF16 else a.astype(a.dtype.newbyteorder("S"))  # ml_dtypes has no byte orders


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def loose_units(a):
    """Give axes of length 1 a stride of 7 bytes; NumPy ignores such strides."""
    strides = [7 if length == 1 else stride for length, stride in zip(a.shape, a.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(a, a.shape, strides)


LAYOUTS = (
    reversed_axes, step_two, broadcast_first, broadcast_last, transposed, unaligned, byte_swapped, read_only,
    loose_units,
)  # fmt: skip


def plain(a):
    """The same numbers in native byte order, C-contiguous."""
    return np.ascontiguousarray(a.astype(a.dtype.newbyteorder("=")) if a.dtype != BF16 else a).reshape(a.shape)


def same_bits(a, b):
    """Return whether two arrays are equal in shape, dtype and every bit: NaN equals NaN, -0 does not equal 0."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
