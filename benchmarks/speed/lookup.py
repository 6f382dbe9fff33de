"""Time table lookups and merges at (8192 positions, 1024 channels) against NumPy and torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc

N, D, ROWS = 8192, 1024, 8192  # 32 MiB of float32 each
ALPHA = 0.4


def run(report: Report) -> None:
    torch = peer("torch")
    rng = np.random.default_rng(0)
    out, other = random((N, D), seed=1), random((N, D), seed=2)
    tables(report, torch, rng, out, other)
    merges(report, torch, out, other)
    complex_order(report, torch, rng)
    positions(report, rng)


def tables(report: Report, torch: Any, rng: np.random.Generator, out: np.ndarray, other: np.ndarray) -> None:
    table, ids = random((ROWS, D)), rng.integers(0, ROWS, N)
    check("learned", posenc.learned(table, ids, out=out), table[ids], 0)
    contenders: dict[str, Any] = {
        "posenc.learned(out=)": lambda: posenc.learned(table, ids, out=out),
        "np.take(out=, mode='clip')": lambda: np.take(table, ids, axis=0, out=other, mode="clip"),
        "np.take(out=)": lambda: np.take(table, ids, axis=0, out=other),
    }
    if torch:
        weight, index, into = torch.from_numpy(table), torch.from_numpy(ids), torch.from_numpy(other)
        contenders["torch.index_select(out=)"] = lambda: torch.index_select(weight, 0, index, out=into)
    report.time(f"learned float32, {N} ids, d={D}, out=", contenders)

    contenders = {"posenc.learned": lambda: posenc.learned(table, ids), "NumPy table[ids]": lambda: table[ids]}
    if torch:
        contenders["torch.embedding"] = lambda: torch.embedding(weight, index)
    report.time(f"learned float32, {N} ids, d={D}, a new array", contenders)

    grad = random((N, D), seed=3)

    def add_at() -> np.ndarray:
        total = np.zeros((ROWS, D), np.float32)
        np.add.at(total, ids, grad)
        return total

    check("learned_vjp", posenc.learned_vjp(grad, table, ids).table, add_at(), 1e-5)
    contenders = {"posenc.learned_vjp": lambda: posenc.learned_vjp(grad, table, ids), "np.add.at": add_at}
    if torch:
        g = torch.from_numpy(grad)
        contenders["torch embedding backward"] = lambda: torch.ops.aten.embedding_dense_backward(
            g, index, ROWS, -1, False
        )
    report.time(f"learned_vjp float32, {N} ids, d={D}", contenders)

    small = random((128, D))
    far = np.sort(rng.integers(0, 128**2, N))

    def formula() -> np.ndarray:
        u = (small - ALPHA * small[:1]) / (1 - ALPHA)
        return ALPHA * u[far // 128] + (1 - ALPHA) * u[far % 128]

    check("hierarchical", posenc.hierarchical(small, far, alpha=ALPHA, out=out), formula(), 1e-5)
    report.time(
        f"hierarchical float32, 128 rows, {N} increasing ids, d={D}",
        {
            "posenc.hierarchical(out=)": lambda: posenc.hierarchical(small, far, alpha=ALPHA, out=out),
            "NumPy formula": formula,
            "copy": lambda: np.copyto(other, out),
        },
    )


def merges(report: Report, torch: Any, out: np.ndarray, other: np.ndarray) -> None:
    x, p = random((N, D)), random((N, D), seed=4)
    check("combine", posenc.combine(x, p, out=out), x + p, 0)
    contenders: dict[str, Any] = {
        "posenc.combine(out=)": lambda: posenc.combine(x, p, out=out),
        "np.add(out=)": lambda: np.add(x, p, out=other),
    }
    if torch:
        tensors = [torch.from_numpy(a) for a in (x, p, other)]
        contenders["torch.add(out=)"] = lambda: torch.add(tensors[0], tensors[1], out=tensors[2])
    report.time(f"combine add float32, ({N}, {D}), out=", contenders)
    report.time(
        f"combine mul1p float32, ({N}, {D}), out=",
        {
            "posenc.combine(out=)": lambda: posenc.combine(x, p, mode="mul1p", out=out),
            "np.multiply(x, 1 + p, out=)": lambda: np.multiply(x, 1 + p, out=other),
        },
    )
    batch, shared, grad = x.reshape(8, N // 8, D), p[: N // 8], out.reshape(8, N // 8, D)
    report.time(
        f"combine_vjp mul float32, p shared by 8 of ({N // 8}, {D})",
        {
            "posenc.combine_vjp": lambda: posenc.combine_vjp(grad, batch, shared, mode="mul"),
            "NumPy grad * p, (grad * x).sum(0)": lambda: (grad * shared, (grad * batch).sum(0)),
        },
    )


def complex_order(report: Report, torch: Any, rng: np.random.Generator) -> None:
    n, c = 4096, 512
    r, where = random((n, c)), np.arange(n)
    for sharing, w in (("each word and dimension", rng.uniform(0, 1, (n, c))), ("dimensions", rng.uniform(0, 1, c))):
        wide = w if w.ndim == 2 else w[None]
        formula = lambda wide=wide: (r * np.exp(1j * (wide * where[:, None]))).astype(np.complex64)  # noqa: E731
        result = posenc.complex_order(r, w, where)
        check("complex_order", result.view(np.float32), formula().view(np.float32), 1e-5)
        contenders: dict[str, Any] = {
            "posenc.complex_order": lambda w=w: posenc.complex_order(r, w, where),
            "NumPy r * exp(1j angle)": formula,
        }
        if torch:
            tr, tw, tp = torch.from_numpy(r), torch.from_numpy(wide), torch.from_numpy(where)[:, None]
            contenders["torch.polar, angle in float64"] = lambda tr=tr, tw=tw, tp=tp: torch.polar(
                tr.double(), tw * tp
            ).to(torch.complex64)
        report.time(f"complex_order ({n}, {c}), w of {sharing}", contenders)


def positions(report: Report, rng: np.random.Generator) -> None:
    keep = rng.random((64, N)) < 0.9
    check("positions_from_mask", posenc.positions_from_mask(keep), np.maximum(keep.cumsum(-1) - 1, 0), 0)
    report.time(
        f"positions_from_mask (64, {N})",
        {
            "posenc.positions_from_mask": lambda: posenc.positions_from_mask(keep),
            "np.maximum(cumsum - 1, 0)": lambda: np.maximum(keep.cumsum(-1) - 1, 0),
        },
    )
    numbers, powers = rng.integers(0, 10**6, 1 << 17), 10 ** np.arange(5, -1, -1)
    split = posenc.digits(numbers, width=6)
    check("digits", split, numbers[:, None] // powers % 10, 0)
    report.time(
        "digits of 131072 integers, width 6",
        {
            "posenc.digits": lambda: posenc.digits(numbers, width=6),
            "NumPy // and %": lambda: (numbers[:, None] // powers % 10).astype(np.float64),
        },
    )
    report.time(
        "from_digits of the same",
        {
            "posenc.from_digits": lambda: posenc.from_digits(split),
            "NumPy digits @ powers": lambda: split @ powers.astype(np.float64),
        },
    )


if __name__ == "__main__":
    main(__doc__, run)
