"""Positions of images and videos."""

from __future__ import annotations

from . import Case, ulps


def make_parts(rng, n):
    image = (1, *(2 * rng.integers(1, 4, 2)).tolist())
    video = (3, *(2 * rng.integers(1, 4, 2)).tolist(), 0.3)
    return {"parts": (n, image, 2, video, 1), "style": "qwen3_omni", "tokens_per_second": 12.5, "start": 7}


CASES = [
    Case(function="mrope_positions", tolerance=ulps(0), make=make_parts),
    Case(
        # Two roundings: a quotient and a sum, or two quotients.
        function="grid_positions",
        tolerance=ulps(2),
        make=lambda rng, n: {
            "shape": (n, *rng.integers(1, 5, 2).tolist()),
            "fps": 25.0,
            "compression": (8, 32, 32),
            "centre": True,
            "unit": (20.0, 2048.0, 2048.0),
            "causal": True,
        },
        least=1,
    ),
]
