"""What the figures share: arguments, colours and dashes, axes, curves, and matrices as images."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, SupportsIndex, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import Bias, RopeFrequencies
from .._core_api.door import door

# ---- arguments ----

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
PairFrequencies: TypeAlias = "npt.ArrayLike | RopeFrequencies"
"""Radians per position of each pair of channels, (e,)."""


def fail(kind: type[Exception], argument: str, has: str, expected: str) -> NoReturn:
    """Raise ": <argument> has <has>; expected <expected>"; see `door`."""
    raise kind(f": {argument} has {has}; expected {expected}")


def as_index(argument: str, value: SupportsIndex, least: int) -> int:
    """Return an integer as a Python int of at least `least`."""
    number = operator.index(value)
    if number < least:
        raise ValueError(f": {argument} is {number}; expected at least {least}")
    return number


def check_choice(argument: str, value: str, choices: Iterable[str]) -> None:
    """Refuse everything but the strings in `choices`."""
    if value not in choices:
        raise ValueError(f": {argument} is {value!r}; expected one of {', '.join(map(repr, choices))}")


def as_matrix(argument: str, value: npt.ArrayLike) -> Float64:
    """Convert to a float64 array with two axes, not empty."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufV":  # bfloat16 is of kind V
        fail(TypeError, argument, f"dtype {array.dtype}", "float16, bfloat16, float32, float64 or integers")
    if array.ndim != 2 or array.size == 0:
        fail(ValueError, argument, f"shape {array.shape}", "two axes, not empty")
    return array.astype(np.float64)


# ---- colours and dashes ----

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


# ---- axes ----

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


def draw_curves(
    ax: Axes | None,
    x: npt.ArrayLike,
    curves: Mapping[str, npt.ArrayLike],
    labels: Mapping[str, Any],
    *,
    colors: Sequence[Color] | None = None,
    legend: bool = True,
) -> tuple[Figure, Axes]:
    """Draw curves by their names, with a grid, and a legend to the right of the axes, where it hides no curve.

    `labels` are the title and other properties of the axes; `colors` are those of an ordered family.
    """
    figure, axes = axes_of(ax)
    for number, (name, curve) in enumerate(curves.items()):
        style: Any = {"color": colors[number]} if colors else line_style(number)
        axes.plot(x, curve, label=name, linewidth=1.7, **style)
    axes.set(**labels)
    axes.grid(alpha=0.3)
    if legend:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure, axes


def draw_image(
    ax: Axes | None, values: Float64, label: str, labels: Mapping[str, Any], aspect: Literal["auto", "equal"] = "auto"
) -> tuple[Figure, Axes]:
    """Draw a matrix as cells with a colour bar. `labels` are properties of the axes.

    Cells smaller than a pixel are averaged; the nearest one would show stripes that are not in the data. Cells that
    are NaN, such as hidden keys, are grey: white is the number 0.
    """
    figure, axes = axes_of(ax) if aspect == "auto" else axes_of(ax, (6.4, 5.2), "compressed")
    axes.set_facecolor(HIDDEN)
    image = axes.imshow(values, aspect=aspect, interpolation="antialiased", **color_scale(values))
    axes.set(**labels)
    figure.colorbar(image, ax=axes, label=label)
    return figure, axes


def title_of(bias: Bias) -> str:
    """Return the functions that made an operator or the parts of a sum."""
    return " + ".join(f"posenc.{part.name}" for part in bias.parts)


def draw_logits(ax: Axes | None, values: Float64, bias: Bias, head: int, heads: int) -> tuple[Figure, Axes]:
    """Draw what an operator adds to the logits of one of several heads, queries downwards."""
    title = title_of(bias) + (f", head {head} of {heads}" if heads > 1 else "")
    return draw_image(ax, values, "added to the logit", {"xlabel": "key", "ylabel": "query", "title": title}, "equal")
