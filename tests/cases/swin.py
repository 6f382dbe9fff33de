"""Swin: a table indexed by the differences of rows and of columns of an image window."""

from __future__ import annotations

from . import at, ulps
from .bias import BiasCase, with_placed


def make_swin(rng, n):
    height = 11 + n // 10
    table = rng.standard_normal(((2 * height - 1) * 19, 3))
    return {"table": table, "height": height, "width": 10, "n": n, "m": n + 2}


CASES = [
    *with_placed(
        BiasCase(
            # a number of the table, rounded to the storage dtype
            function="swin",
            tolerance=ulps(0.5),
            make=make_swin,
            axes={"table": "k! h"},
            gradients=at("table"),
            real=lambda rng: {"table": rng.standard_normal((63 * 63, 32)), "height": 32, "width": 32, "n": 1024},
        ),
        low=0,
        high=110,
        whole=True,
    )
]
