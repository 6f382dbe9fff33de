"""Inner products of sinusoidal encodings by distance: the sums over pairs, and the integrals that they tend to."""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from .. import frequencies as frequencies_of
from .. import sinusoidal
from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.door import door, fail, fail_value
from .arguments import PairFrequencies, read_finite, read_pairs, read_places
from .integrals import Complex128, Curve, integrate_geometric, integrate_power, integrate_wave, read_curve

Schedule = Literal["geometric", "power"]

BLOCK_NUMBERS = 1 << 20
"""Sines and cosines that are held in memory at a time."""


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


def _wave_sums(positions: Array, frequencies: Float64, weights: Float64) -> Complex128:
    """Compute ``sum_k h[k] exp(i p w[k])`` for each position p.

    Equal positions are computed once, because a matrix of differences repeats most of its values.
    """
    distinct, index = np.unique(positions, return_inverse=True)
    e = len(frequencies)
    block = max(BLOCK_NUMBERS // (2 * e), 1)
    sums = np.empty(len(distinct), np.complex128)
    for start in range(0, len(distinct), block):
        rows = slice(start, start + block)
        table = sinusoidal(
            distinct[rows], 2 * e, frequencies=frequencies, layout="half", order="cossin", dtype=np.float64
        )
        sums.real[rows], sums.imag[rows] = table[:, :e] @ weights, table[:, e:] @ weights
    return sums[index.reshape(positions.shape)]


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
        w, in radians per position. An attention_factor is refused.
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
    w = read_pairs("frequencies", frequencies)
    factor = getattr(frequencies, "attention_factor", 1.0)
    if factor != 1.0:
        fail(
            ValueError, "frequencies", f"attention_factor {factor}", "frequencies.inv_freq, because nothing is rotated"
        )
    first, second = read_places("m", m), read_places("n", n)
    try:
        np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        fail(ValueError, "m", f"shape {first.shape}", f"one that broadcasts with n, {second.shape}")
    differences = np.asarray(first - second)
    if weights is None:
        product: np.float64 | Float64 = _wave_sums(differences, w, np.ones_like(w)).real[()]
        return product
    if isinstance(weights, np.ndarray) and weights.ndim == 2:
        return _bilinear_form(first, second, w, weights)[()]
    if not isinstance(weights, list | tuple) or len(weights) != 2:
        expected = "a pair (sine, cosine), or an array H"
        fail(ValueError, "weights", "neither two entries nor two axes", expected)
    sine, cosine = (read_pairs("weights", part, len(w)) for part in weights)
    difference = _wave_sums(differences, w, (cosine + sine) / 2).real
    total = _wave_sums(np.asarray(first + second), w, (cosine - sine) / 2).real
    return InnerProduct((difference + total)[()], difference[()], total[()])


def _bilinear_form(m: Array, n: Array, w: Float64, matrix: Array) -> Float64:
    """Compute ``p_m' H p_n``."""
    channels = 2 * len(w)
    h = read_finite("weights", matrix)
    if h.shape != (channels, channels):
        fail(ValueError, "weights", f"shape {h.shape}", f"({channels}, {channels}), channels by channels")
    left, right = (
        sinusoidal(x.reshape(-1), channels, frequencies=w, dtype=np.float64).reshape(*x.shape, channels) for x in (m, n)
    )
    return np.asarray(np.einsum("...c,...c->...", left, right @ h.T))


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
        Width of the encoding, for the mean over its pairs. None is the integral.
    weights : array (ceil(dim / 2),) or function, optional
        h_k for each pair, or a function h(t) of an array t (L,). They are not normalised. By default they are 1.

    Returns
    -------
    complex128 or ndarray of complex128
        The shape of `distances`; 1 at distance 0 without weights. The real part times dim / 2 is the inner product of
        two encodings.

    Raises
    ------
    TypeError, ValueError
        A distance is not finite, `base` is not positive, or `alpha` is negative; a function whose result is not finite,
        or is neither one number nor in the shape of t; weights that are an array without `dim`, or do not fit it.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 11, and 14 with weights: ``h_k`` is the mean of two neighbouring entries
    of a diagonal matrix H. With u = x base**-t the integral of the geometric schedule is
    ``(Ci(x) - Ci(x / base) + i (Si(x) - Si(x / base))) / ln base``. The integral of the power schedule is
    ``int_0^1 exp(i x u) u**(1 / alpha - 1) / alpha du``. Both are exact to 1e-13 at all distances up to 2**53; far
    integrals of a base within 0.1 of 1 are divided by its small logarithm, with their rounding errors. Integrals of
    functions are computed by Gauss's rule with 16 nodes on intervals that are halved until the halves agree to 1e-12;
    their time grows with the turns of the wave, x times the range of theta.

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
        read.choice("schedule", schedule, ("geometric", "power"))
    x = read_places("distances", distances)
    base, exponent = read.positive("base", base), read.number("alpha", alpha)
    if exponent < 0:
        fail_value(ValueError, "alpha", alpha, "at least 0")
    if dim is not None:
        width = read.index("dim", dim, 1)
        t = np.arange((width + 1) // 2) * 2 / width
        if callable(schedule):
            w = read_curve("schedule", schedule, t)
        else:
            w = frequencies_of(width, base=base, schedule=schedule, alpha=exponent)
        out = _wave_sums(x, w, _pair_weights(weights, t) / len(w))
    elif weights is not None and not callable(weights):
        fail(TypeError, "weights", "an array", "a function h(t), because dim is None")
    else:
        distinct, index = np.unique(abs(x.astype(np.float64)), return_inverse=True)
        of_base = schedule == "geometric"
        if callable(schedule) or weights is not None:
            theta = schedule if callable(schedule) else (lambda t: base**-t) if of_base else (lambda t: t**exponent)
            integral = integrate_wave(distinct, theta, weights)
        else:
            integral = integrate_geometric(distinct, base) if of_base else integrate_power(distinct, exponent)
            integral[distinct == 0] = 1
        of_size = integral[index.reshape(x.shape)]
        out = np.where(x < 0, of_size.conj(), of_size)
    result: np.complex128 | Complex128 = out[()]
    return result


def _pair_weights(weights: npt.ArrayLike | Curve | None, t: Float64) -> Float64:
    """Return h_k for each pair."""
    if weights is None:
        return np.ones(len(t))
    if callable(weights):
        return read_curve("weights", weights, t)
    return read_pairs("weights", weights, len(t))
