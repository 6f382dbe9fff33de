"""Conversions and elementary functions that the equations of this package share.

NumPy's cos, exp, ... call a method of the same name on numbers that NumPy does not know, and mpmath's numbers have
none. These functions ask the context of such a number, ``number.context.cos``. Other numbers in the same array, such as
the -inf of a mask, are those of Python.
"""

import numpy as np


def wide(x):
    """Convert to an array of float64; longdouble, complex numbers and objects such as mpmath's stay what they are."""
    x = np.asarray(x)
    return x if x.dtype.kind in "cO" or x.dtype == np.longdouble else x.astype(np.float64)


def places(positions, start=0):
    """Positions as an array: an int n means start, .., start + n - 1."""
    return wide(np.arange(start, start + positions) if np.ndim(positions) == 0 else positions)


def precise(number, like):
    """A number, or the text of its digits, in the precision of an array."""
    like = wide(like)
    return (type(like.flat[0]) if like.dtype == object and like.size else like.dtype.type)(number)


PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
"""Digits for `precise`."""


def _elementwise(name):
    def function(x):
        x = wide(x)
        if x.dtype == object:
            return np.vectorize(lambda y: getattr(getattr(y, "context", np), name)(y), otypes=[object])(x)
        return getattr(np, name)(x)

    return function


cos, sin, tanh, exp, log, log1p, sqrt, floor, ceil = map(
    _elementwise, ("cos", "sin", "tanh", "exp", "log", "log1p", "sqrt", "floor", "ceil")
)
