"""RoPE pair by pair: the effect of scalings, and the angles that are new beyond the training length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .._core_api.arguments import door
from ..analysis import rope_bands as bands_of
from ..analysis import rope_coverage
from ._arguments import PairFrequencies
from ._canvas import axes_of, finish_curves
from .styles import line_style

CELLS = {"trained distance": "#cfcfcf", "new distance, trained angle": "#56b4e9", "new angle": "#d55e00"}
"""Colours of the cells 0, 1 and 2 of `extrapolation`."""
LEGEND_ABOVE = 26.0
"""Points between axes and title, for a line of the legend."""


@door
def rope_bands(
    scalings: Mapping[str, PairFrequencies], original: PairFrequencies, *, train_length: int, ax: Axes | None = None
) -> Figure:
    """Draw the frequency of each RoPE pair after a scaling divided by that before, for several scalings.

    Parameters
    ----------
    scalings : mapping of str to array (e,) or RopeFrequencies
        Scaled frequencies by their name in the legend.
    original : array (e,) or RopeFrequencies
        The frequencies without a scaling.
    train_length : int
        Number of positions in which turns are counted. Pairs to the right of the dotted line make less than one turn.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.rope_bands`.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> plain, halved = posenc.rope_frequencies(64), posenc.rope_frequencies(64, rope_type="linear", factor=2)
    >>> figure = posenc.plot.rope_bands({"PI": halved}, plain, train_length=512)
    >>> figure.axes[0].get_lines()[0].get_ydata()[:2]
    array([0.5, 0.5])
    """
    bands = {name: bands_of(scaled, original, train_length=train_length) for name, scaled in scalings.items()}
    figure, axes = axes_of(ax)
    for number, (name, band) in enumerate(bands.items()):
        axes.plot(band.ratio, label=name, linewidth=1.8, **line_style(number))
    axes.set(xlabel="pair, fast to slow", ylabel="frequency after / before", yscale="log")
    least = min([1.0, *(band.ratio[band.ratio > 0].min(initial=1.0) for band in bands.values())])
    ticks = [2.0**-k for k in range(int(np.ceil(-np.log2(least) - 1e-9)) + 1)][:12]
    axes.set_yticks(ticks, [f"1/{1 / tick:g}" if tick < 1 else "1" for tick in ticks])
    axes.minorticks_off()
    for band in list(bands.values())[:1]:
        pairs_with_a_turn = int((band.turns >= 1).sum())
        label = f"right: less than a\nturn in {train_length}"
        axes.axvline(pairs_with_a_turn - 0.5, color="0.4", linewidth=1, linestyle=":", label=label)
    finish_curves(axes, "Frequencies of a rotary embedding after a scaling", legend=True)
    return figure


@door
def extrapolation(
    frequencies: PairFrequencies, train_length: int, test_length: int, *, test_frequencies: PairFrequencies | None =
    None, ax: Axes | None = None,
) -> Figure:  # fmt: skip
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
    coverage = rope_coverage(frequencies, train_length, test_length=test_length, test_frequencies=test_frequencies)
    tested = np.asarray(frequencies if test_frequencies is None else test_frequencies, np.float64)
    distances = np.arange(test_length)
    arc_end = np.where(coverage.covered < 1, coverage.covered, np.inf)[:, None] * (1 + 1e-12)
    turns = distances * tested[:, None] / (2 * np.pi) % 1
    cells = np.where(turns > arc_end, 2, 1)
    cells[:, :train_length] = 0
    figure, axes = axes_of(ax)
    colors = ListedColormap(list(CELLS.values()))
    axes.imshow(cells, aspect="auto", interpolation="nearest", cmap=colors, vmin=0, vmax=2)
    axes.set(xlabel="distance of key and query", ylabel="pair, fast to slow")
    handles = [Patch(facecolor=color, label=name) for name, color in CELLS.items()]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    axes.set_title(f"Angles that are new beyond {train_length} positions", pad=LEGEND_ABOVE)
    return figure
