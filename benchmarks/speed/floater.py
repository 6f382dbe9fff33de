"""Time FLOATER at the size of its paper against NumPy and torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc

C, N, SUBSTEPS, STAGES = 512, 512, 5, 4
EVALUATIONS = (N - 1) * SUBSTEPS * STAGES


def run(report: Report) -> None:
    torch = peer("torch")
    weights = [random(s, seed=i) / C**0.5 for i, s in enumerate([(C, C + 1), (C,), (C, C + 1), (C,)])]
    for streams in (1, 18):
        p0 = random((streams, C), seed=9)
        out = np.empty((streams, N, C), np.float32)
        theirs = numpy_flow(p0, weights)
        # NumPy sums 2555 steps in float32 to numbers of size 36: its error is 1e-4, that of posenc 2e-6
        check("floater", posenc.floater(p0, *weights, N, out=out), theirs(), 3e-4)
        contenders: dict[str, Any] = {
            "posenc.floater(out=)": lambda p0=p0, out=out: posenc.floater(p0, *weights, N, out=out),
            "NumPy eager": theirs,
        }
        least = {"NumPy eager": 1.0}
        if torch:
            contenders["torch eager"] = torch_flow(torch, p0, weights)
            if streams > 1:
                least["torch eager"] = 1.2

        def note(seconds: float, streams: int = streams) -> str:
            rate = 4e-9 * C * C * streams * EVALUATIONS / seconds
            return f"{seconds / EVALUATIONS * 1e6:.1f} us per evaluation, {rate:.0f} Gflop/s"

        report.time(f"floater float32 C=E={C} n={N}, {streams} stream(s)", contenders, least=least, note=note)

        grad = random((streams, N, C), seed=5)
        report.time(
            f"floater_vjp float32 C=E={C} n={N}, {streams} stream(s)",
            {
                "posenc.floater_vjp": lambda p0=p0, grad=grad: posenc.floater_vjp(grad, p0, *weights, N),
                "posenc.floater(out=)": lambda p0=p0, out=out: posenc.floater(p0, *weights, N, out=out),
            },
        )


def flow(linear: Any, column: Any, concatenate: Any, stack: Any, p: Any, weights: Any) -> Any:
    """The usual code: steps of Runge and Kutta's 3/8 rule, with the functions of NumPy or of torch."""
    w1, b1, w2, b2 = weights
    rows, d = [p], 0.01 / SUBSTEPS

    def h(t: float, p: Any) -> Any:
        time = column * t
        hidden = linear(concatenate([p, time], -1), w1, b1).clip(0)
        return linear(concatenate([hidden, time], -1), w2, b2)

    for n in range(N - 1):
        for j in range(SUBSTEPS):
            t = 0.01 * (n + j / SUBSTEPS)
            k1 = h(t, p)
            k2 = h(t + d / 3, p + d / 3 * k1)
            k3 = h(t + 2 * d / 3, p + d * (k2 - k1 / 3))
            k4 = h(t + d, p + d * (k1 - k2 + k3))
            p = p + d / 8 * (k1 + 3 * (k2 + k3) + k4)
        rows.append(p)
    return stack(rows, -2)


def numpy_flow(p0: np.ndarray, weights: list[np.ndarray]) -> Any:
    """The solver in NumPy."""
    column = np.ones((len(p0), 1), np.float32)
    return lambda: flow(lambda x, w, b: x @ w.T + b, column, np.concatenate, np.stack, p0, weights)


def torch_flow(torch: Any, p0: np.ndarray, weights: list[np.ndarray]) -> Any:
    """The solver in torch, without gradients."""
    given, column = [torch.from_numpy(w) for w in weights], torch.ones(len(p0), 1)

    def solve() -> Any:
        with torch.no_grad():
            return flow(torch.nn.functional.linear, column, torch.cat, torch.stack, torch.from_numpy(p0), given)

    return solve


if __name__ == "__main__":
    main(__doc__, run)
