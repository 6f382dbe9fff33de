"""Time recurrent encodings against torch's recurrent layers and a NumPy loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc

C, N = 256, 512


def run(report: Report) -> None:
    torch = peer("torch")
    for cell in ("gru", "tanh"):
        gates = 3 if cell == "gru" else 1
        weight = random((gates * C, C), seed=1) / C**0.5
        bias = random((2, 3 * C) if cell == "gru" else (C,), seed=2)
        for streams in (1, 18):
            p0 = random((streams, C), seed=3)
            out = np.empty((streams, N, C), np.float32)
            loop = numpy_gru if cell == "gru" else numpy_tanh
            ours = posenc.recurrent(p0, weight, bias, N, cell=cell, include_p0=False, out=out)
            # rounding errors may grow from row to row, so only the first rows are compared
            check(f"recurrent {cell}", ours[:, :8], loop(p0, weight, bias, 8), 2e-5)
            contenders: dict[str, Any] = {
                "posenc.recurrent(out=)": lambda p0=p0, out=out, weight=weight, bias=bias, cell=cell: posenc.recurrent(
                    p0, weight, bias, N, cell=cell, include_p0=False, out=out
                ),
                "NumPy loop": lambda p0=p0, weight=weight, bias=bias, loop=loop: loop(p0, weight, bias, N),
            }
            least = {}
            if torch:
                name = "torch.nn.GRU" if cell == "gru" else "torch.nn.RNN"
                contenders[name] = torch_layer(torch, cell, p0, weight, bias, ours)
                if cell == "gru" and streams == 1:
                    least[name] = 2.0
            report.time(f"recurrent {cell} float32 C={C} n={N}, {streams} stream(s)", contenders, least=least)
            grad = random((streams, N, C), seed=4)
            report.time(
                f"recurrent_vjp {cell} float32 C={C} n={N}, {streams} stream(s)",
                {
                    "posenc.recurrent_vjp": lambda p0=p0, grad=grad, weight=weight, bias=bias, cell=cell: (
                        posenc.recurrent_vjp(grad, p0, weight, bias, N, cell=cell, include_p0=False)
                    ),
                    "posenc.recurrent(out=)": contenders["posenc.recurrent(out=)"],
                },
            )


def numpy_tanh(p: np.ndarray, weight: np.ndarray, bias: np.ndarray, n: int) -> np.ndarray:
    out, w = np.empty((len(p), n, C), np.float32), weight.T
    for k in range(n):
        p = np.tanh(p @ w + bias)
        out[:, k] = p
    return out


def numpy_gru(p: np.ndarray, weight: np.ndarray, bias: np.ndarray, n: int) -> np.ndarray:
    out, w = np.empty((len(p), n, C), np.float32), weight.T
    for k in range(n):
        y = p @ w + bias[1]
        gates = 1 / (1 + np.exp(-(y[:, : 2 * C] + bias[0, : 2 * C])))
        r, z = gates[:, :C], gates[:, C:]
        m = np.tanh(bias[0, 2 * C :] + r * y[:, 2 * C :])
        p = m + z * (p - m)
        out[:, k] = p
    return out


def torch_layer(torch: Any, cell: str, p0: np.ndarray, weight: np.ndarray, bias: np.ndarray, ours: np.ndarray) -> Any:
    """Make nn.GRU or nn.RNN with these weights, to run on zeros in inference mode."""
    layer = (torch.nn.GRU if cell == "gru" else torch.nn.RNN)(1, C, batch_first=True)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.from_numpy(weight))
        sides = bias if cell == "gru" else np.stack([bias, 0 * bias])
        layer.bias_ih_l0.copy_(torch.from_numpy(sides[0]))
        layer.bias_hh_l0.copy_(torch.from_numpy(sides[1]))
    zeros, start = torch.zeros(len(p0), N, 1), torch.from_numpy(p0)[None]

    def run() -> Any:
        with torch.inference_mode():
            return layer(zeros, start)[0]

    check(cell, ours[:, :8], run()[:, :8].numpy(), 2e-5)
    return run


if __name__ == "__main__":
    main(__doc__, run)
