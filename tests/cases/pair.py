"""Biases that read both positions, and Sandwich, which is computed from both."""

from __future__ import annotations

import numpy as np

from . import at, ulp, ulps
from .bias import REAL, BiasCase, on_positions


def fire(q, k, w1, b1, w2, b2, c, threshold):
    """Li et al. 2024, equations 2 and 3: f(psi(i - j) / (psi(max(i, L)) + eps)), psi(x) = log(1 + |c x|)."""
    distance = np.abs(k[..., None, :] - q[..., :, None])
    length = np.maximum(q, np.abs(threshold))[..., :, None]
    z = np.log1p(np.abs(c) * distance) / (np.log1p(np.abs(c) * length) + 1e-6)
    hidden = np.maximum(z[..., None] * w1[:, 0] + b1, 0)
    return np.moveaxis(hidden @ w2.T + b2, -1, -3)


def fire_tolerance(expected, work, arguments):
    """The logarithms and the quotient are good to 6 ulp of double, each product and sum of the W terms to one, at the
    size of the terms; one rounding to the working precision."""
    w1, b1, w2, b2 = (np.abs(arguments[name]) for name in ("w1", "b1", "w2", "b2"))
    z = 40.0  # log(1 + ..) of the largest distance over the smallest divisor here
    size = (w2 @ (w1[:, 0] * z + b1) + b2).max()
    return tuple((8 + 2 * len(b1)) * ulp(size, np.dtype(np.float64)) + ulp(e, work) for e in expected)


def swin(q, k, table, height, width):
    """Liu et al. 2021, equation 4: B taken from a (2h-1) x (2w-1) matrix by the difference of rows and columns."""
    grid = table.reshape(2 * height - 1, 2 * width - 1, -1)
    (y, x), (v, u) = (np.divmod(p.astype(np.int64), width) for p in (q, k))
    rows = y[..., :, None] - v[..., None, :] + height - 1
    columns = x[..., :, None] - u[..., None, :] + width - 1
    return np.moveaxis(grid[rows, columns], -1, -3)


def fox(q, k, log_forget):
    """Lin et al. 2025, equation 5: the sum of log f over l = j + 1 .. i; its negative where j > i."""
    sums = np.cumsum(log_forget, axis=-1)
    shape = (*np.broadcast_shapes(sums.shape[:-2], q.shape[:-1], k.shape[:-1]), sums.shape[-2])
    whole = np.broadcast_to(sums, (*shape, sums.shape[-1]))
    of_q, of_k = (
        np.take_along_axis(whole, np.broadcast_to(p.astype(np.int64)[..., None, :], (*shape, p.shape[-1])), -1)
        for p in (q, k)
    )
    return of_q[..., :, None] - of_k[..., None, :]


def fox_tolerance(expected, work, arguments):
    """The same sums in the same order, in double; one rounding."""
    total = np.abs(arguments["log_forget"]).sum(-1).max(initial=0)
    return tuple(4 * ulp(total, np.dtype(np.float64)) + ulp(e, work) for e in expected)


def sandwich(q, k, heads, dim):
    """Chi et al. 2023, section 4: (sum over t = 1 .. d/2 of cos((i - j) / 10000**(2t/d)) - d/2) / (8h/H), h from 1."""
    rel = (k[..., None, :] - q[..., :, None]).astype(np.longdouble)
    sums = sum(np.cos(rel * np.longdouble(10000) ** (-np.longdouble(2 * t) / dim)) for t in range(1, dim // 2 + 1))
    slopes = 8 * np.arange(1, heads + 1) / heads
    return np.asarray(np.expand_dims(sums - dim // 2, -3) / slopes[:, None, None], np.float64)


def sandwich_tolerance(expected, work, arguments):
    """2 dim products and sums in double of numbers of at most 1, over the smallest divisor 8 / H; one rounding."""
    size = arguments["dim"] * arguments["heads"] / 8
    return tuple(2 * arguments["dim"] * 2.0**-53 * size + ulp(e, work) for e in expected)


def make_fire(rng, n):
    width = 5
    return {
        "w1": rng.standard_normal((width, 1)), "b1": rng.standard_normal(width), "w2": rng.standard_normal((3, width)),
        "b2": rng.standard_normal(3), "c": np.array(0.7), "threshold": np.array(-3.3), "n": n, "m": n + 2,
    }  # fmt: skip


def make_fire_placed(rng, n):
    places = {"q_positions": rng.uniform(0, 50, n), "k_positions": rng.integers(-50, 50, n + 2)}
    return {**make_fire(rng, n), **places, "c": np.array(-0.2), "threshold": np.array(20.2)}


def real_fire(rng, **options):
    return {
        "w1": rng.standard_normal((32, 1)), "b1": rng.standard_normal(32), "w2": rng.standard_normal((8, 32)),
        "b2": rng.standard_normal(8), "c": 0.1, "threshold": 512.0, "n": 512, **options,
    }  # fmt: skip


FIRE_AXES = {"w1": "w 1", "b1": "w", "w2": "h w", "b2": "h"}
FIRE_GRADIENTS = at("w1", "b1", "w2", "b2", "c", "threshold")


def make_swin(rng, n):
    height = 11 + n // 10
    table = rng.standard_normal(((2 * height - 1) * 19, 3))
    return {"table": table, "height": height, "width": 10, "n": n, "m": n + 2}


def make_swin_placed(rng, n):
    return {
        **make_swin(rng, n), "q_positions": rng.integers(0, 110, n), "k_positions": rng.integers(0, 110, (n + 2)),
    }  # fmt: skip


def make_fox(rng, n):
    return {"log_forget": -rng.uniform(0, 2, (3, n + 4)), "n": n, "m": n + 2}


def make_fox_placed(rng, n):
    return {
        "log_forget": -rng.uniform(0, 2, (2, 3, n + 4)), "n": n, "m": n + 2,
        "q_positions": rng.integers(0, n + 4, n), "k_positions": rng.integers(0, n + 4, (2, n + 2)),
    }  # fmt: skip


CASES = [
    BiasCase(
        function="fire", oracle=on_positions(fire), tolerance=fire_tolerance, make=make_fire, axes=FIRE_AXES,
        real=real_fire, gradients=FIRE_GRADIENTS,
    ),
    BiasCase(
        function="fire", label="placed", oracle=on_positions(fire), tolerance=fire_tolerance, make=make_fire_placed,
        real=lambda rng: real_fire(rng, q_positions=np.arange(512) * 2),
        axes={**FIRE_AXES, "q_positions": "n!", "k_positions": "m!"}, gradients=FIRE_GRADIENTS,
    ),
    BiasCase(
        # a number of the table, rounded to storage
        function="swin", oracle=on_positions(swin), tolerance=ulps(0.5), make=make_swin, axes={"table": "k! h"},
        real=lambda rng: {
            "table": rng.standard_normal((63 * 63, 32)), "height": 32, "width": 32, "n": 1024,
        },
        gradients=at("table"),
    ),
    BiasCase(
        function="swin", label="placed", oracle=on_positions(swin), tolerance=ulps(0.5), make=make_swin_placed,
        real=lambda rng: {
            "table": rng.standard_normal((13 * 13, 32)), "height": 7, "width": 7, "n": 49, "k_positions": np.arange(49),
        },
        axes={"table": "k! h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("table"),
    ),
    BiasCase(
        function="fox", oracle=on_positions(fox), tolerance=fox_tolerance, make=make_fox, axes={"log_forget": "h t"},
        real=lambda rng: {"log_forget": -rng.uniform(0, 1, (32, 2048)), **REAL}, gradients=at("log_forget"),
    ),
    BiasCase(
        function="fox", label="placed", oracle=on_positions(fox), tolerance=fox_tolerance, make=make_fox_placed,
        real=lambda rng: {"log_forget": -rng.uniform(0, 1, (32, 2048)), **REAL, "q_positions": np.arange(2048)},
        axes={"log_forget": "b h t", "q_positions": "n!", "k_positions": "b m!"}, gradients=at("log_forget"),
    ),
    BiasCase(
        function="sandwich", oracle=on_positions(sandwich), tolerance=sandwich_tolerance,
        make=lambda rng, n: {"heads": 3, "dim": 10, "n": n, "m": n + 2},
        real=lambda rng: {"heads": 32, "dim": 64, **REAL},
    ),
    BiasCase(
        function="sandwich", label="placed", oracle=on_positions(sandwich), tolerance=sandwich_tolerance,
        make=lambda rng, n: {
            "heads": 3, "dim": 10, "n": n, "m": n + 2, "q_positions": rng.uniform(-50, 50, n),
            "k_positions": rng.integers(-50, 50, n + 2),
        },
        real=lambda rng: {"heads": 8, "dim": 64, **REAL, "k_positions": np.arange(2048) * 3},
        axes={"q_positions": "n!", "k_positions": "m!"},
    ),
]  # fmt: skip
