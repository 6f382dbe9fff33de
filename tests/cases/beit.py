"""BEiT: Swin's table with rows for a class token."""

from __future__ import annotations

import numpy as np

from . import at, ulps
from .bias import BiasCase, on_positions


def beit(q, k, table, height, width):
    """The authors' gen_relative_position_index: Swin's index, and for position 0 the last three rows of the table."""
    q, k = (np.asarray(p, np.int64) for p in (q, k))
    (y, x), (v, u) = (np.divmod(np.maximum(p - 1, 0), width) for p in (q, k))
    index = (y[..., :, None] - v[..., None, :] + height - 1) * (2 * width - 1)
    index += x[..., :, None] - u[..., None, :] + width - 1
    from_class, to_class = np.broadcast_arrays(q[..., :, None] == 0, k[..., None, :] == 0)
    index[from_class] = len(table) - 3
    index[to_class] = len(table) - 2
    index[from_class & to_class] = len(table) - 1
    return np.moveaxis(table[index], -1, -3)


def make_beit(rng, n):
    height = 11 + n // 10
    return {
        "table": rng.standard_normal(((2 * height - 1) * 19 + 3, 3)), "height": height, "width": 10, "n": n, "m": n + 2,
    }  # fmt: skip


def make_beit_placed(rng, n):
    positions = {"q_positions": rng.integers(0, 12, n), "k_positions": rng.integers(0, 12, n + 2)}
    return {**make_beit(rng, n), **positions}


CASES = [
    BiasCase(
        # a number of the table, rounded to storage
        function="beit", oracle=on_positions(beit), tolerance=ulps(0.5), make=make_beit, axes={"table": "k! h"},
        real=lambda rng: {"table": rng.standard_normal((27 * 27 + 3, 12)), "height": 14, "width": 14, "n": 197},
        gradients=at("table"),
    ),
    BiasCase(
        function="beit", label="placed", oracle=on_positions(beit), tolerance=ulps(0.5), make=make_beit_placed,
        real=lambda rng: {
            "table": rng.standard_normal((27 * 27 + 3, 12)), "height": 14, "width": 14, "n": 1,
            "q_positions": np.zeros(1, int), "k_positions": np.arange(197), "m": 197,
        },
        axes={"table": "k! h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("table"),
    ),
]  # fmt: skip
