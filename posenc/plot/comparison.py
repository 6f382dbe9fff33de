"""Numbers beside the right ones, for the reports of `posenc.check`."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ._arguments import Float64
from .styles import color_scale

SIZE = (9.0, 3.0)
"""Inches of the picture."""


def comparison(got: Float64, wanted: Float64, title: str, labels: tuple[str, str]) -> Figure:
    """Draw a matrix, the right matrix in the same colours, and the size of their difference.

    The first label names the rows, the second the columns. Rows without a label have no ticks.
    """
    got, wanted = (np.where(np.isfinite(x), x, np.nan) for x in (got, wanted))
    figure = Figure(figsize=SIZE, layout="constrained")
    scale = color_scale(np.nan_to_num(wanted))
    for axes, values, name, colours in zip(
        figure.subplots(1, 3), (got, wanted, abs(got - wanted)), ("yours", "right", "|difference|"),
        (scale, scale, {"cmap": "Reds", "vmin": 0.0}), strict=True,
    ):  # fmt: skip
        image = axes.imshow(values, aspect="auto", interpolation="nearest", **colours)
        axes.set(xlabel=labels[1], ylabel=labels[0])
        axes.set_title(name, fontsize="medium")
        for axis, label in zip((axes.yaxis, axes.xaxis), labels, strict=True):
            axis.set_major_locator(MaxNLocator(integer=True) if label else NullLocator())
        figure.colorbar(image, ax=axes)
    figure.suptitle(title)
    return figure
