"""Matrices as images and as scatter plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from .. import ContentBias, analysis
from .._core_api.door import door
from . import _canvas as canvas
from ._canvas import Array, Float64, PairFrequencies, fail

Layout = Literal["interleaved", "half"]
Kind = Literal["product", "distance", "correlation"]

KINDS: dict[str, tuple[Callable[[npt.ArrayLike], Array], str, str]] = {
    "product": (analysis.gram_matrix, "inner product", "Inner products of all pairs of positions"),
    "distance": (analysis.distance_matrix, "distance", "Distances of all pairs of positions"),
    "correlation": (analysis.correlation_matrix, "correlation", "Correlations of all pairs of positions"),
}
"""Matrix, label of the colour bar and title of each kind of `similarity`."""
LAYOUTS = {"interleaved": "the even ones, then the odd ones", "half": "first half, then second half"}
"""Order in which `encoding` shows the channels."""
MAPS_PER_ROW = 6
"""Attention maps side by side."""
PAGE = 9.2
"""Inches. A page shrinks a figure of this width so that labels of 10 points have 8. Wider figures get larger labels."""
SHADES = 16
"""Colours of a scatter plot."""
CELLS = {"trained distance": "#cfcfcf", "new distance, trained angle": "#56b4e9", "new angle": "#d55e00"}
"""Colours of the cells 0, 1 and 2 of `extrapolation`."""
MOST_COLUMNS = 8192
"""Distances that `extrapolation` draws; of more, each second one, or each third one, and so on."""
LEGEND_ABOVE = 26.0
"""Points between axes and title, for a line of the legend."""


@door
def encoding(values: npt.ArrayLike, *, layout: Layout | None = "interleaved", ax: Axes | None = None) -> Figure:
    """Draw an encoding as an image: positions downwards, channels across, white at 0.

    Parameters
    ----------
    values : array (N, d)
        From `sinusoidal`, `learned` and so on.
    layout : {"interleaved", "half"} or None
        Order of the channels in `values`, as in `sinusoidal`. The picture shows the first channels of all pairs, a
        line, and the second channels: neighbouring columns then have neighbouring frequencies. None draws channels
        that have no pairs, in their own order.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        `values` does not consist of two axes of numbers, or `layout` is unknown.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.encoding(posenc.sinusoidal(64, 32))
    >>> figure.axes[0].images[0].get_array().shape
    (64, 32)
    """
    if layout is not None:
        canvas.check_choice("layout", layout, LAYOUTS)
    if np.ndim(values) == 1 and np.size(values):
        of_pairs = "an encoding (N, d); posenc.plot.rope_bands and extrapolation draw frequencies"
        fail(ValueError, "values", f"shape {np.shape(values)}", of_pairs)
    matrix = canvas.as_matrix("values", values)
    channels = np.arange(matrix.shape[1])
    if layout == "interleaved":
        channels = np.concatenate([channels[0::2], channels[1::2]])
    labels = {"xlabel": "channel", "ylabel": "position", "title": f"Encoding of {len(matrix)} positions"}
    figure, axes = canvas.draw_image(ax, matrix[:, channels], "encoding", labels)
    if layout is not None:
        first = -(-len(channels) // 2)
        ticks = [k for start, end in ((0, first), (first, len(channels))) for k in range(start, end, -(-first // 4))]
        axes.set_xticks(ticks, [str(channels[k]) for k in ticks])
        axes.axvline(first - 0.5, color="black", linewidth=1)
        axes.set_xlabel(f"channel: {LAYOUTS[layout]}")
    return figure


@door
def similarity(values: npt.ArrayLike, *, kind: Kind = "product", ax: Axes | None = None) -> Figure:
    """Draw the inner products, distances or correlations of all pairs of positions as an image.

    Parameters
    ----------
    values : array (N, d)
        An encoding.
    kind : {"product", "distance", "correlation"}
        `posenc.analysis.gram_matrix`, `distance_matrix` or `correlation_matrix`.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        `values` does not consist of two axes of numbers, or `kind` is unknown.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.similarity(posenc.sinusoidal(64, 32), kind="distance")
    >>> figure.axes[0].images[0].get_array().shape
    (64, 64)
    """
    canvas.check_choice("kind", kind, KINDS)
    matrix_of, label, title = KINDS[kind]
    matrix = matrix_of(canvas.as_matrix("values", values))
    labels = {"xlabel": "position", "ylabel": "position", "title": title}
    return canvas.draw_image(ax, matrix, label, labels, "equal")[0]


@door
def logits(
    operator: ContentBias,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    words: Sequence[str] | None = None,
    head: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Draw the logits that an operator adds to the logits of queries and keys, as an image: queries downwards.

    White is 0. A term that reads the query differs between rows of different content, and one that reads the key
    between columns.

    Parameters
    ----------
    operator : ContentBias
        From `shaw`, `relative_key_query`, `transformer_xl`, `deberta` or `cope`.
    q, k : array (H, N, D)
        Queries and keys at the positions 0 .. N-1. The logits are `ContentBias.logits` times ``D**-0.5``.
    words : sequence of N str, optional
        Names of the positions.
    head : int
        The head to draw.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure
        Keys after the query stay empty if the operator counts keys (`cope`).

    Raises
    ------
    TypeError, ValueError, IndexError
        `operator` is no ContentBias, q and k are not arrays (H, N, D) of one shape, `words` does not have N entries, or
        `head` is not below H.

    Examples
    --------
    Words of two kinds: the first kind looks for the key before it, the second for the key after it.

    >>> import numpy as np, posenc, posenc.plot
    >>> kinds = np.eye(2)[[0, 1, 1, 0]][None]
    >>> before_and_after = posenc.shaw(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
    >>> figure = posenc.plot.logits(before_and_after, kinds, kinds, words=["a", "b", "b", "a"])
    >>> figure.axes[0].get_title()
    'posenc.shaw'
    """
    if not isinstance(operator, ContentBias):
        has = f"type {type(operator).__name__}"
        fail(TypeError, "operator", has, "an operator that reads q and k; posenc.plot.bias draws others")
    shape = np.shape(q)
    if len(shape) != 3 or 0 in shape:
        fail(ValueError, "q", f"shape {shape}", "three axes (H, N, D), not empty")
    if np.shape(k) != shape:
        fail(ValueError, "k", f"shape {np.shape(k)}", f"{shape}, that of q")
    heads, n, width = shape
    added = operator.logits(q, k)[canvas.as_index("head", head, 0)].astype(np.float64) / np.sqrt(width)
    if any(part.name == "cope" for part in operator.parts):
        added[np.triu_indices(n, 1)] = np.nan
    greatest = float(np.nanmax(abs(added)))
    figure, axes = canvas.draw_logits(ax, added, operator, head, heads)
    axes.images[0].set(cmap=canvas.DIVERGING, clim=(-greatest, greatest))  # white at 0, whatever the signs
    if words is not None:
        axes.set_xticks(range(n), words, rotation=90)
        axes.set_yticks(range(n), words)
    return figure


@door
def triangles(values: npt.ArrayLike, *, ax: Axes | None = None) -> Figure:
    """Draw the distance against the correlation of all pairs of positions.

    The colour is the distance of the two positions, ``|i - j|``. The matrices of the distances and of the correlations
    of encodings are symmetric, so the entries above the diagonals show all pairs.

    Parameters
    ----------
    values : array (N, d)
        An encoding of at least 2 positions.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        `values` does not consist of two axes of numbers, or has one row.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.triangles(posenc.sinusoidal(64, 32, base=10.0))
    >>> sum(len(line.get_xdata()) for line in figure.axes[0].get_lines())
    2016
    """
    encoding = canvas.as_matrix("values", values)
    n = len(encoding)
    if n < 2:
        fail(ValueError, "values", "1 position", "at least 2")
    cloud = analysis.triangle_points(analysis.distance_matrix(encoding), analysis.correlation_matrix(encoding)).upper
    figure, axes = canvas.axes_of(ax)
    i, j = np.triu_indices(n, 1)
    count = min(SHADES, n - 1)
    shade = (j - i - 1) * count // (n - 1)
    colors = canvas.shades(count)
    # One call for each colour is five times faster than a scatter plot. Neighbours are drawn last, on top.
    for number in reversed(range(count)):
        x, y = cloud[shade == number].T
        axes.plot(x, y, "o", color=colors[number], markersize=1.4, markeredgewidth=0, linestyle="")
    axes.set(xlabel="correlation of i and j", ylabel="distance of i and j", title="Pairs of positions")
    axes.grid(alpha=0.3)
    scale = ScalarMappable(Normalize(1, n), ListedColormap(colors))
    figure.colorbar(scale, ax=axes, label="|i - j|, positions")
    return figure


@door
def extrapolation(
    frequencies: PairFrequencies,
    train_length: int,
    test_length: int,
    *,
    test_frequencies: PairFrequencies | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw which angles of RoPE are new beyond the training length, by pair and distance.

    Parameters
    ----------
    frequencies : array (e,) or RopeFrequencies
        Frequencies in training.
    train_length, test_length : int
        Distances below `train_length` occur in training, those below `test_length` in the test.
    test_frequencies : array (e,) or RopeFrequencies, optional
        Frequencies of the test, if they are scaled; by default `frequencies`.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure
        A cell is 0 at a trained distance, 1 at a new distance with a trained angle, and 2 at a new angle.

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.rope_coverage`.

    Examples
    --------
    >>> import posenc.plot
    >>> figure = posenc.plot.extrapolation([1.0, 0.01], 64, 128)
    >>> figure.axes[0].images[0].get_array()[:, [0, 64, 127]].tolist()
    [[0, 1, 1], [0, 2, 2]]
    """
    seen = analysis.rope_coverage(frequencies, train_length, test_length=test_length, test_frequencies=test_frequencies)
    tested = np.asarray(frequencies if test_frequencies is None else test_frequencies, np.float64)
    distances = np.arange(0, test_length, -(-test_length // MOST_COLUMNS))
    arc_end = np.where(seen.covered < 1, seen.covered, np.inf)[:, None] * (1 + 1e-12)
    turns = distances * tested[:, None] / (2 * np.pi) % 1
    cells = np.where(turns > arc_end, 2, 1)
    cells[:, distances < train_length] = 0
    figure, axes = canvas.axes_of(ax)
    colors = ListedColormap(list(CELLS.values()))
    edges = (-0.5, test_length - 0.5, len(cells) - 0.5, -0.5)
    axes.imshow(cells, aspect="auto", interpolation="nearest", cmap=colors, vmin=0, vmax=2, extent=edges)
    axes.set(xlabel="distance of key and query", ylabel="pair, fast to slow")
    handles = [Patch(facecolor=color, label=name) for name, color in CELLS.items()]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    axes.set_title(f"Angles that are new beyond {train_length} positions", pad=LEGEND_ABOVE)
    return figure


@door
def attention_maps(
    maps: Mapping[str, Sequence[npt.ArrayLike]],
    words: Sequence[Sequence[str]],
    rows: Sequence[str],
    *,
    label: str = "weight",
) -> Figure:
    """Draw attention weights as images: a column for each scheme, a row for each text.

    The images of a text share one colour scale. After six schemes the columns continue below.

    Parameters
    ----------
    maps : mapping of str to sequence of arrays (N, N)
        For each scheme one matrix per text, queries downwards. If some weights of a text are negative, white is 0.
        Entries that are NaN stay empty: keys that a query does not see.
    words : sequence of sequences of str
        The tokens of each text.
    rows : sequence of str
        The names of the texts.
    label : str
        The name of the numbers, for the colour bars.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        A scheme does not have one matrix (N, N) for each text of N tokens, or there is no text.

    Examples
    --------
    Attention without positions gives equal words equal weights:

    >>> import numpy as np, posenc, posenc.plot
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> weights = posenc.attention(x[None], x[None], np.eye(3)[None])[0]
    >>> figure = posenc.plot.attention_maps({"no positions": [weights]}, [["to", "be", "to"]], ["a text"])
    >>> [axes.get_title() for axes in figure.axes]
    ['no positions', '']
    """
    matrices = {name: [canvas.as_matrix("maps", one) for one in of_texts] for name, of_texts in maps.items()}
    shapes = [(len(text), len(text)) for text in words]
    for name, of_texts in matrices.items():
        found = [one.shape for one in of_texts]
        if found != shapes or len(rows) != len(shapes):
            fail(ValueError, "maps", f"shapes {found} for {name!r}", f"{shapes}, and {len(rows)} rows")
    names = list(matrices)
    bands = [names[first : first + MAPS_PER_ROW] for first in range(0, len(names), MAPS_PER_ROW)]
    across, down = len(bands[0]), len(rows)
    width = 2.6 * across + 1.6
    points = 10.0 * max(1.0, width / PAGE)
    figure = Figure(figsize=(width, 2.8 * down * len(bands)), layout="constrained")
    grid = figure.subplots(down * len(bands), across, squeeze=False)
    for row, (row_name, text) in enumerate(zip(rows, words, strict=True)):
        scale = canvas.color_scale(np.stack([of_texts[row] for of_texts in matrices.values()]))
        signed = scale["vmin"] < 0
        if not signed:
            scale["vmin"] = 0.0
        for band, schemes in enumerate(bands):
            line = grid[band * down + row]
            for axes, scheme in zip(line, schemes, strict=False):
                axes.imshow(matrices[scheme][row], **scale)
                axes.set_xticks(range(len(text)), text, rotation=90, fontsize=points)
                axes.set_yticks(range(len(text)), text if axes is line[0] else [], fontsize=points)
                axes.set_title(scheme if row == 0 else "", fontsize=points)
                axes.set_xlabel("key" if row == down - 1 else "", fontsize=points)
            for axes in line[len(schemes) :]:
                axes.axis("off")
            line[0].set_ylabel(f"{row_name}\n\nquery", fontsize=points)
            bar = figure.colorbar(line[0].images[0], ax=list(line), shrink=0.8)
            bar.set_label(f"change of {label}" if signed else label, fontsize=points)
            bar.ax.tick_params(labelsize=points)
    return figure


def comparison(got: Float64, wanted: Float64, title: str, labels: tuple[str, str]) -> Figure:
    """Draw a matrix, the right matrix in the same colours, and the size of their difference.

    The first label names the rows, the second the columns. Rows without a label have no ticks.
    """
    got, wanted = (np.where(np.isfinite(x), x, np.nan) for x in (got, wanted))
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    scale = canvas.color_scale(np.nan_to_num(wanted))
    difference = abs(got - wanted), {"cmap": "Reds", "vmin": 0.0}
    panels = {"yours": (got, scale), "right": (wanted, scale), "|difference|": difference}
    for axes, (name, (values, colours)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        image = axes.imshow(values, aspect="auto", interpolation="nearest", **colours)
        axes.set(xlabel=labels[1], ylabel=labels[0])
        axes.set_title(name, fontsize="medium")
        for axis, label in zip((axes.yaxis, axes.xaxis), labels, strict=True):
            axis.set_major_locator(MaxNLocator(integer=True) if label else NullLocator())
        figure.colorbar(image, ax=axes)
    figure.suptitle(title)
    return figure
