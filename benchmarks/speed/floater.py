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
        theirs = NumpyFlow(p0, weights)
        # NumPy sums 2555 steps in float32 to numbers of size 36: its error is 1e-4, that of posenc 2e-6
        check("floater", posenc.floater(p0, *weights, N, out=out), theirs(), 3e-4)
        contenders: dict[str, Any] = {
            "posenc.floater(out=)": lambda p0=p0, out=out: posenc.floater(p0, *weights, N, out=out),
            "NumPy, buffers made before": theirs,
        }
        least = {"NumPy, buffers made before": 1.0}
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


class NumpyFlow:
    """The same steps in NumPy, with transposes and buffers made before."""

    def __init__(self, p0: np.ndarray, weights: list[np.ndarray]) -> None:
        self.p0, streams = p0, len(p0)
        w1, self.b1, w2, self.b2 = weights
        self.w1, self.w2 = np.ascontiguousarray(w1.T), np.ascontiguousarray(w2.T)
        self.x, self.a = np.empty((streams, C + 1), np.float32), np.empty((streams, C + 1), np.float32)
        self.k = [np.empty_like(p0) for _ in range(STAGES)]
        self.p, self.part, self.z = np.empty_like(p0), np.empty_like(p0), np.empty_like(p0)
        self.out = np.empty((streams, N, C), np.float32)

    def field(self, t: float, out: np.ndarray) -> None:
        self.x[:, C] = t
        np.matmul(self.x, self.w1, out=self.z)
        np.add(self.z, self.b1, out=self.z)
        np.maximum(self.z, 0, out=self.a[:, :C])
        self.a[:, C] = t
        np.matmul(self.a, self.w2, out=out)
        np.add(out, self.b2, out=out)

    def state(self, *terms: tuple[float, np.ndarray]) -> None:
        """Compute x = p + the sum of factor times slope."""
        x = self.x[:, :C]
        x[...] = self.p
        for factor, k in terms:
            np.multiply(k, np.float32(factor), out=self.part)
            np.add(x, self.part, out=x)

    def __call__(self) -> np.ndarray:
        d = 0.01 / SUBSTEPS
        k1, k2, k3, k4 = self.k
        self.p[...] = self.p0
        self.out[:, 0] = self.p
        for n in range(N - 1):
            for j in range(SUBSTEPS):
                t = 0.01 * (n + j / SUBSTEPS)
                self.state()
                self.field(t, k1)
                self.state((d / 3, k1))
                self.field(t + d / 3, k2)
                self.state((-d / 3, k1), (d, k2))
                self.field(t + 2 * d / 3, k3)
                self.state((d, k1), (-d, k2), (d, k3))
                self.field(t + d, k4)
                self.state((d / 8, k1), (3 * d / 8, k2), (3 * d / 8, k3), (d / 8, k4))
                self.p[...] = self.x[:, :C]
            self.out[:, n + 1] = self.p
        return self.out


def torch_flow(torch: Any, p0: np.ndarray, weights: list[np.ndarray]) -> Any:
    """The usual torch module, without gradients."""
    w1, b1, w2, b2 = map(torch.from_numpy, weights)
    start, d = torch.from_numpy(p0), 0.01 / SUBSTEPS
    linear, column = torch.nn.functional.linear, torch.ones(len(p0), 1)

    def h(t: float, p: Any) -> Any:
        time = column * t
        return linear(torch.cat([torch.relu(linear(torch.cat([p, time], -1), w1, b1)), time], -1), w2, b2)

    def solve() -> Any:
        with torch.no_grad():
            p, rows = start, [start]
            for n in range(N - 1):
                for j in range(SUBSTEPS):
                    t = 0.01 * (n + j / SUBSTEPS)
                    k1 = h(t, p)
                    k2 = h(t + d / 3, p + d / 3 * k1)
                    k3 = h(t + 2 * d / 3, p + d * (k2 - k1 / 3))
                    k4 = h(t + d, p + d * (k1 - k2 + k3))
                    p = p + d / 8 * (k1 + 3 * (k2 + k3) + k4)
                rows.append(p)
            return torch.stack(rows, -2)

    return solve


if __name__ == "__main__":
    main(__doc__, run)
