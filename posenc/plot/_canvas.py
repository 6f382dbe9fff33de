"""What pictures share: axes, colours that everybody can tell apart, the colour map that fits the sign of the data."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .._core_api.arguments import Array, Float64, as_data, fail

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError('posenc.plot needs matplotlib; pip install "posenc[plot]"') from error

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito 2008: seven that remain apart for the colour-blind."""
STYLES = ("-", "--", "-.", ":")
SIZE = (8.0, 4.6)
"""Inches: the width of a notebook's cell, and letters that can be read there."""
DIVERGING, SEQUENTIAL = "RdBu_r", "viridis"


def axes_of(
    function: str,
    ax: Any,
    size: tuple[float, float] = SIZE,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> tuple[Figure, Axes]:
    """The axes to draw on and their Figure, new where none were given."""
    if ax is None:
        figure = Figure(figsize=size, layout=layout)
        return figure, figure.subplots()
    if not isinstance(ax, Axes):
        fail(TypeError, function, "ax", f"type {type(ax).__name__}", "matplotlib axes")
    return figure_of(ax), ax


def figure_of(ax: Axes) -> Figure:
    found = ax.figure
    while not isinstance(found, Figure):  # a SubFigure
        found = found.figure
    return found


def style(number: int) -> dict[str, Any]:
    """Colour and dashes of a curve: no two of the first 28 agree in both."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": STYLES[number // len(COLORS) % len(STYLES)]}


def shades(count: int) -> list[Any]:
    """Colours of an ordered family of curves, dark to light."""
    from matplotlib import colormaps

    return [colormaps[SEQUENTIAL](0.92 * i / max(count - 1, 1)) for i in range(count)]


def matrix(function: str, argument: str, value: Any) -> Float64:
    """Two axes of numbers, as float64."""
    array: Array = as_data(function, argument, value)
    if array.ndim != 2 or array.size == 0:
        fail(ValueError, function, argument, f"shape {array.shape}", "two axes, not empty")
    return array.astype(np.float64)


def span(values: Float64) -> dict[str, Any]:
    """The colour map: white at 0 where there are both signs, else from the least to the most."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if low < 0:
        most = max(-low, high)
        return {"cmap": DIVERGING, "vmin": -most, "vmax": most}
    return {"cmap": SEQUENTIAL, "vmin": low, "vmax": high}


def image(ax: Axes, values: Float64, label: str, **options: Any) -> Any:
    """A matrix as cells, with its bar of colours; smoothed where cells are smaller than pixels, else stripes appear
    that are not there."""
    shown = ax.imshow(values, **{"aspect": "auto", "interpolation": "antialiased", **span(values), **options})
    figure_of(ax).colorbar(shown, ax=ax, label=label)
    return shown
