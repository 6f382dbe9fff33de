"""Integrals of a wave whose phase is any function: Gauss's rule on intervals that are halved where they must be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import Array, Float64, as_data, fail

Complex128 = npt.NDArray[np.complex128]
Curve = Callable[[Float64], npt.ArrayLike]
"""A function of t that takes and returns an array (L,)."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
FIRST_INTERVALS = 32
TARGET = 1e-12
"""Error of an integral of numbers of size 1, apart from the rounding of the angles."""
HALVINGS = 128
"""Most halvings of an interval: a weight like ``t**-0.5`` needs 100 of them near 0."""
BLOCK_NUMBERS = 1 << 20
"""Complex numbers that are held in memory at a time."""


def read_curve(argument: str, curve: Curve, t: Float64) -> Float64:
    """Return the values of a user's function at t."""
    values = as_data(argument, np.asarray(curve(t))).astype(np.float64)
    if values.shape not in ((), t.shape):
        fail(ValueError, argument, f"results of shape {values.shape}", f"{t.shape}, the shape of t")
    if not np.isfinite(values).all():
        bad = np.broadcast_to(~np.isfinite(values), t.shape)
        fail(ValueError, argument, f"NaN or infinity at t = {t[bad][0]}", "finite numbers")
    return np.broadcast_to(values, t.shape)


def integrate_wave(x: Float64, theta: Curve, weight: Curve | None) -> Complex128:
    """Return the integral of ``weight(t) exp(i x theta(t))`` over t in [0, 1] for each x (K,).

    An interval is done once its two halves, by 16 nodes each, change its integral by less than its share of the error.
    """
    out = np.zeros(len(x), np.complex128)
    order = np.argsort(abs(x))
    block = BLOCK_NUMBERS // (8 * FIRST_INTERVALS * len(NODES))
    for start in range(0, len(x), block):
        some = order[start : start + block]
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
        width = (right - left)[::2]
        error = abs(pairs - whole).max(0)
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
    angle = read_curve("schedule", theta, t)
    factor: Array = np.ones_like(t) if weight is None else read_curve("weights", weight, t)
    scaled = factor.reshape(half.shape[0], -1) * WEIGHTS * half
    out = np.empty((len(x), len(half)), np.complex128)
    rows = max(1, BLOCK_NUMBERS // t.size)
    for start in range(0, len(x), rows):
        some = slice(start, start + rows)
        wave = np.exp(1j * x[some, None] * angle).reshape(-1, *scaled.shape)
        out[some] = (wave * scaled).sum(-1)
    rounding = 1 + 1e-3 * abs(x).max(initial=0) * abs(angle).reshape(scaled.shape).max(-1)
    return out, abs(scaled).sum(-1), rounding
