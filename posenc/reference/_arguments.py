"""Arguments of the functions that are also those of `posenc.analysis`: each message begins with the function's name."""

from math import isfinite
from numbers import Number
from operator import index

import numpy as np

from ._numbers import wide

LARGEST = 2**53
"""The largest integer that is read: ``np.arange(2**63)`` would be empty."""


def expect(condition, message, error=ValueError):
    if not condition:
        raise error(message)


def read_array(argument, value, expected="float16, bfloat16, float32, float64 or integers"):
    """Return an array of numbers in their own dtype."""
    is_masked = isinstance(value, np.ma.MaskedArray)  # np.asarray would ignore its mask
    has = f"{argument} has type {type(value).__name__}"
    expect(not is_masked, f"{has}; expected an array without a mask, such as filled() returns", TypeError)
    try:
        array = np.asarray(value)
    except Exception as error:  # the protocols call code of the user, which may raise anything
        raise TypeError(f"{has}; expected an array ({error})") from error
    are_numbers = array.dtype.kind in "iuf" or array.dtype.name == "bfloat16"
    are_objects = array.dtype == object and all(isinstance(one, Number) for one in array.flat)  # such as mpmath's
    large = [one for one in array.flat if isinstance(one, int)] if are_objects else []
    expect(not large, f"{argument} has {max(large, key=abs, default=0)}; expected integers of at most 2**53")
    expect(are_numbers or are_objects, f"{argument} has dtype {array.dtype}; expected {expected}", TypeError)
    return array


def read_finite(argument, value, has=""):
    """Return finite numbers as equations take them; `has` is "a result with " for those of a function."""
    numbers = wide(read_array(argument, value))
    expect(np.all(abs(numbers) < np.inf), f"{argument} has {has}NaN or infinity; expected finite numbers")
    return numbers


def read_pairs(argument, frequencies, count=None):
    """Return radians per position, one number per pair."""
    w = read_finite(argument, getattr(frequencies, "inv_freq", frequencies))
    expected = "an array (e,), one number per pair, such as sinusoidal_frequencies(dim)"
    expect(w.ndim > 0 or not argument.endswith(": frequencies"), f"{argument} is {frequencies}; expected {expected}")
    expect(w.ndim == 1 and len(w) > 0, f"{argument} has shape {w.shape}; expected one number per pair, at least one")
    expect(count in (None, len(w)), f"{argument} has {len(w)} entries; expected {count}, one per frequency")
    return w


def read_index(argument, value, least, most=LARGEST):
    """Return a Python int; refuse bools and floats."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    expect(number is not None, f"{argument} has type {type(value).__name__}; expected an integer", TypeError)
    expect(number >= least, f"{argument} is {number}; expected at least {least}")
    expect(number <= most, f"{argument} is {number}; expected at most {'2**53' if most == LARGEST else most}")
    return number


def read_positive(argument, value):
    """Return a positive, finite number."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    expect(is_number, f"{argument} has type {type(value).__name__}; expected a number", TypeError)
    expect(isfinite(value), f"{argument} is {value}; expected a finite number")
    expect(value > 0, f"{argument} is {value}; expected a positive number")
    return float(value)


def check_positions(argument, value, length):
    """Refuse everything but None, finite positions (length,), or their number."""
    if value is None:
        return
    if isinstance(value, bool | list | tuple) or np.ndim(value):
        array = read_array(argument, value, "integers or reals")
        bad = array[~(abs(array) <= LARGEST)].tolist()
        expect(not bad, f"{argument} has {[*bad, 0][0]}; expected finite positions of at most 2**53")
        shape = array.shape
    else:
        expected = "an int n, meaning 0..n-1, or an array of positions"
        expect(isinstance(value, int | np.integer), f"{argument} is {value}; expected {expected}", TypeError)
        shape = (read_index(argument, value, 0),)
    expect(shape == (length,), f"{argument} has shape {shape}; expected ({length},)")
