"""Axes to draw on, and matrices as images."""

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._arguments import Float64, fail
from .styles import HIDDEN, color_scale

Engine = Literal["constrained", "compressed"]
SIZE = (8.0, 4.6)
"""Inches; the width of a notebook cell."""


def axes_of(ax: Axes | None, size: tuple[float, float] = SIZE, layout: Engine = "constrained") -> tuple[Figure, Axes]:
    """Return the Figure and the axes to draw on; new ones if `ax` is None."""
    if ax is None:
        figure = Figure(figsize=size, layout=layout)
        return figure, figure.subplots()
    if not isinstance(ax, Axes):
        fail(TypeError, "ax", f"type {type(ax).__name__}", "matplotlib axes")
    return figure_of(ax), ax


def figure_of(ax: Axes) -> Figure:
    """Return the Figure of the axes, from inside any SubFigure."""
    figure = ax.figure
    while not isinstance(figure, Figure):
        figure = figure.figure
    return figure


def finish_curves(ax: Axes, title: str, legend: bool = False) -> None:
    """Add a title, a grid, and a legend to the right of the axes, where it hides no curve."""
    ax.set_title(title)
    ax.grid(alpha=0.3)
    if legend:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def draw_image(ax: Axes, values: Float64, label: str, aspect: Literal["auto", "equal"] = "auto") -> None:
    """Draw a matrix as cells with a colour bar.

    Cells smaller than a pixel are averaged; the nearest one would show stripes that are not in the data. Cells that
    are NaN, such as hidden keys, are grey: white is the number 0.
    """
    ax.set_facecolor(HIDDEN)
    image = ax.imshow(values, aspect=aspect, interpolation="antialiased", **color_scale(values))
    figure_of(ax).colorbar(image, ax=ax, label=label)


def draw_logits(ax: Axes, values: Float64, name: str, head: int, heads: int) -> None:
    """Draw what the operator `name` adds to the logits of one of several heads, queries downwards."""
    draw_image(ax, values, "added to the logit", "equal")
    of_heads = f", head {head} of {heads}" if heads > 1 else ""
    ax.set(xlabel="key", ylabel="query", title=f"posenc.{name}{of_heads}")
