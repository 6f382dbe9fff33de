"""Colours, dashes and colour maps of the figures."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from matplotlib import colormaps

from .._core_api.arguments import door
from ._arguments import Float64, as_index

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Colours that remain distinct for colour-blind readers (Okabe and Ito 2008)."""
DASHES = ("-", "--", "-.", ":")
HIDDEN = "0.8"
"""Grey of the cells without a number."""
DIVERGING, SEQUENTIAL, NEGATIVE = "RdBu_r", "viridis", "Blues_r"

Color = tuple[float, float, float, float]


class LineStyle(TypedDict):
    """Keywords of ``Axes.plot``."""

    color: str
    linestyle: str


@door
def line_style(number: int) -> LineStyle:
    """Colour and dashes of curve `number` of a figure, as keywords of ``Axes.plot``.

    The first 28 styles differ. Their seven colours remain distinct for colour-blind readers (Okabe and Ito 2008).

    Parameters
    ----------
    number : int
        From 0.

    Returns
    -------
    dict
        ``color`` and ``linestyle``.

    Raises
    ------
    TypeError, ValueError
        `number` is not an integer of at least 0.

    Examples
    --------
    A curve of your own in the style of `profile`:

    >>> import posenc.plot
    >>> posenc.plot.line_style(1)
    {'color': '#d55e00', 'linestyle': '-'}
    """
    index = as_index("number", number, 0)
    return {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index // len(COLORS) % len(DASHES)]}


def shades(count: int) -> list[Color]:
    """Colours of an ordered family of curves, dark to light. Against white the lightest has a contrast of 3."""
    return [colormaps[SEQUENTIAL](0.6 * i / max(count - 1, 1)) for i in range(count)]


def color_scale(values: Float64) -> dict[str, Any]:
    """Return the colour map and its range, as keywords of ``Axes.imshow``.

    White is at 0 if there are negative values; otherwise the range is from the least number to the greatest.
    """
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if low < 0 and high <= 0:
        return {"cmap": NEGATIVE, "vmin": low, "vmax": 0.0}
    if low < 0:
        greatest = max(-low, high)
        return {"cmap": DIVERGING, "vmin": -greatest, "vmax": greatest}
    return {"cmap": SEQUENTIAL, "vmin": low, "vmax": high}
