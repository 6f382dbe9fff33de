"""FoX: sums of the logarithms of forget gates."""

from __future__ import annotations

import numpy as np

from . import at, ulp
from .bias import REAL, BiasCase, on_positions


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
    """The same sums in the same order in float64, and one rounding."""
    total = np.abs(arguments["log_forget"]).sum(-1).max(initial=0)
    return tuple(4 * ulp(total, np.dtype(np.float64)) + ulp(e, work) for e in expected)


def make_fox(rng, n):
    return {"log_forget": -rng.uniform(0, 2, (3, n + 4)), "n": n, "m": n + 2}


def make_fox_placed(rng, n):
    return {
        "log_forget": -rng.uniform(0, 2, (2, 3, n + 4)), "n": n, "m": n + 2,
        "q_positions": rng.integers(0, n + 4, n), "k_positions": rng.integers(0, n + 4, (2, n + 2)),
    }  # fmt: skip


CASES = [
    BiasCase(
        function="fox", oracle=on_positions(fox), tolerance=fox_tolerance, make=make_fox, axes={"log_forget": "h t"},
        real=lambda rng: {"log_forget": -rng.uniform(0, 1, (32, 2048)), **REAL}, gradients=at("log_forget"),
    ),
    BiasCase(
        function="fox", label="placed", oracle=on_positions(fox), tolerance=fox_tolerance, make=make_fox_placed,
        real=lambda rng: {"log_forget": -rng.uniform(0, 1, (32, 2048)), **REAL, "q_positions": np.arange(2048)},
        axes={"log_forget": "b h t", "q_positions": "n!", "k_positions": "b m!"}, gradients=at("log_forget"),
    ),
]  # fmt: skip
