"""Positions as digits, and the position ids of padded text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import read
from .._core_api.arrays import I64, Float64
from .._core_api.constants import LARGEST_POSITION
from .._core_api.door import door, fail


def _read_numbers(numbers: npt.ArrayLike, base: int, width: int) -> tuple[npt.NDArray[np.int64], Float64 | None]:
    """Return the integer parts, whose 64 bits are unsigned, and the fractions, or None for integers.

    Numbers that `width` digits or 64 bits cannot represent are refused.
    """
    array = read.array("numbers", numbers, "less than 2**64")
    if array.dtype.kind not in "iu":
        array = _core.read("f64 numbers()", numbers=array)
    smallest, largest = (array.min(), array.max()) if array.size else (0, 0)
    if not (np.isfinite(smallest) and np.isfinite(largest)):
        fail(ValueError, "numbers", "NaN or infinity", "finite numbers")
    if smallest < 0:
        fail(ValueError, "numbers", smallest, "at least 0")
    limit = base ** min(width, 64)  # at least 2**64 if 64 digits are enough, without computing a huge power
    if int(largest) >= min(limit, 2**64):
        expected = f"less than {base}**{width}" if limit <= 2**64 else "less than 2**64"
        fail(ValueError, "numbers", largest, expected)
    if array.dtype.kind in "iu":
        return np.asarray(array.astype(np.uint64)).view(I64), None
    whole = np.floor(array)
    return np.asarray(whole.astype(np.uint64)).view(I64), np.asarray(array - whole)


@door
def digits(numbers: npt.ArrayLike, *, base: int = 10, width: int) -> Float64:
    """Return the digits of numbers, the most significant digit first.

    ``numbers = sum_k digits[k] * base**(width - 1 - k)``, where the last digit includes the fraction.

    Parameters
    ----------
    numbers : array (...)
        At least 0, integers or reals, below ``base**width`` and 2**64.
    base : int
        At least 2.
    width : int
        Number of digits, at least 1.

    Returns
    -------
    ndarray of float64 (..., width)
        Integers below the base, except the last digit, which may have a fraction. The digits are exact.

    Raises
    ------
    TypeError
        A base or a width that is not an integer, numbers that are not real.
    ValueError
        Negative numbers, NaN, infinity, or numbers that need more than `width` digits.

    Notes
    -----
    Su 2023, "RoPE is a base-beta code", compares interpolation and a larger base by their effect on digits. To fit 1749
    into three digits, one can halve it, which crowds the last digit, or write it in base 16, which keeps neighbours at
    distance 1. Integers are exact in int64 and uint64, beyond 2**53 too.

    Examples
    --------
    The two ways to fit 1749 into three digits:

    >>> import posenc
    >>> posenc.digits(1749 / 2, width=3)
    array([8. , 7. , 4.5])
    >>> posenc.digits(1749, base=16, width=3)
    array([ 6., 13.,  5.])
    """
    base, width = read.index("base", base, 2), read.index("width", width, 1)
    whole, fraction = _read_numbers(numbers, base, width)
    return _core.digits(whole=whole, fraction=fraction, base=base, w=width)


@door
def from_digits(digits: npt.ArrayLike, *, base: int = 10) -> Float64:
    """Return the numbers that digits represent, the inverse of `digits`.

    ``sum_k digits[k] * base**(width - 1 - k)``.

    Parameters
    ----------
    digits : array (..., width)
        Finite numbers, the most significant first. A digit may exceed the base, be negative, or be a fraction.
    base : int
        At least 2.

    Returns
    -------
    ndarray of float64 (...)
        Equal to the argument of `digits`, bit for bit.

    Raises
    ------
    TypeError
        A base that is not an integer, digits that are not real.
    ValueError
        NaN or infinite digits, no axis of digits.

    Notes
    -----
    Horner's rule in double-double, rounded at the end.

    Examples
    --------
    >>> import posenc
    >>> posenc.from_digits([[8.0, 7.0, 4.5], [7.0, 4.0, 9.0]])
    array([874.5, 749. ])
    """
    return _core.from_digits(digits=digits, base=read.index("base", base, 2))


@door
def positions_from_mask(keep: npt.ArrayLike, *, start: int = 0) -> npt.NDArray[np.int64]:
    """Return the position ids of padded text.

    ``start + max(cumsum(keep) - 1, 0)`` along the last axis.

    Parameters
    ----------
    keep : bool array (..., N)
        True for tokens, False for padding, which may be on either side or between tokens.
    start : int
        Position of the first token.

    Returns
    -------
    ndarray of int64 (..., N)
        Tokens count up from `start`. Padding has the position of the token before it, or `start` before the first.

    Raises
    ------
    TypeError
        A mask that is not boolean, a `start` that is not an integer.
    ValueError
        A mask without axes, a `start` past 2**53 in magnitude.

    Notes
    -----
    transformers' decoders use ``cumsum(mask) - 1`` with 1 (or 0) at the padding. fairseq and RoBERTa count from
    ``padding_idx + 1`` and give padding the position padding_idx, whose row of the table is zero:
    ``np.where(keep, positions_from_mask(keep, start=padding_idx + 1), padding_idx)``.

    Examples
    --------
    A text of 3 tokens, padded on the left to 5:

    >>> import posenc
    >>> posenc.positions_from_mask([[False, False, True, True, True]])
    array([[0, 0, 0, 1, 2]])
    """
    start = read.index("start", start, -LARGEST_POSITION)
    return _core.positions_from_mask(keep=keep, start=start)
