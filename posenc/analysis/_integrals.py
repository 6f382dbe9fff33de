"""Integrals of waves: the inner products of sinusoidal encodings with infinitely many pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import Float64
from .._core_api.door import fail

Complex128 = npt.NDArray[np.complex128]
Curve = Callable[[Float64], npt.ArrayLike]
"""A function of t that takes and returns an array (L,)."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
FIRST_INTERVALS = 32
TARGET = 1e-12
"""Error of an integral of numbers of size 1, apart from the rounding of the angles."""
HALVINGS = 128
"""Most halvings of an interval: a weight like ``t**-0.5`` needs 100 of them near 0."""
DISTANCES = 8
"""Distances that share their intervals: more take more memory, fewer more time."""

FEW_RADIANS = 100.0
"""Up to this range of angles the halving rule serves every base; the closed form divides its rounding by ln base."""
TINY = 1e-300
"""Powers of t below this are 1 for every t but 0."""
FAR = 40.0
"""Angles from which 32 nodes of Gauss and Laguerre give a wave's tail to 1e-15."""
TAIL_NODES, TAIL_WEIGHTS = np.polynomial.laguerre.laggauss(32)
UNIT_NODES, UNIT_WEIGHTS = (np.polynomial.legendre.leggauss(64) + np.array([[1.0], [0.0]])) / 2


def read_curve(argument: str, curve: Curve, t: Float64) -> Float64:
    """Return the values of a user's function at t."""
    values = read.data(argument, np.asarray(curve(t))).astype(np.float64)
    if values.shape not in ((), t.shape):
        fail(ValueError, argument, f"results of shape {values.shape}", f"{t.shape}, the shape of t")
    if not np.isfinite(values).all():
        bad = np.broadcast_to(~np.isfinite(values), t.shape)
        fail(ValueError, argument, f"NaN or infinity at t = {t[bad][0]}", "finite numbers")
    return np.broadcast_to(values, t.shape)


# ---- any theta(t): Gauss's rule on intervals that are halved where they must be ----


def integrate_wave(x: Float64, theta: Curve, weight: Curve | None = None) -> Complex128:
    """Return the integral of ``weight(t) exp(i x theta(t))`` over t in [0, 1] for each x (K,).

    An interval is done once its two halves, by 16 nodes each, change its integral by less than its share of the error.
    """
    out = np.zeros(len(x), np.complex128)
    order = np.argsort(abs(x))
    for start in range(0, len(x), DISTANCES):
        some = order[start : start + DISTANCES]
        out[some] = _integrate(x[some], theta, weight)
    return out


def _integrate(x: Float64, theta: Curve, weight: Curve | None) -> Complex128:
    edges = np.linspace(0.0, 1.0, FIRST_INTERVALS + 1)
    left, right = edges[:-1], edges[1:]
    whole, size, _ = _by_gauss(x, theta, weight, left, right)
    allowed = TARGET * size.sum()
    total = np.zeros(len(x), np.complex128)
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        left, right = np.stack([left, middle], 1).ravel(), np.stack([middle, right], 1).ravel()
        halves, _, rounding = _by_gauss(x, theta, weight, left, right)
        pairs = halves.reshape(len(x), -1, 2).sum(-1)
        error, width = abs(pairs - whole).max(0), (right - left)[::2]
        is_done = error <= allowed * np.maximum(width, 2.0**-8) * rounding.reshape(-1, 2).max(-1)
        total += pairs[:, is_done].sum(-1)
        if is_done.all():
            return total
        both = np.repeat(~is_done, 2)
        left, right, whole = left[both], right[both], halves[:, both]
    return fail(ValueError, "schedule or weights", f"no integral near t = {left[0]}", "an integrable function of t")


def _by_gauss(
    x: Float64, theta: Curve, weight: Curve | None, left: Float64, right: Float64
) -> tuple[Complex128, Float64, Float64]:
    """Return the integral over each interval (K, P), that of ``|weight|``, and the growth of errors by large angles."""
    half = (right - left)[:, None] / 2
    t = (left[:, None] + half * (NODES + 1)).ravel()
    angle = read_curve("schedule", theta, t).reshape(len(half), -1)
    factor = np.ones_like(t) if weight is None else read_curve("weights", weight, t)
    scaled = factor.reshape(angle.shape) * WEIGHTS * half
    integrals = (np.exp(1j * x[:, None, None] * angle) * scaled).sum(-1)
    rounding = 1 + 1e-3 * abs(x).max(initial=0) * abs(angle).max(-1)
    return integrals, abs(scaled).sum(-1), rounding


# ---- theta(t) = base**-t and t**alpha: with v = x theta(t), integrals of v**(s - 1) exp(i v) ----


def integrate_power(x: Float64, alpha: float) -> Complex128:
    """Return the integral of ``exp(i x t**alpha)`` over t in [0, 1] for each x (K,), at least 0.

    The part up to an angle `far` is the same for all distances, but for the scale of t.
    """
    if alpha < TINY:
        constant: Complex128 = np.exp(1j * x)
        return constant
    s = 1 / alpha
    far = FAR + 2 * s
    distinct, index = np.unique(np.minimum(x, far), return_inverse=True)
    out = integrate_wave(distinct, lambda t: t**alpha)[index]
    is_far = x > far
    v = x[is_far]
    tails = (far / v) ** (s - 1) * _tail(np.array([far]), s) - _tail(v, s)
    out[is_far] = (far / v) ** s * out[is_far] + s / v * tails
    return out


def integrate_geometric(x: Float64, base: float) -> Complex128:
    """Return the integral of ``exp(i x base**-t)`` over t in [0, 1] for each x (K,), at least 0."""
    log_base = np.log(base)
    with np.errstate(over="ignore"):
        end = x / base
    out = np.empty(x.shape, np.complex128)
    has_few = abs(x - end) <= FEW_RADIANS
    out[has_few] = integrate_wave(x[has_few], lambda t: base**-t)
    many = ~has_few
    log_x = np.log(x[many])
    difference = _exponential_integral(x[many], log_x) - _exponential_integral(end[many], log_x - log_base)
    out[many] = 1 + difference / (log_base or 1)
    return out


def _exponential_integral(v: Float64, log_v: Float64) -> Complex128:
    """Return the integral of ``(exp(i u) - 1) / u`` over u in [0, v] for each v (K,)."""
    near = np.minimum(v, FAR)[:, None]
    integral: Complex128 = np.expm1(1j * near * UNIT_NODES) / UNIT_NODES @ UNIT_WEIGHTS
    far = np.clip(v, FAR, 1e300)  # the logarithm knows numbers beyond float64
    rest = _tail(np.array([FAR]), 0) / FAR - _tail(far, 0) / far - (log_v - np.log(FAR))
    return integral + np.where(v > FAR, rest, 0)


def _tail(v: Float64, s: float) -> Complex128:
    """Return the integral of ``(u / v)**(s - 1) exp(i u)`` over u from v (K,) to infinity, on the path u = v + i p."""
    tail: Complex128 = 1j * np.exp(1j * v) * ((1 + 1j * TAIL_NODES / v[:, None]) ** (s - 1) @ TAIL_WEIGHTS)
    return tail
