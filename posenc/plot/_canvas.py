"""What the figures share: arguments, colours and dashes, axes, curves, and matrices as images."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps, pyplot
from matplotlib.axes import Axes

from .. import Bias, ContentBias, PositionBias, RopeFrequencies

# ---- arguments ----

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
PairFrequencies: TypeAlias = "npt.ArrayLike | RopeFrequencies"
"""Radians per position of each pair of channels, (e,)."""

FREQUENCIES = "posenc.plot.profile, rope_bands and extrapolation draw frequencies"
DRAWN_BY = {
    PositionBias: "posenc.plot.bias draws it",
    ContentBias: "posenc.plot.logits draws it",
    RopeFrequencies: FREQUENCIES,
    Mapping: "posenc.plot.biases and profile draw several",
}
"""What a message adds for a value that another function draws."""


def fail(kind: type[Exception], argument: str, has: str, expected: str) -> NoReturn:
    """Raise ": <argument> has <has>; expected <expected>"; see `door`."""
    raise kind(f": {argument} has {has}; expected {expected}")


def fail_kind(argument: str, value: object, expected: str) -> NoReturn:
    """Refuse a value of the wrong kind, and name the function that draws it."""
    hint = next((f"; {text}" for kind, text in DRAWN_BY.items() if isinstance(value, kind)), "")
    fail(TypeError, argument, f"type {type(value).__name__}", expected + hint)


def as_index(argument: str, value: SupportsIndex, least: int, end: int | None = None) -> int:
    """Return an integer as a Python int of at least `least`, and below `end`."""
    number = operator.index(value)
    if number < least:
        raise ValueError(f": {argument} is {number}; expected at least {least}")
    if end is not None and number >= end:
        raise IndexError(f": {argument} is {number}; expected {least} to {end - 1}")
    return number


def check_choice(argument: str, value: str, choices: Iterable[str]) -> None:
    """Refuse everything but the strings in `choices`."""
    if value not in choices:
        raise ValueError(f": {argument} is {value!r}; expected one of {', '.join(map(repr, choices))}")


def as_numbers(argument: str, value: npt.ArrayLike) -> Array:
    """Convert to an array of real numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufV" and array.size:  # bfloat16 is of kind V
        fail(TypeError, argument, f"dtype {array.dtype}", "float16, bfloat16, float32, float64 or integers")
    return array


def as_encoding(value: npt.ArrayLike) -> Float64:
    """Convert an encoding (N, d) to float64. Refuse the matrices that functions of posenc.analysis return."""
    expected = "an encoding (N, d), such as sinusoidal(128, 64)"
    if isinstance(value, tuple(DRAWN_BY)):
        fail_kind("encoding", value, expected)
    array = as_numbers("encoding", value)
    if array.ndim != 2 or array.size == 0:
        hint = f"; {FREQUENCIES}" if array.ndim == 1 else ""
        fail(ValueError, "encoding", f"shape {array.shape}", expected + hint)
    matrix: Float64 = array.astype(np.float64)
    is_symmetric = len(matrix) == len(matrix.T) and np.array_equal(matrix, matrix.T, equal_nan=True)
    if is_symmetric and np.count_nonzero(matrix) > len(matrix):  # one-hot positions are an encoding
        fail(ValueError, "encoding", "a symmetric matrix of all pairs of positions", f"{expected}; plt.imshow draws it")
    return matrix


def as_distances(value: npt.ArrayLike | None, default: range, *, before: bool = False) -> Array:
    """Convert distances (M,). An int n is the distances 0 .. n-1; `before` the query, the positions 1-n .. 0."""
    expected = "an int, or one axis of distances"
    if isinstance(value, tuple(DRAWN_BY)):
        fail_kind("distances", value, expected)
    array = as_numbers("distances", default if value is None else value)
    if array.ndim == 0 and array.dtype.kind in "iu":
        array = np.arange(as_index("distances", int(array), 1)) - before * (int(array) - 1)
    if array.ndim != 1 or array.size == 0:
        fail(ValueError, "distances", f"shape {array.shape}", expected)
    if array[0] == 1 and 0 < array[-1] < 1 and (np.diff(array) < 0).all():
        fail(ValueError, "distances", "numbers that fall from 1 towards 0", f"{expected}; {FREQUENCIES}")
    return array


def as_frequencies(argument: str, value: PairFrequencies) -> PairFrequencies:
    """Refuse operators and mappings in place of frequencies. Functions of posenc.analysis check the numbers."""
    if isinstance(value, Bias | Mapping):
        fail_kind(argument, value, "frequencies, such as rope_frequencies(64)")
    return value


def as_mapping(argument: str, value: Any, what: str) -> Mapping[str, Any]:
    """Return a mapping with a name for each value; of one value, with the name of its kind."""
    if isinstance(value, list | tuple) and any(isinstance(one, Bias | RopeFrequencies) for one in value):
        fail_kind(argument, value, f"{what}, or a mapping of names to several")
    if isinstance(value, Mapping):
        if not value:
            fail(ValueError, argument, "no entries", "at least one")
        return value
    if isinstance(value, Bias):
        return {title_of(value): value}
    return {"no positions" if value is None else "rotary frequencies": value}


@contextmanager
def own_names(function: str, argument: str = "", own: str = "") -> Iterator[None]:
    """Let messages of a function of posenc.analysis begin as those of the user's call, and name its argument."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        text = str(error).replace(f"{function}: {argument}", f": {own}", 1)
        error.args = (text.replace(f"{function}:", ":", 1),)
        raise


def is_causal(bias: Bias) -> bool:
    """Return True for an operator that has no bias for keys after the query, or none that a model uses."""
    return any(part.name in ("fox", "cope") or part.options.get("bidirectional") is False for part in bias.parts)


# ---- colours and dashes ----

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Colours that remain distinct for colour-blind readers (Okabe and Ito 2008)."""
DASHES = ("-", "--", "-.", ":")
HIDDEN = "0.8"
"""Grey of the cells without a number."""
DIVERGING, SEQUENTIAL, NEGATIVE, ORDERED = "RdBu_r", "viridis", "Blues_r", "plasma"

Color = tuple[float, float, float, float]


def shades(count: int) -> list[Color]:
    """Colours of an ordered family of curves, dark to light. Against white the lightest has a contrast of 3."""
    return [colormaps[ORDERED](0.7 * i / max(count - 1, 1)) for i in range(count)]


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


def axes_of(ax: Axes | None, size: tuple[float, float] = SIZE, layout: Engine = "constrained") -> Axes:
    """Return the axes to draw on: those of a new figure of pyplot if `ax` is None."""
    if ax is None:
        return pyplot.figure(figsize=size, layout=layout).subplots()
    if not isinstance(ax, Axes):
        fail(TypeError, "ax", f"type {type(ax).__name__}", "matplotlib axes")
    return ax


def draw_curves(
    ax: Axes | None,
    x: npt.ArrayLike,
    curves: Mapping[str, npt.ArrayLike],
    labels: Mapping[str, Any],
    *,
    colors: Sequence[Color] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw curves by their names, with a grid, and a legend to the right of the axes, where it hides no curve.

    `labels` are the title and other properties of the axes; `colors` are those of an ordered family, whose neighbours
    also differ in dashes. Otherwise the first 28 curves differ in colour or dashes.
    """
    axes = axes_of(ax)
    for number, (name, curve) in enumerate(curves.items()):
        color: Any = colors[number] if colors else COLORS[number % len(COLORS)]
        dashes = DASHES[number % 2] if colors else DASHES[number // len(COLORS) % len(DASHES)]
        axes.plot(x, curve, label=name, linewidth=1.7, color=color, linestyle=dashes)
    axes.set(**labels)
    axes.grid(alpha=0.3)
    if legend:
        draw_legend(axes)
    return axes


def draw_legend(axes: Axes) -> None:
    """Draw the legend to the right of the axes."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def draw_image(
    ax: Axes | None, values: Float64, label: str, labels: Mapping[str, Any], aspect: Literal["auto", "equal"] = "auto"
) -> Axes:
    """Draw a matrix as cells with a colour bar. `labels` are properties of the axes.

    Cells smaller than a pixel are averaged; the nearest one would show stripes that are not in the data. Cells that
    are NaN, such as hidden keys, are grey: white is the number 0.
    """
    axes = axes_of(ax) if aspect == "auto" else axes_of(ax, (6.4, 5.2), "compressed")
    axes.set_facecolor(HIDDEN)
    image = axes.imshow(values, aspect=aspect, interpolation="antialiased", **color_scale(values))
    axes.set(**labels)
    axes.figure.colorbar(image, ax=axes, label=label)
    return axes


def title_of(bias: Bias) -> str:
    """Return the functions that made an operator or the parts of a sum."""
    return " + ".join(f"posenc.{part.name}" for part in bias.parts)


def draw_logits(ax: Axes | None, values: Float64, bias: Bias, head: int, heads: int) -> Axes:
    """Draw what an operator adds to the logits of one of several heads, queries downwards."""
    title = title_of(bias) + (f", head {head} of {heads}" if heads > 1 else "")
    return draw_image(ax, values, "added to the logit", {"xlabel": "key", "ylabel": "query", "title": title}, "equal")
