"""Alternative text of a figure, computed from its axes."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from .._core_api.door import door
from ._canvas import fail

NAMED = 8
"""Most curves, or panels, of which each is described. Of more curves the first and the last are."""


@door
def description(figure: Figure | Axes) -> str:
    """Describe a figure or one panel in words, as the alternative text of its picture.

    Parameters
    ----------
    figure : Figure or Axes
        From a function of this module, or your own.

    Returns
    -------
    str
        Title, axes and ranges of each panel, with the names of its curves. Numbers have two digits. Of more than
        eight panels, the titles. Bars and other patches are named, but not described.

    Raises
    ------
    TypeError
        `figure` is neither a Figure nor Axes.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> print(posenc.plot.description(posenc.plot.bias(posenc.alibi([0.5]))))
    posenc.alibi. Curve of added to the logit (-32 to 0) by position of key - position of query (-64 to 64).
    """
    if isinstance(figure, Axes):
        return of_axes(figure)
    if not isinstance(figure, Figure):
        fail(TypeError, "figure", f"type {type(figure).__name__}", "a matplotlib Figure or Axes")
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>" and axes.axison and axes.has_data()]
    title = plain(figure.get_suptitle())
    sentences = [f"{title}."] if title else []
    if len(panels) > NAMED:
        names = dict.fromkeys(name for axes in panels if (name := plain(axes.get_title())))
        return " ".join([*sentences, f"{len(panels)} panels: {', '.join(names)}."])
    for number, axes in enumerate(panels, 1):
        sentences.append((f"Panel {number}: " if len(panels) > 1 else "") + of_axes(axes))
    return " ".join(sentences)


def of_axes(axes: Axes) -> str:
    """Describe one panel."""
    title, x, y = (plain(text) for text in (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()))
    begin = f"{title}. " if title else ""
    if axes.images:
        values = np.ma.filled(np.ma.asarray(axes.images[0].get_array(), np.float64), np.nan)
        legend, bar = axes.get_legend(), axes.images[0].colorbar
        label = plain(bar.ax.get_ylabel()) if bar is not None else ""
        colours = f"{label} {span(values)}".strip()
        if legend is not None:  # its colours have names instead of numbers
            colours = ", ".join(plain(text.get_text()) for text in legend.get_texts())
        down, across = values.shape[:2]
        sizes = (f"{down} rows" + f" ({y})" * bool(y), f"{across} columns" + f" ({x})" * bool(x))
        return f"{begin}Image of {sizes[0]} and {sizes[1]}: {colours}."
    lines = [line for line in axes.get_lines() if np.size(line.get_xdata()) > 2]
    curves = [np.asarray(line.get_xydata(), np.float64) for line in lines]
    scattered = [np.ma.getdata(cloud.get_offsets()) for cloud in axes.collections if isinstance(cloud, PathCollection)]
    if not curves and not scattered:
        return f"{begin}Chart of {y or 'y'} by {x or 'x'}."
    points = np.concatenate(curves or scattered)
    places, heights = span(points[:, 0]), span(points[:, 1])
    if not curves:
        return f"{begin}{len(points)} points: {y} ({heights}) against {x} ({places})."
    of = f" of {y}" if y else ""
    if len(lines) == 1:
        return f"{begin}Curve{of} ({heights}) by {x} ({places})."
    of_each = [
        f"{plain(str(line.get_label()))}, {span(curve[:, 1])}" for line, curve in zip(lines, curves, strict=True)
    ]
    named = "; ".join(of_each if len(lines) <= NAMED else [of_each[0], of_each[-1]])
    return f"{begin}{len(lines)} curves{of} by {x} ({places}): {named}."


def span(values: npt.NDArray[np.float64]) -> str:
    """Return the least and the greatest finite value."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "no numbers"
    low, high = rounded(float(finite.min())), rounded(float(finite.max()))
    return low if low == high else f"{low} to {high}"


def rounded(value: float) -> str:
    """Return a number with two digits, or as an integer if it has more before the point."""
    return f"{round(value)}" if 100 <= abs(value) < 1e6 else f"{value + 0.0:.2g}"


def plain(text: str) -> str:
    """Return a label on one line, without the marks of mathematical text."""
    return re.sub(r"\s+", " ", re.sub(r"[${}\\]", "", text)).strip()
