"""How inner products of sinusoids fall with distance: the sums, and the integrals that they tend to."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    as_reals,
    check_choice,
    check_positions,
    fail,
    fail_value,
)
from ..absolute.frequency import frequencies as all_frequencies
from ..absolute.sinusoid import sinusoidal

__all__ = ["InnerProduct", "decay", "inner_product"]

BLOCK = 1 << 20
"""Sines and cosines that are held at one time."""


class InnerProduct(NamedTuple):
    """What a diagonal H makes of the inner product of two sinusoids, float64; total is the sum of the two parts."""

    total: Any
    difference: Any
    """The part that depends on m - n."""
    sum: Any
    """The part that depends on m + n."""


def waves(positions: Array, w: Float64, weights: tuple[Float64, Float64]) -> tuple[Float64, Float64]:
    """``sum_i weights[0][i] cos(p w[i])`` and ``sum_i weights[1][i] sin(p w[i])`` at each of any positions.

    Equal positions are computed once: a matrix of differences has few.
    """
    values, where = np.unique(positions, return_inverse=True)
    step, e = max(BLOCK // max(2 * len(w), 1), 1), len(w)
    sums = np.empty((2, len(values)))
    for first in range(0, len(values), step):
        part = values[first : first + step]
        table = sinusoidal(part, 2 * e, frequencies=w, layout="halves", order="cossin", dtype=F64)
        sums[0, first : first + step] = table[:, :e] @ weights[0]
        sums[1, first : first + step] = table[:, e:] @ weights[1]
    found = sums[:, where.reshape(positions.shape)]
    return found[0], found[1]


def as_pairs(function: str, argument: str, value: Any, count: int | None = None) -> Float64:
    """Finite float64 numbers, one for each pair of channels."""
    array = as_data(function, argument, getattr(value, "inv_freq", value)).astype(F64)
    if array.ndim != 1 or len(array) == 0:
        fail(ValueError, function, argument, f"shape {array.shape}", "one number for each pair, at least one")
    if count is not None and len(array) != count:
        fail(ValueError, function, argument, f"{len(array)} entries", f"{count}, one for each frequency")
    if not np.isfinite(array).all():
        fail(ValueError, function, argument, "NaN or infinity", "finite numbers")
    return array


def places(function: str, argument: str, value: Any) -> Array:
    array = as_reals(function, argument, value)
    check_positions(function, argument, array)
    return array


def inner_product(m: Any, n: Any, frequencies: Any, *, weights: Any = None) -> Any:
    """``<p_m, p_n> = sum_i cos((m - n) w[i])`` of sinusoidal encodings, or ``p_m' H p_n`` with a diagonal H.

    Parameters
    ----------
    m, n : number or array
        Positions, broadcast against each other. Here an int is one position.
    frequencies : array (e,) or RopeFrequencies
        Radians per position.
    weights : (sine, cosine), each array (e,), optional
        The diagonal of H: what multiplies the product of two sines, and of two cosines.

    Returns
    -------
    float64 or ndarray, or InnerProduct
        In the broadcast shape of m and n; with `weights` an ``InnerProduct(total, difference, sum)``.

    Raises
    ------
    TypeError, ValueError
        Positions that are not finite, shapes that do not broadcast, weights that are no pair of as
        many numbers as there are frequencies.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equations 11 to 13: ``difference = 1/2 sum (cosine + sine) cos((m - n) w)``,
    ``sum = 1/2 sum (cosine - sine) cos((m + n) w)``. The second part is 0 where the two weights are equal, and only
    then does the product know relative positions alone. It is even in m - n: it cannot tell before from after.

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> w = posenc.frequencies(8)
    >>> posenc.analysis.inner_product([7, 4], [4, 7], w).round(6)
    array([1.96489, 1.96489])
    >>> parts = posenc.analysis.inner_product(7, 4, w, weights=([1, 1, 1, 1], [3, 1, 1, 1]))
    >>> round(float(parts.total - parts.difference - parts.sum), 12), round(float(parts.sum), 6)
    (0.0, 0.004426)
    """
    function = "inner_product"
    w = as_pairs(function, "frequencies", frequencies)
    first, second = places(function, "m", m), places(function, "n", n)
    try:
        np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        fail(ValueError, function, "m", f"shape {first.shape}", f"one that broadcasts with n, {second.shape}")
    none = np.zeros_like(w)
    if weights is None:
        return waves(np.asarray(first - second), w, (none + 1, none))[0][()]
    if not isinstance(weights, list | tuple) or len(weights) != 2:
        fail(ValueError, function, "weights", "something else than two entries", "a pair (sine, cosine)")
    sine, cosine = (as_pairs(function, "weights", part, len(w)) for part in weights)
    difference = waves(np.asarray(first - second), w, ((cosine + sine) / 2, none))[0]
    total = waves(np.asarray(first + second), w, ((cosine - sine) / 2, none))[0]
    return InnerProduct((difference + total)[()], difference[()], total[()])


def decay(
    distances: Any,
    *,
    schedule: str = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
) -> Any:
    """How inner products fall: ``mean_i exp(i x theta(2 i / dim))``, or the integral over t in [0, 1] that it tends to.

    Parameters
    ----------
    distances : number or array
        x, the difference of two positions; here an int is one distance.
    schedule : {"geometric", "power"}
        theta(t) is ``base**-t`` or ``t**alpha``.
    base : float
        Positive.
    alpha : float
        At least 0.
    dim : int, optional
        Width of an encoding, for the finite mean over its pairs; None is the integral, which needs scipy
        (``pip install "posenc[analysis]"``).

    Returns
    -------
    complex128 or ndarray
        1 at distance 0. The real part times dim / 2 is the inner product of two encodings.

    Raises
    ------
    ImportError
        The integral where scipy is not installed.
    TypeError, ValueError
        Distances that are not finite, a base that is not positive, a negative alpha.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 11. With u = x base**-t the integral is
    ``(Ci(x) - Ci(x / base) + i (Si(x) - Si(x / base))) / ln base``; for powers it is
    ``int_0^1 exp(i x u) u**(1 / alpha - 1) / alpha du``, by adaptive quadrature for oscillating integrands unless
    alpha is 1. The mean is a left Riemann sum: once neighbouring pairs
    differ by less than a turn, ``x ln(base) < pi dim``, it differs from the integral by O(1 / dim).
    Quadrature aims at 1e-12; where it does not get there, as for powers at distances past 1e7, scipy warns.

    Examples
    --------
    >>> import posenc.analysis
    >>> abs(posenc.analysis.decay([0, 10, 100], dim=128)).round(3)
    array([1.   , 0.691, 0.49 ])
    >>> abs(posenc.analysis.decay([0, 10, 100], dim=2048)).round(3)
    array([1.   , 0.705, 0.468])
    >>> abs(posenc.analysis.decay([0, 10, 100])).round(3)
    array([1.   , 0.706, 0.468])
    """
    function = "decay"
    check_choice(function, "schedule", schedule, ("geometric", "power"))
    x = places(function, "distances", distances)
    number, exponent = as_number(function, "base", base), as_number(function, "alpha", alpha)
    if number <= 0:
        fail_value(ValueError, function, "base", base, "a positive number")
    if exponent < 0:
        fail_value(ValueError, function, "alpha", alpha, "at least 0")
    if dim is not None:
        w = all_frequencies(as_index(function, "dim", dim, 1), base=base, schedule=schedule, alpha=alpha)
        even = np.full(len(w), 1 / len(w))
        real, imaginary = waves(x, w, (even, even))
    else:
        real, imaginary = integrals(x.astype(F64), number if schedule == "geometric" else None, exponent)
    out = np.empty(x.shape, np.complex128)
    out.real, out.imag = real, imaginary
    return out[()]


def scipy_of(part: str) -> Any:
    try:
        return import_module(f"scipy.{part}")
    except ImportError as error:
        raise ImportError('decay: the integral needs scipy; pip install "posenc[analysis]"') from error


NEARLY_ONE, MANY, TINY = 0.1, 100.0, 1e-4
"""A base so near 1 would divide the rounding of Ci by its logarithm, unless there are many radians, which nodes have
to follow; angles so small need no integral."""


def exponential(x: Float64, base: float) -> tuple[Float64, Float64]:
    """The closed form for base**-t at x > 0; by its series where all angles are small, since Ci(0) is infinite."""
    sici, logarithm = scipy_of("special").sici, np.log(base)
    with np.errstate(over="ignore", under="ignore"):  # Ci and Si have limits
        near = x / base
        (sine, cosine), (sine_near, cosine_near) = sici(x), sici(near)
        small = np.maximum(x, near) < TINY
        first, second, third = ((x[small] ** k - near[small] ** k) / (k * logarithm) for k in (1, 2, 3))
    cosines, sines = (cosine - cosine_near) / logarithm, (sine - sine_near) / logarithm
    cosines[small], sines[small] = 1 - second / 2, first - third / 6
    return cosines, sines


def nearly_one(x: Float64, base: float) -> tuple[Float64, Float64]:
    """The same where angles leave x by MANY radians at most: exp(i x) times an integral of small angles, by Gauss."""
    nodes, weights = np.polynomial.legendre.leggauss(128)
    part = np.exp(1j * x[:, None] * np.expm1(-np.log(base) * (nodes + 1) / 2)) @ (weights / 2)
    found = np.exp(1j * x) * part
    return found.real, found.imag


def integrals(x: Float64, base: float | None, alpha: float) -> tuple[Float64, Float64]:
    """Real and imaginary part of the integral at distances x; base None is the power schedule."""
    if base is None and alpha == 1:
        half = np.sinc(x / (2 * np.pi))  # exp(i x / 2) sin(x / 2) / (x / 2)
        return np.cos(x / 2) * half, np.sin(x / 2) * half
    sizes, where = np.unique(abs(x), return_inverse=True)
    values = np.zeros((2, len(sizes)))
    values[0, sizes == 0] = 1.0
    closed = np.zeros(len(sizes), bool)
    if base is not None:
        closed = (sizes > 0) & ((abs(np.log(base)) > NEARLY_ONE) | (sizes * abs(np.log(base)) > MANY))
        values[:, closed] = exponential(sizes[closed], base) if closed.any() else 0.0
        rest = ~closed & (sizes > 0)
        values[:, rest] = nearly_one(sizes[rest], base)
    for number in np.flatnonzero(sizes) if base is None else ():
        values[:, number] = [quadrature(sizes[number], base, alpha, kind) for kind in ("cos", "sin")]
    found = values[:, where.reshape(x.shape)]
    return found[0], np.sign(x) * found[1]


def quadrature(x: float, base: float | None, alpha: float, kind: str) -> float:
    """``int_0^1 kind(x theta(t)) dt`` for x >= 0, to about 1e-12."""
    wave, quad = getattr(np, kind), scipy_of("integrate").quad
    options = {"epsabs": 1e-12, "epsrel": 1e-12, "limit": 400}

    def theta(t: float) -> float:
        return float(t**alpha if base is None else base**-t)

    if x == 0 or (base is None and alpha == 0):
        return float(wave(x))
    if base is not None or x <= 2 * np.pi:  # less than one turn
        return float(quad(lambda t: wave(x * theta(t)), 0, 1, **options)[0])
    # In u = theta the wave has one frequency. Below the first turn u**(1 / alpha - 1) is singular, and t is better.
    start = 0.0 if alpha <= 1 else 2 * np.pi / x
    begin = quad(lambda t: wave(x * theta(t)), 0, start ** (1 / alpha), **options)[0] if start else 0.0
    rest = quad(lambda u: u ** (1 / alpha - 1) / alpha, start, 1, weight=kind, wvar=x, maxp1=100, **options)[0]
    return float(begin + rest)
