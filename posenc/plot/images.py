"""Matrices as cells, and as clouds of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from .._core_api.arguments import check_choice, fail
from ..analysis.matrices import correlation_matrix, distance_matrix, gram_matrix, triangle_points
from ._canvas import SIZE, axes_of, figure_of, image, matrix, shades, span

__all__ = ["attention_maps", "encoding", "similarity", "triangles"]

KINDS = {
    "product": (gram_matrix, "inner product"),
    "distance": (distance_matrix, "distance"),
    "correlation": (correlation_matrix, "correlation"),
}

ACROSS = 5
"""Attention maps beside each other."""
SHADES = 16
"""Colours of a cloud."""


def encoding(values: npt.ArrayLike, *, layout: str = "interleaved", ax: Axes | None = None) -> Figure:
    """An encoding as it is: positions downwards, channels across, white at 0.

    Parameters
    ----------
    values : array (N, d)
        From `sinusoidal`, `learned`, ....
    layout : {"interleaved", "halves"}
        "halves" draws the line between the two halves of the pairs.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError, ValueError
        Not two axes of numbers.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.encoding(posenc.sinusoidal(64, 32))
    >>> figure.axes[0].images[0].get_array().shape
    (64, 32)
    """
    function = "encoding"
    check_choice(function, "layout", layout, ("interleaved", "halves"))
    shown = matrix(function, "values", values)
    figure, axes = axes_of(function, ax)
    image(axes, shown, "encoding")
    axes.set(xlabel="channel", ylabel="position")
    if layout == "halves":
        axes.axvline(shown.shape[1] / 2 - 0.5, color="black", linewidth=1)
        axes.set_xlabel("channel: first halves of all pairs, then the second halves")
    return figure


def similarity(values: npt.ArrayLike, *, kind: str = "product", ax: Axes | None = None) -> Figure:
    """Every position of an encoding with every other.

    Parameters
    ----------
    values : array (N, d)
        An encoding.
    kind : {"product", "distance", "correlation"}
        `gram_matrix`, `distance_matrix` or `correlation_matrix`.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError, ValueError
        Not two axes of numbers; an unknown kind.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.similarity(posenc.sinusoidal(64, 32), kind="distance")
    >>> figure.axes[0].images[0].get_array().shape
    (64, 64)
    """
    function = "similarity"
    check_choice(function, "kind", kind, KINDS)
    make, label = KINDS[kind]
    shown = make(matrix(function, "values", values))
    figure, axes = axes_of(function, ax, (6.4, 5.2), "compressed")
    image(axes, shown, label, aspect="equal")
    axes.set(xlabel="position", ylabel="position")
    return figure


def triangles(values: npt.ArrayLike, *, ax: Sequence[Axes] | None = None) -> Figure:
    """Distance against correlation for all pairs of positions: above the diagonal to the left, below it to the right.

    Parameters
    ----------
    values : array (N, d)
        An encoding, at least 2 positions.
    ax : two Axes, optional
        Where to draw.

    Returns
    -------
    Figure
        Points are coloured by how far apart the two positions are.

    Raises
    ------
    TypeError, ValueError
        Not two axes of numbers; an `ax` that is not two.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.triangles(posenc.sinusoidal(64, 32, base=10.0))
    >>> sum(len(line.get_xdata()) for line in figure.axes[0].get_lines())
    2016
    """
    function = "triangles"
    shown = matrix(function, "values", values)
    if len(shown) < 2:
        fail(ValueError, function, "values", "1 position", "at least 2")
    points = triangle_points(distance_matrix(shown), correlation_matrix(shown))
    if ax is None:
        figure = Figure(figsize=SIZE, layout="constrained")
        pair = list(figure.subplots(1, 2, sharex=True, sharey=True))
    else:
        pair = list(np.ravel(np.asarray(ax, object)))
        if len(pair) != 2 or not all(isinstance(one, Axes) for one in pair):
            fail(TypeError, function, "ax", f"{len(pair)} entries", "two matplotlib axes")
        figure = figure_of(pair[0])
    i, j = np.triu_indices(len(shown), 1)
    count = min(SHADES, len(shown) - 1)
    group = (j - i - 1) * count // (len(shown) - 1)
    colors = shades(count)
    for axes, cloud, name in zip(pair, points, ("i < j", "i > j"), strict=True):
        for number in reversed(range(count)):  # one colour at a time is five times as fast; neighbours on top
            some = cloud[group == number]
            axes.plot(*some.T, "o", color=colors[number], markersize=1.4, markeredgewidth=0, linestyle="")
        axes.set(xlabel="correlation of i and j", title=name)
        axes.grid(alpha=0.3)
    pair[0].set_ylabel("distance of i and j")
    scale = ScalarMappable(Normalize(1, len(shown)), ListedColormap(colors))
    figure.colorbar(scale, ax=pair, label="|i - j|, positions")
    return figure


def attention_maps(
    maps: Mapping[str, Sequence[npt.ArrayLike]],
    words: Sequence[Sequence[str]],
    rows: Sequence[str],
    *,
    label: str = "weight",
) -> Figure:
    """Who looks at whom: a column for each scheme, a row for each text, one scale of colours to a text.

    More than five schemes go on below.

    Parameters
    ----------
    maps : mapping of str to sequence of arrays (N, N)
        For each scheme its matrices, queries downwards; a row with negative numbers is white at 0.
    words : sequence of sequences of str
        The tokens of each row.
    rows : sequence of str
        What each row is.
    label : str
        What the numbers are.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError, ValueError
        Schemes that do not have one square matrix for each row, as large as its text.

    Examples
    --------
    >>> import numpy as np, posenc.plot
    >>> figure = posenc.plot.attention_maps({"none": [np.eye(2)]}, [["a", "b"]], ["a text"])
    >>> len(figure.axes)
    2
    """
    function = "attention_maps"
    shown = {name: [matrix(function, "maps", one) for one in given] for name, given in maps.items()}
    wanted = [(len(text), len(text)) for text in words]
    for name, given in shown.items():
        if [one.shape for one in given] != wanted or len(rows) != len(wanted):
            shapes = [one.shape for one in given]
            fail(ValueError, function, "maps", f"shapes {shapes} for {name!r}", f"{wanted}, and {len(rows)} rows")
    if not shown or not rows:
        fail(ValueError, function, "maps", f"{len(shown)} schemes, {len(rows)} rows", "at least one of each")
    bands = [list(shown)[first : first + ACROSS] for first in range(0, len(shown), ACROSS)]
    across, down = min(len(shown), ACROSS), len(rows)
    figure = Figure(figsize=(2.6 * across + 1.6, 2.8 * down * len(bands)), layout="constrained")
    grid = figure.subplots(down * len(bands), across, squeeze=False)
    for row, (name, text) in enumerate(zip(rows, words, strict=True)):
        colors = span(np.stack([given[row] for given in shown.values()]))
        signed = colors["vmin"] < 0
        colors["vmin"] = colors["vmin"] if signed else 0.0
        for band, schemes in enumerate(bands):
            line = grid[band * down + row]
            for axes, scheme in zip(line, schemes, strict=False):
                cells = axes.imshow(shown[scheme][row], **colors)
                axes.set_xticks(range(len(text)), text, rotation=90)
                axes.set_yticks(range(len(text)), text if axes is line[0] else [])
                axes.set(title=scheme if row == 0 else "", xlabel="key" if row == down - 1 else "")
            for axes in line[len(schemes) :]:
                axes.axis("off")
            line[0].set_ylabel(f"{name}\n\nquery", fontsize=9)
            figure.colorbar(cells, ax=list(line), label=f"change of {label}" if signed else label, shrink=0.8)
    return figure
