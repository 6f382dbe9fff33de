"""Keys and values as int8 codes with a scale per row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._core_api import convert, read
from .._core_api.arrays import F32, F64, LARGEST32
from .._core_api.door import door, fail, fail_value

LARGEST_CODE = 127
LARGEST_SCALE = np.nextafter(F32.type(LARGEST32 / LARGEST_CODE), F32.type(0))
"""The largest scale whose product with 127 is a finite float32. The quotient itself rounds up, beyond it."""


@dataclass(frozen=True, eq=False)
class Quantized:
    """An array as int8 codes with one float32 scale for each row along `axis`: ``x = codes * scale``.

    `attention` takes keys and values of this form and dequantises them in registers, so that decoding reads a quarter
    of the bytes of float32.

    Parameters
    ----------
    codes : int8 array (..., D)
        May be a view of a larger cache.
    scale : float32 array (...)
        Shape of `codes` without `axis`.
    axis : int
        Axis of `codes` along which numbers share a scale; `attention` takes -1.

    Attributes
    ----------
    codes, scale, axis
        The parameters; the arrays are not copied.

    Raises
    ------
    TypeError
        Arrays of another dtype, or other objects.
    ValueError
        A scale whose shape is not the shape of `codes` without `axis`; an axis that `codes` does not have.

    Examples
    --------
    A cache with room for 100 tokens, of which 3 are used:

    >>> import numpy as np, posenc
    >>> codes, scale = np.zeros((2, 100, 64), np.int8), np.zeros((2, 100), np.float32)
    >>> new = posenc.quantize(np.ones((2, 3, 64), np.float32))
    >>> codes[:, :3], scale[:, :3] = new.codes, new.scale
    >>> k = posenc.Quantized(codes[:, :3], scale[:, :3])
    >>> posenc.attention(np.ones((2, 1, 64), np.float32), k, k).shape
    (2, 1, 64)
    """

    codes: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]
    axis: int = -1

    @door
    def __post_init__(self) -> None:
        for name, array, dtype in (("codes", self.codes, np.int8), ("scale", self.scale, np.float32)):
            if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
                fail(TypeError, name, f"type {type(array).__name__}", "a NumPy array")
            if array.dtype.newbyteorder("=") != dtype:
                fail(TypeError, name, f"dtype {array.dtype}", np.dtype(dtype).name)
        axis = read_axis(self.axis, self.codes.ndim)
        expected = self.codes.shape[:axis] + self.codes.shape[axis + 1 :]
        if self.scale.shape != expected:
            fail(ValueError, "scale", f"shape {self.scale.shape}", f"{expected}, codes without axis {axis}")
        object.__setattr__(self, "axis", axis - self.codes.ndim)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Return ``codes * scale`` as float32."""
        return np.multiply(self.codes, np.expand_dims(self.scale, self.axis), dtype=np.float32)


def read_axis(axis: object, ndim: int) -> int:
    """Return an axis of an array with `ndim` axes, counted from 0."""
    number = read.index("axis", axis, -ndim)
    if number >= ndim:
        fail_value(ValueError, "axis", number, f"at most {ndim - 1}")
    return number % ndim


@door
def quantize(x: npt.ArrayLike, *, axis: int = -1) -> Quantized:
    """Round numbers to int8 codes with one scale for each row along an axis.

    ``scale = max |x| / 127``, ``codes = round(x / scale)``, ties to even

    Parameters
    ----------
    x : array (...)
        Keys or values, finite; of any float dtype.
    axis : int
        Axis along which numbers share a scale. `attention` takes the last one: a scale for each token and head.

    Returns
    -------
    Quantized
        ``codes`` from -127 to 127 in the shape of x, and ``scale`` in float32, without the axis. A row of zeros has
        scale 0.

    Raises
    ------
    TypeError
        x of a dtype other than float16, bfloat16, float32 and float64, an axis that is not an integer.
    ValueError
        NaN or infinity in x, numbers beyond float32, an axis that x does not have.

    Notes
    -----
    A number differs from its dequantised code by at most ``scale / 2`` and a rounding, ``max |x| / 253`` in total, as
    long as the scale is at least 2**-126. With one scale for a whole row, the error is relative to the largest number
    of the row: llama.cpp's Q8_0 has a scale for every 32 numbers, which is more accurate for rows with few large
    numbers. At D = 128 it takes 136 bytes for a row, 1.03x the 132 bytes of codes and a scale here.

    Quantised values move a result of `attention` by at most ``max |v| / 253``. Quantised keys move a logit by at most
    ``e = s sum|q| max|k| / 253``, s the scale of attention, and a result by at most ``(exp(2 e) - 1) max |v|``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x = posenc.quantize(np.array([0.1, -1.27, 0.635]))
    >>> x.codes
    array([  10, -127,   64], dtype=int8)
    >>> x.dequantize().round(2)
    array([ 0.1 , -1.27,  0.64], dtype=float32)
    """
    array = read.data("x", x)
    if array.ndim == 0:
        fail(ValueError, "x", "0 axes", "at least 1")
    position = read_axis(axis, array.ndim)
    work = array.astype(convert.arithmetic(array), copy=False)
    size = np.abs(work).max(position, keepdims=True, initial=0)
    if not np.isfinite(size).all():
        fail(ValueError, "x", "NaN or infinity", "finite numbers")
    if work.dtype == F64 and size.max(initial=0) > LARGEST32:
        fail(ValueError, "x", "numbers beyond float32", f"at most {LARGEST32:.3g} in size")
    with np.errstate(under="ignore"):
        scale = np.minimum((size / LARGEST_CODE).astype(F32), LARGEST_SCALE)
    steps = np.divide(work, scale, out=np.zeros_like(work), where=scale != 0)
    codes = np.clip(np.rint(steps, out=steps), -LARGEST_CODE, LARGEST_CODE, out=steps).astype(np.int8)
    return Quantized(codes, scale.squeeze(position), position - array.ndim)
