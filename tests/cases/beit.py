"""BEiT: Swin's table with rows for a class token."""

from __future__ import annotations

from . import at, ulps
from .bias import BiasCase, with_placed


def make_beit(rng, n):
    height = 11 + n // 10
    return {
        "table": rng.standard_normal(((2 * height - 1) * 19 + 3, 3)),
        "height": height,
        "width": 10,
        "n": n,
        "m": n + 2,
    }


CASES = [
    *with_placed(
        BiasCase(
            # a number of the table, rounded to storage
            function="beit",
            tolerance=ulps(0.5),
            make=make_beit,
            axes={"table": "k! h"},
            gradients=at("table"),
        ),
        low=0,
        high=12,
        whole=True,
    )
]
