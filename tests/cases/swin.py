"""Swin: a table indexed by the differences of rows and of columns of an image window."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import BiasCase, on_positions


def swin(q, k, table, height, width):
    """Liu et al. 2021, equation 4: an entry of a (2h-1) x (2w-1) matrix by the differences of rows and of columns."""
    grid = table.reshape(2 * height - 1, 2 * width - 1, -1)
    (y, x), (v, u) = (np.divmod(p.astype(np.int64), width) for p in (q, k))
    rows = y[..., :, None] - v[..., None, :] + height - 1
    columns = x[..., :, None] - u[..., None, :] + width - 1
    return np.moveaxis(grid[rows, columns], -1, -3)


def make_swin(rng, n):
    height = 11 + n // 10
    table = rng.standard_normal(((2 * height - 1) * 19, 3))
    return {"table": table, "height": height, "width": 10, "n": n, "m": n + 2}


def make_swin_placed(rng, n):
    return {
        **make_swin(rng, n), "q_positions": rng.integers(0, 110, n), "k_positions": rng.integers(0, 110, (n + 2)),
    }  # fmt: skip


CASES = [
    BiasCase(
        # a number of the table, rounded to the storage dtype
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
]  # fmt: skip
