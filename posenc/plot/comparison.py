"""Numbers beside the right ones, for the reports of `posenc.check`."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from .._core_api.arguments import Float64
from .styles import color_scale

SIZE = (9.0, 3.0)
"""Inches of the picture."""


def comparison(got: Float64, wanted: Float64, title: str) -> Figure:
    """Draw a matrix, the right matrix in the same colours, and the size of their difference."""
    got, wanted = (np.where(np.isfinite(x), x, np.nan) for x in (got, wanted))
    figure = Figure(figsize=SIZE, layout="constrained")
    scale = color_scale(np.nan_to_num(wanted))
    for axes, values, name, colours in zip(
        figure.subplots(1, 3), (got, wanted, abs(got - wanted)), ("yours", "right", "|difference|"),
        (scale, scale, {"cmap": "Reds", "vmin": 0.0}), strict=True,
    ):  # fmt: skip
        image = axes.imshow(values, aspect="auto", interpolation="nearest", **colours)
        axes.set_title(name, fontsize="medium")
        figure.colorbar(image, ax=axes)
    figure.suptitle(f"posenc.check.{title}")
    return figure
