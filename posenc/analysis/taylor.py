"""A function of a sequence near its inputs: the terms of Taylor's theorem that positions add, and their interaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import reference
from .._core_api import read
from .._core_api.arrays import Float64
from .._core_api.door import door, fail, fail_value

SequenceFunction = Callable[[Float64], npt.ArrayLike]
"""A function of a sequence (N, d)."""

STEP = 2.0**-8
"""The sixth root of 2**-52, up to 2: errors of fourth differences and of rounding are then alike."""


class TaylorTerms(NamedTuple):
    """Terms of a function of a sequence to whose rows m and n vectors are added, in the shape of its result.

    Attributes
    ----------
    value : float64 array
        f, without the vectors.
    first_m : float64 array
        ``p_m' df/dx_m``.
    first_n : float64 array
        ``p_n' df/dx_n``.
    second_m : float64 array
        ``p_m' d2f/dx_m2 p_m / 2``.
    second_n : float64 array
        ``p_n' d2f/dx_n2 p_n / 2``.
    interaction : float64 array
        ``p_m' H p_n`` with ``H = d2f/dx_m dx_n``, the only term that depends on both positions.
    """

    value: Float64
    first_m: Float64
    first_n: Float64
    second_m: Float64
    second_n: Float64
    interaction: Float64


def _read_sequence(argument: str, value: npt.ArrayLike) -> Float64:
    array = read.data(argument, value).astype(np.float64)
    if array.ndim != 2 or 0 in array.shape:
        fail(ValueError, argument, f"shape {array.shape}", "a sequence (N, d), N and d at least 1")
    return array


def _read_rows(x: Float64, m: int, n: int) -> tuple[int, int]:
    m, n = read.index("m", m, 0, len(x) - 1), read.index("n", n, 0, len(x) - 1)
    if m == n:
        fail_value(ValueError, "n", n, "a row other than m")
    return m, n


def _checked(f: SequenceFunction, scalar: bool = False) -> Callable[[Float64], Float64]:
    """Return f with checks of its result: a finite array, or one finite number."""

    def call(x: Float64) -> Float64:
        value = read.data("f", np.asarray(f(x))).astype(np.float64)
        if not np.isfinite(value).all():
            fail(ValueError, "f", "a result with NaN or infinity", "finite numbers")
        if scalar and value.ndim:
            fail(ValueError, "f", f"a result of shape {value.shape}", "one number")
        return value

    return call


@door
def taylor_terms(
    f: SequenceFunction, x: npt.ArrayLike, encoding: npt.ArrayLike, m: int, n: int, *, step: float = STEP
) -> TaylorTerms:
    """Expand a function of a sequence in the encodings of two of its rows, to second order.

    ``f(.., x_m + p_m, .., x_n + p_n, ..)`` is about the sum of the six terms.

    Parameters
    ----------
    f : function
        Takes a sequence (N, d) in float64 and returns a number or an array.
    x : array (N, d)
        The sequence without positions.
    encoding : array (N, d)
        p. Only the rows m and n are read.
    m, n : int
        Two rows.
    step : float
        Fraction of an encoding by which the rows are moved for a difference.

    Returns
    -------
    TaylorTerms
        ``(value, first_m, first_n, second_m, second_n, interaction)``, float64 in the shape of the result of f.

    Raises
    ------
    TypeError, ValueError
        Shapes that differ, a row that does not exist, equal rows, a result that is not finite.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 4. The derivatives are central differences, extrapolated to an error of
    the order of step**4. The first five terms depend on one position each. The sum differs from f by terms of third
    order, so the expansion serves encodings that are small beside x.

    Examples
    --------
    A function with a known H, the identity, whose interaction is the inner product of two encodings:

    >>> import numpy as np, posenc, posenc.analysis
    >>> def f(x):
    ...     return x[0] @ x[1]
    >>> x, p = np.ones((2, 8)), posenc.sinusoidal([7, 4], 8, dtype=np.float64)
    >>> terms = posenc.analysis.taylor_terms(f, x, p, 0, 1)
    >>> float(terms.interaction.round(6))
    1.96489
    >>> float(posenc.analysis.inner_product(7, 4, posenc.frequencies(8)).round(6))
    1.96489
    >>> bool(abs(sum(terms) - f(x + p)) < 1e-9)
    True
    """
    x, p = _read_sequence("x", x), _read_sequence("encoding", encoding)
    if p.shape != x.shape:
        fail(ValueError, "encoding", f"shape {p.shape}", f"{x.shape}, the shape of x")
    m, n = _read_rows(x, m, n)
    number = read.positive("step", step)
    return TaylorTerms(*reference.taylor_terms(_checked(f), x, p, m, n, step=number))


@door
def interaction_matrix(f: SequenceFunction, x: npt.ArrayLike, m: int, n: int, *, step: float = STEP) -> Float64:
    """Return the matrix by which two rows of a sequence interact in a function.

    ``H[i, j] = d2f / (dx[m, i] dx[n, j])``

    Parameters
    ----------
    f : function
        Takes a sequence (N, d) in float64 and returns a number.
    x : array (N, d)
        The sequence without positions.
    m, n : int
        Two rows.
    step : float
        Distance by which a number of x is moved for a difference, times the root mean square of x.

    Returns
    -------
    ndarray of float64, shape (d, d)

    Raises
    ------
    TypeError, ValueError
        A result that is not one finite number, a row that does not exist, equal rows.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 4. It needs ``8 d**2`` calls of f, so it is meant for small d.
    ``inner_product(m, n, w, weights=H)`` is the interaction of two sinusoids by H.

    Examples
    --------
    >>> import numpy as np, posenc.analysis
    >>> W = np.array([[2.0, 1.0], [0.0, -1.0]])
    >>> posenc.analysis.interaction_matrix(lambda x: x[0] @ W @ x[1], np.ones((2, 2)), 0, 1).round(6) + 0.0
    array([[ 2.,  1.],
           [ 0., -1.]])
    """
    x = _read_sequence("x", x)
    m, n = _read_rows(x, m, n)
    number = read.positive("step", step)
    matrix: Float64 = reference.interaction_matrix(_checked(f, scalar=True), x, m, n, step=number)
    return matrix
