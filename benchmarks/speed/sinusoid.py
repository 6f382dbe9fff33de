"""Time the sinusoidal encoding into existing memory against a fill of that memory, NumPy and torch."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random, vectors

import posenc

N, DIM = 32768, 512  # 64 MiB of float32
FILL_GOAL = {"avx512": 1.5, "avx2": 2.6}
NUMPY_GOAL = {"avx512": 20.0, "avx2": 10.0}
FRACTIONS_GOAL = {"avx512": 10.0, "avx2": 5.0}


def numpy_formula(positions: np.ndarray, dim: int) -> np.ndarray:
    """The usual expression in float64: sin in the even columns, cos in the odd ones."""
    angle = positions[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    table = np.empty((len(positions), dim), np.float32)
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return table


def run(report: Report) -> None:
    ours, filled, theirs = (random((N, DIM)) for _ in range(3))
    positions = np.arange(N)
    check("sinusoidal", posenc.sinusoidal(N, DIM, out=ours), numpy_formula(positions, DIM), 1e-7)
    contenders = {
        "posenc.sinusoidal(out=)": lambda: posenc.sinusoidal(positions, DIM, out=ours),
        "fill": lambda: filled.fill(1.5),
        "NumPy float64 formula": lambda: numpy_formula(positions, DIM),
    }
    if torch := peer("torch"):
        inverse = 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
        into = torch.from_numpy(theirs)

        def torch_formula() -> None:  # float32 angles are fast, and wrong at far positions
            angle = torch.arange(N, dtype=torch.float32)[:, None] * inverse
            torch.sin(angle, out=into[:, 0::2])
            torch.cos(angle, out=into[:, 1::2])

        contenders["torch float32 formula, out="] = torch_formula
    isa = vectors()
    report.time(
        f"sinusoidal({N}, {DIM}) float32, out=",
        contenders,
        most={"fill": FILL_GOAL[isa]} if isa in FILL_GOAL else None,
        least={"NumPy float64 formula": NUMPY_GOAL[isa]} if isa in NUMPY_GOAL else None,
    )
    report.time(
        f"sinusoidal({N}, {DIM}) float32, fresh output, halves",
        {
            "posenc.sinusoidal": lambda: posenc.sinusoidal(positions, DIM, layout="half"),
            "empty and fill": lambda: np.empty((N, DIM), np.float32).fill(1.5),
        },
    )
    wide, wide_filled = random((N // 2, DIM), np.float64), random((N // 2, DIM), np.float64)
    report.time(
        f"sinusoidal({N // 2}, {DIM}) float64, out=",
        {
            "posenc.sinusoidal(out=)": lambda: posenc.sinusoidal(positions[: N // 2], DIM, out=wide),
            "fill": lambda: wide_filled.fill(1.5),
            "NumPy float64 formula": lambda: numpy_formula(positions[: N // 2], DIM),
        },
    )
    fractions = np.random.default_rng(1).uniform(0, 1e5, N)  # rows share no angle, so each pair calls sincos.h
    # the error of a float64 product of 1e5 is 2**-37
    check("fractions", posenc.sinusoidal(fractions, DIM, out=ours), numpy_formula(fractions, DIM), 1e-7)
    report.time(
        f"sinusoidal({N} fractional positions, {DIM}) float32, out=",
        {
            "posenc.sinusoidal(out=)": lambda: posenc.sinusoidal(fractions, DIM, out=ours),
            "NumPy float64 formula": lambda: numpy_formula(fractions, DIM),
        },
        least={"NumPy float64 formula": FRACTIONS_GOAL[isa]} if isa in FRACTIONS_GOAL else None,
    )
    for what, where in (("consecutive", positions), ("fractional", fractions)):
        report.time(
            f"sinusoidal_vjp({N} {what} positions, {DIM}) float32",
            {
                "posenc.sinusoidal_vjp": lambda where=where: posenc.sinusoidal_vjp(filled, where, DIM),
                "its forward, out=": lambda where=where: posenc.sinusoidal(where, DIM, out=ours),
                "copy of the gradient": lambda: np.copyto(ours, filled),
            },
            most={"its forward, out=": 4.0},
        )
    one = np.array([123456])
    row = np.empty((1, DIM), np.float32)
    report.time(
        f"one row of {DIM}",
        {
            "posenc.sinusoidal(out=)": lambda: posenc.sinusoidal(one, DIM, out=row),
            "as many sines, np.sin in float64": lambda: np.sin(wide[0]),
        },
        cold=False,
    )


if __name__ == "__main__":
    main(__doc__, run)
