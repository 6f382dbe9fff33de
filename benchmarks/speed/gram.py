"""Time matrices of all pairs of positions against NumPy's `X @ X.T`, whose syrk also computes half of the pairs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, vectors

import posenc
from posenc import analysis

SIZES = ((4096, 512), (1024, 128), (512, 128))


def run(report: Report) -> None:
    torch = peer("torch")
    for kind in (np.float32, np.float64):
        for n, d in SIZES:
            matrices(report, torch, n, d, kind)


def matrices(report: Report, torch: Any, n: int, d: int, kind: Any) -> None:
    x = posenc.sinusoidal(n, d, dtype=kind)
    out, other, squares = (np.empty((n, n), kind) for _ in range(3))
    tolerance = d * d * float(np.finfo(kind).eps)
    check("gram_matrix", analysis.gram_matrix(x), x @ x.T, tolerance)
    some = slice(0, 64)
    wanted = np.sqrt(((x[some, None].astype(np.float64) - x[None, some]) ** 2).sum(-1))
    check("distance_matrix", analysis.distance_matrix(x)[some, some], wanted, tolerance)
    check("correlation_matrix", analysis.correlation_matrix(x)[some, some], np.corrcoef(x[some]), tolerance)

    def from_products() -> None:
        """Compute distances from products as usual; they cancel, and the diagonal is not exactly 0."""
        np.matmul(x, x.T, out=other)
        size = np.einsum("nd,nd->n", x, x)
        np.add(size[:, None], size, out=squares)
        np.subtract(squares, np.multiply(other, 2, out=other), out=squares)
        np.sqrt(np.maximum(squares, 0, out=squares), out=squares)

    contenders: dict[str, Any] = {
        "gram_matrix(out=)": lambda: analysis.gram_matrix(x, out=out),
        "NumPy X @ X.T": lambda: np.matmul(x, x.T, out=other),
    }
    if torch:
        tensor, into = torch.from_numpy(x), torch.from_numpy(other)
        contenders["torch.mm(out=)"] = lambda: torch.mm(tensor, tensor.T, out=into)
    goal = {"NumPy X @ X.T": {"avx512": 0.6, "avx2": 1.0}.get(vectors(), 2.0)}
    report.time(f"gram {np.dtype(kind)} ({n}, {d})", contenders, most=goal if (n, kind) == (4096, np.float32) else None)
    contenders = {
        "distance_matrix(out=)": lambda: analysis.distance_matrix(x, out=out),
        "the product alone, X @ X.T": lambda: np.matmul(x, x.T, out=other),
        "NumPy, from products": from_products,
    }
    if torch:
        contenders["torch.cdist"] = lambda: torch.cdist(tensor, tensor)
    report.time(f"distances {np.dtype(kind)} ({n}, {d})", contenders)
    report.time(
        f"correlations {np.dtype(kind)} ({n}, {d})",
        {
            "correlation_matrix(out=)": lambda: analysis.correlation_matrix(x, out=out),
            "np.corrcoef": lambda: np.corrcoef(x),
        },
    )


if __name__ == "__main__":
    main(__doc__, run)
