"""Inner products of sinusoidal encodings by distance: the sums over pairs, and the integrals that they tend to."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Literal, NamedTuple, TypeAlias, TypedDict, overload

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    check_choice,
    door,
    fail,
    fail_value,
)
from ..absolute.frequency import frequencies as geometric_or_power
from ..absolute.sinusoid import sinusoidal
from ..rotary.scaling import RopeFrequencies
from ._oscillating import Curve, integrate_wave, read_curve

Complex128 = npt.NDArray[np.complex128]
PairFrequencies: TypeAlias = "npt.ArrayLike | RopeFrequencies"
"""Radians per position of each pair of channels, (e,)."""
Schedule = Literal["geometric", "power"]

BLOCK_NUMBERS = 1 << 20
"""Sines and cosines that are held in memory at a time."""


class DecayOptions(TypedDict, total=False):
    """Options of `decay` that choose theta(t) and h(t)."""

    schedule: Schedule | Curve
    base: float
    alpha: float
    weights: npt.ArrayLike | Curve | None


class InnerProduct(NamedTuple):
    """Inner products weighted by a diagonal matrix, and their two parts. Scalars if both positions are.

    Attributes
    ----------
    total : float64 array, or a number
        The sum of the two parts.
    difference : float64 array, or a number
        The part that is a function of m - n.
    sum : float64 array, or a number
        The part that is a function of m + n.
    """

    total: Float64
    difference: Float64
    sum: Float64


def as_pair_numbers(argument: str, value: PairFrequencies, count: int | None = None) -> Float64:
    """Convert to finite float64 numbers, one per pair of channels."""
    array = as_data(argument, getattr(value, "inv_freq", value)).astype(F64)
    if array.ndim == 0 and argument == "frequencies":
        expected = "an array (e,), one number per pair, such as frequencies(dim)"
        fail_value(ValueError, argument, value, expected)
    if array.ndim != 1 or len(array) == 0:
        fail(ValueError, argument, f"shape {array.shape}", "one number per pair, at least one")
    if count is not None and len(array) != count:
        fail(ValueError, argument, f"{len(array)} entries", f"{count}, one per frequency")
    if not np.isfinite(array).all():
        fail(ValueError, argument, "NaN or infinity", "finite numbers")
    return array


def as_places(argument: str, value: npt.ArrayLike) -> Array:
    """Convert to finite int64 or float64 positions of any shape; an int is one position, not a count."""
    return _core.read(f"pos {argument}()", **{argument: value})


def cosine_and_sine_sums(
    positions: Array, frequencies: Float64, cosine_weights: Float64, sine_weights: Float64
) -> tuple[Float64, Float64]:
    """Compute ``sum_i a[i] cos(p w[i])`` and ``sum_i b[i] sin(p w[i])`` for each position p.

    Equal positions are computed once, because a matrix of differences repeats most of its values.
    """
    distinct, index = np.unique(positions, return_inverse=True)
    e = len(frequencies)
    block = max(BLOCK_NUMBERS // max(2 * e, 1), 1)
    sums = np.empty((2, len(distinct)))
    for start in range(0, len(distinct), block):
        rows = slice(start, start + block)
        table = sinusoidal(distinct[rows], 2 * e, frequencies=frequencies, layout="halves", order="cossin", dtype=F64)
        sums[0, rows] = table[:, :e] @ cosine_weights
        sums[1, rows] = table[:, e:] @ sine_weights
    cosines, sines = sums[:, index.reshape(positions.shape)]
    return cosines, sines


@overload
def inner_product(  # pyright: ignore[reportOverlappingOverload]
    m: float, n: float, frequencies: PairFrequencies, *, weights: None = None
) -> np.float64: ...
@overload
def inner_product(
    m: npt.ArrayLike, n: npt.ArrayLike, frequencies: PairFrequencies, *, weights: None = None
) -> Float64: ...
@overload
def inner_product(
    m: npt.ArrayLike, n: npt.ArrayLike, frequencies: PairFrequencies, *, weights: Array
) -> np.float64 | Float64: ...
@overload
def inner_product(
    m: npt.ArrayLike, n: npt.ArrayLike, frequencies: PairFrequencies, *, weights: tuple[npt.ArrayLike, npt.ArrayLike]
) -> InnerProduct: ...
@door
def inner_product(
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    frequencies: PairFrequencies,
    *,
    weights: Array | tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> np.float64 | Float64 | InnerProduct:
    """Inner product of two sinusoidal encodings, with weights of the sines, then of the cosines.

    ``<p_m, p_n> = sum_i cos((m - n) w[i])``; with weights ``p_m' H p_n`` for a matrix H.

    Parameters
    ----------
    m, n : number or array (...)
        Positions, broadcast against each other. An int is one position, not a count.
    frequencies : array (e,) or RopeFrequencies
        w, in radians per position.
    weights : (sine, cosine), each array (e,), or array (2 e, 2 e), optional
        A tuple or list is the diagonal of H: the factors of the products of two sines, then the factors of the products
        of two cosines, one per pair. An array is H itself; its rows and columns have the order of `sinusoidal`: sin 0,
        cos 0, sin 1, ....

    Returns
    -------
    float64 or ndarray of float64, or InnerProduct
        The broadcast shape of m and n. With a diagonal, a NamedTuple ``(total, difference, sum)`` of such arrays: the
        product, its part in m - n and its part in m + n. A full matrix has no such parts, so the result is the product.

    Raises
    ------
    TypeError, ValueError
        A position is not finite, the shapes do not broadcast, or `weights` is neither a pair of arrays (e,) nor
        an array (2 e, 2 e).

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equations 11 to 13: ``difference = 1/2 sum (cosine + sine) cos((m - n) w)`` and
    ``sum = 1/2 sum (cosine - sine) cos((m + n) w)``. The second part is 0 if the two weights are equal; only then is
    the product a function of the relative position. It is even in m - n, so it cannot tell before from after.

    Examples
    --------
    The product is the same for all positions that are three apart:

    >>> import posenc, posenc.analysis
    >>> w = posenc.frequencies(8)
    >>> posenc.analysis.inner_product([7, 4, 100], [4, 7, 103], w).round(6)
    array([1.96489, 1.96489, 1.96489])

    Unequal weights of the sine and the cosine of a pair add a part that depends on absolute positions:

    >>> parts = posenc.analysis.inner_product([7, 107], [4, 104], w, weights=([1, 1, 1, 1], [3, 1, 1, 1]))
    >>> parts.difference.round(6), parts.sum.round(6)
    (array([0.974897, 0.974897]), array([ 0.004426, -0.871133]))

    A matrix that swaps sine and cosine gives ``sum_i sin((m + n) w[i])``, which says nothing about m - n:

    >>> import numpy as np
    >>> swap = np.kron(np.eye(4), [[0, 1], [1, 0]])
    >>> posenc.analysis.inner_product([7, 8, 9], [4, 5, 6], w, weights=swap).round(6)
    array([0.011995, 1.526359, 1.81222 ])
    """
    w = as_pair_numbers("frequencies", frequencies)
    first, second = as_places("m", m), as_places("n", n)
    try:
        np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        fail(ValueError, "m", f"shape {first.shape}", f"one that broadcasts with n, {second.shape}")
    zeros = np.zeros_like(w)
    differences = np.asarray(first - second)
    if weights is None:
        product: np.float64 | Float64 = cosine_and_sine_sums(differences, w, zeros + 1, zeros)[0][()]
        return product
    if isinstance(weights, np.ndarray) and weights.ndim == 2:
        return _bilinear_form(first, second, w, weights)[()]
    if not isinstance(weights, list | tuple) or len(weights) != 2:
        expected = "a pair (sine, cosine), or an array H"
        fail(ValueError, "weights", "neither two entries nor two axes", expected)
    sine, cosine = (as_pair_numbers("weights", part, len(w)) for part in weights)
    difference = cosine_and_sine_sums(differences, w, (cosine + sine) / 2, zeros)[0]
    total = cosine_and_sine_sums(np.asarray(first + second), w, (cosine - sine) / 2, zeros)[0]
    return InnerProduct((difference + total)[()], difference[()], total[()])


def _bilinear_form(m: Array, n: Array, w: Float64, matrix: Array) -> Float64:
    """Compute ``p_m' H p_n``, with ``H p_n`` once for each distinct n."""
    channels = 2 * len(w)
    h = as_data("weights", matrix).astype(F64)
    if h.shape != (channels, channels):
        fail(ValueError, "weights", f"shape {h.shape}", f"({channels}, {channels}), channels by channels")
    if not np.isfinite(h).all():
        fail(ValueError, "weights", "NaN or infinity", "finite numbers")
    (rows, row), (columns, column) = (np.unique(x, return_inverse=True) for x in (m, n))
    left = sinusoidal(rows, channels, frequencies=w, dtype=F64)
    right = sinusoidal(columns, channels, frequencies=w, dtype=F64) @ h.T
    row, column = np.broadcast_arrays(row.reshape(m.shape), column.reshape(n.shape))
    shape, row, column = row.shape, row.ravel(), column.ravel()
    out, block = np.empty(row.size), max(BLOCK_NUMBERS // channels, 1)
    for start in range(0, row.size, block):
        some = slice(start, start + block)
        out[some] = np.einsum("pc,pc->p", left[row[some]], right[column[some]])
    return out.reshape(shape)


@overload
def decay(  # pyright: ignore[reportOverlappingOverload]
    distances: float,
    *,
    schedule: Schedule | Curve = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
    weights: npt.ArrayLike | Curve | None = None,
) -> np.complex128: ...
@overload
def decay(
    distances: npt.ArrayLike,
    *,
    schedule: Schedule | Curve = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
    weights: npt.ArrayLike | Curve | None = None,
) -> Complex128: ...
@door
def decay(
    distances: npt.ArrayLike,
    *,
    schedule: Schedule | Curve = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
    weights: npt.ArrayLike | Curve | None = None,
) -> np.complex128 | Complex128:
    """Mean inner product of two sinusoidal encodings by their distance.

    ``mean_k h_k exp(i x theta(2 k / dim))`` over the pairs k, or its limit for large dim, the integral of
    ``h(t) exp(i x theta(t))`` over t in [0, 1].

    Parameters
    ----------
    distances : number or array (...)
        x, the difference of two positions. An int is one distance, not a count.
    schedule : {"geometric", "power"} or function
        theta(t) is ``base**-t`` or ``t**alpha``. Another theta is a function of an array t (L,) of numbers in [0, 1]
        that returns an array (L,), or one number for all t; then `base` and `alpha` are not used.
    base : float
        Positive.
    alpha : float
        At least 0.
    dim : int, optional
        Width of the encoding, for the mean over its pairs. None is the integral, which needs scipy
        (``pip install scipy``) unless theta or h is a function.
    weights : array (ceil(dim / 2),) or function, optional
        h_k for each pair, or a function h(t) of an array t (L,). They are not normalised. By default they are 1.

    Returns
    -------
    complex128 or ndarray of complex128
        The shape of `distances`; 1 at distance 0 without weights. The real part times dim / 2 is the inner product of
        two encodings.

    Raises
    ------
    ImportError
        The integral is wanted, and scipy is not installed.
    TypeError, ValueError
        A distance is not finite, `base` is not positive, or `alpha` is negative; a function whose result is not finite,
        or is neither one number nor in the shape of t; weights that are an array without `dim`, or do not fit it.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 11, and 14 with weights: ``h_k`` is the mean of two neighbouring entries
    of a diagonal matrix H. With u = x base**-t the integral of the geometric schedule is
    ``(Ci(x) - Ci(x / base) + i (Si(x) - Si(x / base))) / ln base``. The integral of the power schedule is
    ``int_0^1 exp(i x u) u**(1 / alpha - 1) / alpha du``; unless alpha is 1, it is computed by adaptive quadrature for
    oscillating integrands with a target of 1e-12. Where the quadrature misses its target, as for powers at distances
    beyond 1e7, scipy warns. Integrals of functions are computed by Gauss's rule
    with 16 nodes on intervals that are halved until the halves agree to 1e-12; their time grows with the turns of the
    wave, x times the range of theta.

    The mean is a left Riemann sum. Once neighbouring pairs differ by less than a turn, ``x ln(base) < pi dim``, it
    differs from the integral by O(1 / dim).

    Examples
    --------
    The mean over 64 and over 1024 pairs, and the integral:

    >>> import posenc.analysis
    >>> abs(posenc.analysis.decay([0, 10, 100], dim=128)).round(3)
    array([1.   , 0.691, 0.49 ])
    >>> abs(posenc.analysis.decay([0, 10, 100], dim=2048)).round(3)
    array([1.   , 0.705, 0.468])
    >>> abs(posenc.analysis.decay([0, 10, 100])).round(3)
    array([1.   , 0.706, 0.468])

    A theta of your own, whose frequencies fall quickly at first, and weights that leave out the fast pairs:

    >>> def theta(t):
    ...     return 1 / (1 + 99 * t)
    >>> abs(posenc.analysis.decay([0, 10, 100], schedule=theta)).round(3)
    array([1.   , 0.9  , 0.516])
    >>> abs(posenc.analysis.decay([0, 10, 100], schedule=theta, weights=lambda t: 2 * t)).round(3)
    array([1.   , 0.987, 0.763])
    """
    if not callable(schedule):
        check_choice("schedule", schedule, ("geometric", "power"))
    x = as_places("distances", distances)
    number, exponent = as_number("base", base), as_number("alpha", alpha)
    if number <= 0:
        fail_value(ValueError, "base", base, "a positive number")
    if exponent < 0:
        fail_value(ValueError, "alpha", alpha, "at least 0")
    if dim is not None:
        width = as_index("dim", dim, 1)
        t = np.arange((width + 1) // 2) * 2 / width
        if callable(schedule):
            w = read_curve("schedule", schedule, t)
        else:
            w = geometric_or_power(width, base=base, schedule=schedule, alpha=alpha)
        mean = _pair_weights(weights, t) / len(w)
        real, imaginary = cosine_and_sine_sums(x, w, mean, mean)
    elif weights is not None and not callable(weights):
        fail(TypeError, "weights", "an array", "a function h(t), because dim is None")
    elif callable(schedule) or weights is not None:
        theta = schedule if callable(schedule) else _theta(schedule, number, exponent)
        distinct, index = np.unique(x.astype(F64), return_inverse=True)
        integral = integrate_wave(distinct, theta, weights)[index.reshape(x.shape)]
        real, imaginary = integral.real, integral.imag
    else:
        real, imaginary = integrals(x.astype(F64), number if schedule == "geometric" else None, exponent)
    out = np.empty(x.shape, np.complex128)
    out.real, out.imag = real, imaginary
    result: np.complex128 | Complex128 = out[()]
    return result


def _theta(schedule: Schedule, base: float, alpha: float) -> Curve:
    return (lambda t: base**-t) if schedule == "geometric" else (lambda t: t**alpha)


def _pair_weights(weights: npt.ArrayLike | Curve | None, t: Float64) -> Float64:
    """Return h_k for each pair."""
    if weights is None:
        return np.ones(len(t))
    if callable(weights):
        return read_curve("weights", weights, t)
    return as_pair_numbers("weights", weights, len(t))


def import_scipy(module: str) -> ModuleType:
    try:
        return import_module(f"scipy.{module}")
    except ImportError as error:
        raise ImportError("decay: the integral needs scipy: pip install scipy") from error


NEARLY_ONE = 0.1
"""Up to this |ln base| the closed form is avoided, because it divides the rounding error of Ci by ln base."""
MANY_RADIANS = 100.0
"""Largest range of angles, x |ln base|, that the Gauss nodes resolve; beyond it the closed form serves every base."""
SMALL_ANGLE = 1e-4
"""Angles below this use a power series, whose error is then below 1e-17."""


def geometric_closed_form(x: Float64, base: float) -> tuple[Float64, Float64]:
    """Integrals of cos and sin of ``x base**-t`` over t in [0, 1], x > 0: the closed form in Ci and Si.

    Where all angles are small the series replaces it, since Ci(0) is infinite.
    """
    sici, log_base = import_scipy("special").sici, np.log(base)
    with np.errstate(over="ignore", under="ignore"):  # Ci and Si have limits at 0 and infinity
        x_end = x / base
        (sine, cosine), (sine_end, cosine_end) = sici(x), sici(x_end)
        small = np.maximum(x, x_end) < SMALL_ANGLE
        first, second, third = ((x[small] ** k - x_end[small] ** k) / (k * log_base) for k in (1, 2, 3))
    cosines, sines = (cosine - cosine_end) / log_base, (sine - sine_end) / log_base
    cosines[small], sines[small] = 1 - second / 2, first - third / 6
    return cosines, sines


def geometric_gauss(x: Float64, base: float) -> tuple[Float64, Float64]:
    """The same integrals for angles that differ from x by at most `MANY_RADIANS`.

    They are exp(i x) times an integral of ``exp(i (angle - x))``, by Gauss-Legendre quadrature with 128 nodes.
    """
    nodes, weights = np.polynomial.legendre.leggauss(128)
    part = np.exp(1j * x[:, None] * np.expm1(-np.log(base) * (nodes + 1) / 2)) @ (weights / 2)
    integral = np.exp(1j * x) * part
    return integral.real, integral.imag


def integrals(x: Float64, base: float | None, alpha: float) -> tuple[Float64, Float64]:
    """Real and imaginary part of the integral at distances x; with base None of the power schedule."""
    if base is None and alpha == 1:
        half = np.sinc(x / (2 * np.pi))  # exp(i x / 2) sin(x / 2) / (x / 2)
        return np.cos(x / 2) * half, np.sin(x / 2) * half
    distinct, index = np.unique(abs(x), return_inverse=True)
    values = np.zeros((2, len(distinct)))
    values[0, distinct == 0] = 1.0
    if base is None:
        for number in np.flatnonzero(distinct):
            values[:, number] = [quadrature(distinct[number], alpha, kind) for kind in ("cos", "sin")]
    else:
        log_base = abs(np.log(base))
        closed = (distinct > 0) & ((log_base > NEARLY_ONE) | (distinct * log_base > MANY_RADIANS))
        values[:, closed] = geometric_closed_form(distinct[closed], base) if closed.any() else 0.0
        gauss = ~closed & (distinct > 0)
        values[:, gauss] = geometric_gauss(distinct[gauss], base)
    real, imaginary = values[:, index.reshape(x.shape)]
    return real, np.sign(x) * imaginary


def quadrature(x: float, alpha: float, kind: str) -> float:
    """``int_0^1 kind(x t**alpha) dt`` for x > 0, to about 1e-12; `kind` is "cos" or "sin"."""
    wave, quad = getattr(np, kind), import_scipy("integrate").quad
    options = {"epsabs": 1e-12, "epsrel": 1e-12, "limit": 400}
    if alpha == 0:
        return float(wave(x))
    if x <= 2 * np.pi:  # less than one turn
        return float(quad(lambda t: wave(x * t**alpha), 0, 1, **options)[0])
    # In u = t**alpha the wave has one frequency, but u**(1 / alpha - 1) is singular at 0 for alpha > 1. The first turn
    # is therefore integrated in t.
    start = 0.0 if alpha <= 1 else 2 * np.pi / x
    first_turn = quad(lambda t: wave(x * t**alpha), 0, start ** (1 / alpha), **options)[0] if start else 0.0
    rest = quad(lambda u: u ** (1 / alpha - 1) / alpha, start, 1, weight=kind, wvar=x, maxp1=100, **options)[0]
    return float(first_turn + rest)
