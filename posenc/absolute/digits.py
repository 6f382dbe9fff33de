"""Positions as digits, and the position ids of padded text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import I64, Float64, as_array, as_float64, as_index, fail, fail_value
from .._core_api.constants import LARGEST_POSITION

__all__ = ["digits", "from_digits", "positions_from_mask"]


def _base(function: str, base: Any) -> int:
    number = as_index(function, "base", base, 2)
    if number > LARGEST_POSITION:
        fail_value(ValueError, function, "base", number, "at most 2**53: a digit is a float64")
    return number


def _whole_and_fraction(
    function: str, numbers: Any, base: int, width: int
) -> tuple[npt.NDArray[np.int64], Float64 | None]:
    """The whole parts as 64 bits without sign, and the fractions, or None where the numbers are integers."""
    array = numbers if isinstance(numbers, np.ndarray) else as_array(function, "numbers", numbers)
    listed = isinstance(numbers, list | tuple | int)
    if listed and array.dtype.kind == "O" and all(type(n) is int for n in array.flat):
        fail(ValueError, function, "numbers", max(array.flat, key=abs), "less than 2**64")  # NumPy has no such integers
    if array.dtype.kind not in "iu":
        array = as_float64(function, "numbers", numbers if array.dtype.kind == "O" else array)
    if array.size:
        least, most = array.min(), array.max()
        if not np.isfinite(least) or not np.isfinite(most):
            fail(ValueError, function, "numbers", "NaN or infinity", "finite numbers")
        if least < 0:
            fail(ValueError, function, "numbers", least, "at least 0")
        reach = base ** min(width, 64)  # a power of many digits takes longer than the digits
        if int(most) >= min(reach, 2**64):
            what = f"less than {base}**{width}" if reach <= 2**64 else "less than 2**64"
            fail(ValueError, function, "numbers", most, what)
    if array.dtype.kind in "iu":
        return np.asarray(array.astype(np.uint64)).view(I64), None
    whole = np.floor(array)
    return np.asarray(whole.astype(np.uint64)).view(I64), np.asarray(array - whole)


def digits(numbers: npt.ArrayLike, *, base: int = 10, width: int) -> Float64:
    """``numbers = sum_k digits[k] * base**(width - 1 - k)``: most significant first, the last keeps the fraction.

    Parameters
    ----------
    numbers : array (...)
        At least 0, integers or reals, below ``base**width`` and 2**64.
    base : int
        At least 2.
    width : int
        How many digits, at least 1.

    Returns
    -------
    ndarray of float64 (..., width)
        Whole digits below the base, but for the last, which may have a fraction. Exact.

    Raises
    ------
    TypeError
        A base or a width that is not an integer, numbers that are not real.
    ValueError
        Negative numbers, NaN, infinity, or numbers that need more than `width` digits.

    Notes
    -----
    Su 2023, "RoPE is a base-beta code": what interpolation and a larger base do to a position. 1749 halved crowds the
    last digit, in base 16 it fits three digits as well, and the distance of neighbours stays 1. Integers are exact in
    int64 and uint64, past 2**53 too.

    Examples
    --------
    >>> import posenc
    >>> posenc.digits(1749 / 2, width=3)
    array([8. , 7. , 4.5])
    >>> posenc.digits(1749, base=16, width=3)
    array([ 6., 13.,  5.])
    """
    function = "digits"
    radix = _base(function, base)
    count = as_index(function, "width", width, 1)
    whole, fraction = _whole_and_fraction(function, numbers, radix, count)
    out = np.empty((*whole.shape, count))
    _core.digits(function, whole, fraction, out, radix)
    return out


def from_digits(digits: npt.ArrayLike, *, base: int = 10) -> Float64:
    """The number of some digits: ``sum_k digits[k] * base**(width - 1 - k)``.

    Parameters
    ----------
    digits : array (..., width)
        Most significant first. Any finite numbers: a digit may be past the base, negative, or a fraction.
    base : int
        At least 2.

    Returns
    -------
    ndarray of float64 (...)
        `digits` undone to the bit.

    Raises
    ------
    TypeError
        A base that is not an integer, digits that are not real.
    ValueError
        NaN or infinite digits, no axis of digits.

    Notes
    -----
    Horner's rule on a sum of two doubles, rounded at the end.

    Examples
    --------
    >>> import posenc
    >>> posenc.from_digits([[8.0, 7.0, 4.5], [7.0, 4.0, 9.0]])
    array([874.5, 749. ])
    """
    function = "from_digits"
    radix = _base(function, base)
    given = as_float64(function, "digits", digits)
    if given.ndim < 1:
        fail(ValueError, function, "digits", "no axes", "an axis of digits")
    out = np.empty(given.shape[:-1])
    _core.from_digits(function, given, out, radix)
    return out


def positions_from_mask(keep: npt.ArrayLike, *, start: int = 0) -> npt.NDArray[np.int64]:
    """Position ids of padded text: ``start + max(cumsum(keep) - 1, 0)`` along the last axis.

    Parameters
    ----------
    keep : bool array (..., N)
        True where there is a token, False where there is padding, on either side or between.
    start : int
        Position of the first token.

    Returns
    -------
    ndarray of int64 (..., N)
        Tokens count up from `start`; padding has the position of the token before it, or `start` before the first.

    Raises
    ------
    TypeError
        A mask that is not boolean, a `start` that is not an integer.
    ValueError
        A mask without axes, a `start` past 2**53 in magnitude.

    Notes
    -----
    transformers' decoders use ``cumsum(mask) - 1`` with 1 (or 0) at the padding. fairseq and RoBERTa count from
    ``start=padding_idx + 1`` and give padding the position padding_idx, whose row of the table is zero: there
    ``np.where(keep, positions_from_mask(keep, start=padding_idx + 1), padding_idx)``.

    Examples
    --------
    >>> import posenc
    >>> posenc.positions_from_mask([[False, False, True, True, True]])
    array([[0, 0, 0, 1, 2]])
    """
    function = "positions_from_mask"
    mask = as_array(function, "keep", keep)
    if mask.dtype != np.bool_:
        fail(TypeError, function, "keep", f"dtype {mask.dtype}", "bool")
    if mask.ndim < 1:
        fail(ValueError, function, "keep", "no axes", "(..., N)")
    first = as_index(function, "start", start, -LARGEST_POSITION)
    if first > LARGEST_POSITION:
        fail_value(ValueError, function, "start", first, "at most 2**53")
    out = np.empty(mask.shape, I64)
    _core.positions_from_mask(function, mask, out, first)
    return out
