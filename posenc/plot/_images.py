"""Matrices as images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from .. import ContentBias, analysis
from .._core_api.door import door
from . import _canvas as canvas
from ._canvas import Array, Float64, PairFrequencies, fail, fail_kind

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
CELLS = {"trained distance": "#cfcfcf", "new distance, trained angle": "#56b4e9", "new angle": "#d55e00"}
"""Colours of the cells 0, 1 and 2 of `extrapolation`."""
MOST_COLUMNS = 8192
"""Distances that `extrapolation` draws; of more, each second one, or each third one, and so on."""
LEGEND_ABOVE = 26.0
"""Points between axes and title, for a line of the legend."""


@door
def encoding(encoding: npt.ArrayLike, *, layout: Layout | None = "interleaved", ax: Axes | None = None) -> Axes:
    """Draw an encoding as an image: positions downwards, channels across, white at 0.

    Parameters
    ----------
    encoding : array (N, d)
        From `sinusoidal`, `learned` and so on.
    layout : {"interleaved", "half"} or None
        Order of the channels in `encoding`, as in `sinusoidal`. The picture shows the first channels of all pairs, a
        line, and the second channels: neighbouring columns then have neighbouring frequencies. None draws channels
        that have no pairs, in their own order.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError, ValueError
        `encoding` does not consist of two axes of numbers, or `layout` is unknown.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.encoding(posenc.sinusoidal(64, 32))
    >>> ax.images[0].get_array().shape
    (64, 32)
    """
    if layout is not None:
        canvas.check_choice("layout", layout, LAYOUTS)
    matrix = canvas.as_encoding(encoding)
    channels = np.arange(matrix.shape[1])
    if layout == "interleaved":
        channels = np.concatenate([channels[0::2], channels[1::2]])
    labels = {"xlabel": "channel", "ylabel": "position", "title": f"Encoding of {len(matrix)} positions"}
    axes = canvas.draw_image(ax, matrix[:, channels], "encoding", labels)
    if layout is not None:
        first = -(-len(channels) // 2)
        ticks = [k for start, end in ((0, first), (first, len(channels))) for k in range(start, end, -(-first // 4))]
        axes.set_xticks(ticks, [str(channels[k]) for k in ticks])
        axes.axvline(first - 0.5, color="black", linewidth=1)
        axes.set_xlabel(f"channel: {LAYOUTS[layout]}")
    return axes


@door
def similarity(encoding: npt.ArrayLike, *, kind: Kind = "product", ax: Axes | None = None) -> Axes:
    """Draw the inner products, distances or correlations of all pairs of positions as an image.

    Parameters
    ----------
    encoding : array (N, d)
        One row per position; not a matrix of all pairs of positions.
    kind : {"product", "distance", "correlation"}
        `posenc.analysis.gram_matrix`, `distance_matrix` or `correlation_matrix`.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError, ValueError
        `encoding` does not consist of two axes of numbers or is a symmetric matrix, or `kind` is unknown.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.similarity(posenc.sinusoidal(64, 32), kind="distance")
    >>> ax.images[0].get_array().shape
    (64, 64)
    """
    canvas.check_choice("kind", kind, KINDS)
    matrix_of, label, title = KINDS[kind]
    matrix = matrix_of(canvas.as_encoding(encoding))
    labels = {"xlabel": "position", "ylabel": "position", "title": title}
    return canvas.draw_image(ax, matrix, label, labels, "equal")


@door
def logits(
    bias: ContentBias,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    words: Sequence[str] | None = None,
    head: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw what a bias that reads q and k adds to their logits, as an image: queries downwards.

    White is 0. A term that reads the query differs between rows of different content, and one that reads the key
    between columns.

    Parameters
    ----------
    bias : ContentBias
        From `shaw`, `relative_key_query`, `transformer_xl`, `deberta` or `cope`.
    q, k : array (H, N, D)
        Queries and keys at the positions 0 .. N-1. The logits are `ContentBias.logits` times ``D**-0.5``.
    words : sequence of N str, optional
        Names of the positions.
    head : int
        The head to draw.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes
        Keys after the query stay empty if the operator counts keys (`cope`).

    Raises
    ------
    TypeError, ValueError, IndexError
        `bias` is no ContentBias, q and k are not arrays (H, N, D) of one shape, `words` does not have N entries, or
        `head` is not below H.

    Examples
    --------
    Words of two kinds: the first kind looks for the key before it, the second for the key after it.

    >>> import numpy as np, posenc, posenc.plot
    >>> kinds = np.eye(2)[[0, 1, 1, 0]][None]
    >>> before_and_after = posenc.shaw(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
    >>> ax = posenc.plot.logits(before_and_after, kinds, kinds, words=["a", "b", "b", "a"])
    >>> ax.get_title()
    'posenc.shaw'
    """
    if not isinstance(bias, ContentBias):
        fail_kind("bias", bias, "a bias that reads q and k, such as shaw(nezha(64))")
    shape = np.shape(q)
    if len(shape) != 3 or 0 in shape:
        fail(ValueError, "q", f"shape {shape}", "three axes (H, N, D), not empty")
    if np.shape(k) != shape:
        fail(ValueError, "k", f"shape {np.shape(k)}", f"{shape}, that of q")
    heads, n, width = shape
    if words is not None and len(words) != n:
        fail(ValueError, "words", f"{len(words)} entries", f"{n}, one for each position")
    added = bias.logits(q, k)[canvas.as_index("head", head, 0, heads)].astype(np.float64) / np.sqrt(width)
    if canvas.is_causal(bias):
        added[np.triu_indices(n, 1)] = np.nan
    greatest = float(np.nanmax(abs(added)))
    axes = canvas.draw_logits(ax, added, bias, head, heads)
    axes.images[0].set(cmap=canvas.DIVERGING, clim=(-greatest, greatest))  # white at 0, whatever the signs
    if words is not None:
        axes.set_xticks(range(n), words, rotation=90)
        axes.set_yticks(range(n), words)
    return axes


@door
def extrapolation(
    frequencies: PairFrequencies,
    train_length: int,
    test_length: int,
    *,
    test_frequencies: PairFrequencies | None = None,
    ax: Axes | None = None,
) -> Axes:
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
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes
        A cell is 0 at a trained distance, 1 at a new distance with a trained angle, and 2 at a new angle.

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.rope_coverage`.

    Examples
    --------
    >>> import posenc.plot
    >>> ax = posenc.plot.extrapolation([1.0, 0.01], 64, 128)
    >>> ax.images[0].get_array()[:, [0, 64, 127]].tolist()
    [[0, 1, 1], [0, 2, 2]]
    """
    after = frequencies if test_frequencies is None else canvas.as_frequencies("test_frequencies", test_frequencies)
    before = canvas.as_frequencies("frequencies", frequencies)
    with canvas.own_names("rope_coverage"):
        seen = analysis.rope_coverage(before, train_length, test_length=test_length, test_frequencies=after)
    tested = np.asarray(after, np.float64)
    distances = np.arange(0, test_length, -(-test_length // MOST_COLUMNS))
    arc_end = np.where(seen.covered < 1, seen.covered, np.inf)[:, None] * (1 + 1e-12)
    turns = distances * tested[:, None] / (2 * np.pi) % 1
    cells = np.where(turns > arc_end, 2, 1)
    cells[:, distances < train_length] = 0
    axes = canvas.axes_of(ax)
    colors = ListedColormap(list(CELLS.values()))
    edges = (-0.5, test_length - 0.5, len(cells) - 0.5, -0.5)
    axes.imshow(cells, aspect="auto", interpolation="nearest", cmap=colors, vmin=0, vmax=2, extent=edges)
    axes.set(xlabel="distance of key and query", ylabel="pair, fast to slow")
    handles = [Patch(facecolor=color, label=name) for name, color in CELLS.items()]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    axes.set_title(f"Angles that are new beyond {train_length} positions", pad=LEGEND_ABOVE)
    return axes


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
