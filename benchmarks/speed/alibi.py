"""Time ALiBi as a matrix: the strided view, the dense matrix, and the addition of each to logits."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc


def run(report: Report) -> None:
    view(report)
    dense(report)
    added(report)


def view(report: Report) -> None:
    """Measure the growth of the peak of this process, before anything large is allocated."""
    bias = posenc.alibi(posenc.alibi_slopes(32))
    bias.matrix(8)
    start = time.perf_counter()
    same_bytes = np.empty((32, 2 * 8192 - 1), np.float32)
    same_bytes.fill(1.5)
    fresh_fill = time.perf_counter() - start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    matrix = bias.matrix(8192)
    first = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert matrix.shape == (32, 8192, 8192)
    assert matrix[31, 8191, 0] == np.float32(-8191 / 256)
    report.figure("alibi(alibi_slopes(32)).matrix(8192): memory", grown / 1024, "MiB", most=8)
    report.figure("alibi(alibi_slopes(32)).matrix(8192): the first call", first * 1e3, "ms", most=1)
    report.figure("in comparison: the first fill of as many new bytes", fresh_fill * 1e3, "ms")  # it is all page faults
    report.time("alibi(alibi_slopes(32)).matrix(8192), warm", {"posenc matrix": lambda: bias.matrix(8192)}, cold=False)


def dense(report: Report) -> None:
    heads, n = 8, 2048  # 128 MiB
    bias = posenc.alibi(posenc.alibi_slopes(heads))
    ours, filled = random((heads, n, n)), random((heads, n, n), seed=1)
    distance = np.arange(n)[None, :] - np.arange(n)[:, None]
    check("alibi", bias.matrix(n, out=ours), -posenc.alibi_slopes(heads)[:, None, None] * abs(distance), 1e-4)
    contenders = {"posenc matrix(out=)": lambda: bias.matrix(n, out=ours), "fill": lambda: filled.fill(1.5)}
    if torch := peer("torch"):
        into = torch.from_numpy(random((heads, n, n), seed=2))
        slopes = torch.tensor(posenc.alibi_slopes(heads), dtype=torch.float32)[:, None, None]
        steps = -(torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs().float()
        contenders["torch slopes * distance, out="] = lambda: torch.mul(slopes, steps, out=into)
    report.time(f"dense ALiBi, H={heads} N={n}, out=", contenders, most={"fill": 1.3})


def added(report: Report) -> None:
    """Add both matrices to logits, into the same two outputs in turn.

    With one output for each matrix, the place of its pages would change the ratio by up to 7 %.
    """
    heads, n = 8, 2048
    bias = posenc.alibi(posenc.alibi_slopes(heads))
    logits = random((heads, n, n))
    outputs = random((heads, n, n), seed=1), random((heads, n, n), seed=2)
    matrix, full = bias.matrix(n), bias.matrix(n).copy()
    check("logits + matrix", np.add(logits, matrix, out=outputs[0]), np.add(logits, full, out=outputs[1]), 0.0)
    report.time(
        f"adding to logits, H={heads} N={n}, twice",
        {
            "the view": lambda: [np.add(logits, matrix, out=out) for out in outputs],
            "a dense array": lambda: [np.add(logits, full, out=out) for out in outputs],
        },
        most={"a dense array": 1.05},
    )


if __name__ == "__main__":
    main(__doc__, run)
