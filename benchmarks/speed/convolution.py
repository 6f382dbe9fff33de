"""Time depthwise convolutions and their gradients against torch, in both of torch's layouts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc

SEQUENCES = ((8, 1024, 512, 3), (8, 1024, 512, 31), (8, 1024, 512, 128))
GRIDS = ((8, 14, 384, 3), (8, 56, 384, 3))


def run(report: Report) -> None:
    torch = peer("torch")
    for b, n, d, taps in SEQUENCES:
        x, kernel, bias = random((b, n, d)), random((d, taps), seed=1), random((d,), seed=2)
        grad = random((b, n, d), seed=3)
        options: dict[str, Any] = {"left": taps // 2}
        contest(report, f"conv_position B={b} N={n} d={d} taps={taps}", torch, x, kernel, bias, grad, (n,), options)
    for b, side, d, taps in GRIDS:
        n = side * side
        x, kernel, bias = random((b, n, d)), random((d, taps, taps), seed=1), random((d,), seed=2)
        grad = random((b, n, d), seed=3)
        options = {"height": side, "width": side, "residual": False}
        what = f"conv_position_2d B={b} {side}x{side} d={d} taps={taps}x{taps}"
        contest(report, what, torch, x, kernel, bias, grad, (side, side), options)


def contest(
    report: Report,
    what: str,
    torch: Any,
    x: Any,
    kernel: Any,
    bias: Any,
    grad: Any,
    grid: tuple[int, ...],
    options: dict[str, Any],
) -> None:
    """Time forward and gradient.

    torch's own layout, (B, d, N), is made before the timing starts. Its channels-last layout is the memory that posenc
    reads.
    """
    forward, backward = (
        (posenc.conv_position, posenc.conv_position_vjp)
        if len(grid) == 1
        else (posenc.conv_position_2d, posenc.conv_position_2d_vjp)
    )
    out, copied = random(x.shape, seed=4), random(x.shape, seed=5)
    ours: dict[str, Any] = {
        "posenc(out=)": lambda: forward(x, kernel, bias, out=out, **options),
        "copy": lambda: np.copyto(copied, x),
    }
    gradients: dict[str, Any] = {"posenc vjp": lambda: backward(grad, x, kernel, bias, **options)}
    if torch:
        conv = torch.nn.functional.conv1d if len(grid) == 1 else torch.nn.functional.conv2d
        weight, offset = torch.from_numpy(kernel[:, None]), torch.from_numpy(bias)
        pads = tuple(taps // 2 for taps in kernel.shape[1:])

        def apply(data: Any, w: Any, b: Any) -> Any:
            """Convolve; with an even kernel the last output is dropped."""
            result = conv(data, w, b, padding=pads, groups=len(bias))
            return result[tuple(slice(0, length) for length in (*result.shape[:2], *grid))]

        last = torch.from_numpy(x).unflatten(1, grid).movedim(-1, 1)
        first, grad_last = last.contiguous(), torch.from_numpy(grad).unflatten(1, grid).movedim(-1, 1)
        theirs = apply(first, weight, offset).flatten(2).transpose(1, 2).numpy()
        check(what, forward(x, kernel, bias, **options), theirs, 1e-5 * kernel[0].size)

        def differentiate(data: Any, cotangent: Any) -> Any:
            """Build the graph once, so that only the backward part is timed."""
            leaves = [t.detach().requires_grad_() for t in (data, weight, offset)]
            result = apply(*leaves)
            return lambda: torch.autograd.grad(result, leaves, cotangent, retain_graph=True)

        ours |= {
            "torch (B, d, N)": lambda: apply(first, weight, offset),
            "torch channels last": lambda: apply(last, weight, offset),
        }
        gradients |= {
            "torch (B, d, N) backward": differentiate(first, grad_last.contiguous()),
            "torch channels last backward": differentiate(last, grad_last),
        }
    goals = dict.fromkeys([name for name in ours if name.startswith("torch")], 1.0)
    report.time(what, ours, least=goals)
    report.time(what + " gradient", gradients)


if __name__ == "__main__":
    main(__doc__, run)
