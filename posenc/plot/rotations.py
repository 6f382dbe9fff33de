"""RoPE pair by pair: what scalings do, and which angles are new past the trained length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._core_api.arguments import as_index
from ..analysis.bands import rope_bands as bands_of
from ..analysis.bands import rope_coverage
from ..analysis.curves import as_pair_numbers
from ._canvas import axes_of, style

__all__ = ["extrapolation", "rope_bands"]

SEEN = {"trained distance": "#cfcfcf", "new distance, angle seen": "#56b4e9", "angle never seen": "#d55e00"}


def rope_bands(scalings: Mapping[str, Any], original: Any, *, train_length: int, ax: Axes | None = None) -> Figure:
    """What scalings of RoPE do to each pair: frequency after over before.

    Parameters
    ----------
    scalings : mapping of str to array (e,) or RopeFrequencies
        By the name in the legend.
    original : array (e,) or RopeFrequencies
        Without a scaling.
    train_length : int
        In which turns are counted: pairs right of the dotted line have not gone around once.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

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
    function = "rope_bands"
    bands = {name: bands_of(w, original, train_length=train_length) for name, w in scalings.items()}
    figure, axes = axes_of(function, ax)
    for number, (name, band) in enumerate(bands.items()):
        axes.plot(band.ratio, label=name, linewidth=1.8, **style(number))
    axes.set(xlabel="pair, fast to slow", ylabel="frequency after / before", yscale="log")
    least = min([1.0, *(band.ratio[band.ratio > 0].min(initial=1.0) for band in bands.values())])
    ticks = [2.0**-k for k in range(int(np.ceil(-np.log2(least) - 1e-9)) + 1)][:12]
    axes.set_yticks(ticks, [f"1/{1 / tick:g}" if tick < 1 else "1" for tick in ticks])
    axes.minorticks_off()
    for band in list(bands.values())[:1]:
        slow = int((band.turns >= 1).sum())
        axes.axvline(slow - 0.5, color="0.4", linewidth=1, linestyle=":", label=f"less than a turn in {train_length}")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def extrapolation(
    frequencies: Any,
    train_length: int,
    test_length: int,
    *,
    test_frequencies: Any = None,
    ax: Axes | None = None,
) -> Figure:
    """Which angles of RoPE are new to a model past its trained length, pair by pair and distance by distance.

    Parameters
    ----------
    frequencies : array (e,) or RopeFrequencies
        Those of training.
    train_length, test_length : int
        Distances below the first occurred, those below the second will.
    test_frequencies : array (e,) or RopeFrequencies, optional
        Those of the test, where they were scaled.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure
        The cells are 0 at trained distances, 1 at new ones with angles that were seen, 2 where the angle is new.

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
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    function = "extrapolation"
    seen = rope_coverage(frequencies, train_length, test_length=test_length, test_frequencies=test_frequencies)
    new = as_pair_numbers(function, "frequencies", frequencies if test_frequencies is None else test_frequencies)
    distances = np.arange(as_index(function, "test_length", test_length, 1))
    arc = np.where(seen.covered < 1, seen.covered, np.inf)[:, None] * (1 + 1e-12)
    angle = distances * new[:, None] / (2 * np.pi) % 1
    cells = np.where(angle > arc, 2, 1)
    cells[:, :train_length] = 0
    figure, axes = axes_of(function, ax)
    axes.imshow(cells, aspect="auto", interpolation="nearest", cmap=ListedColormap(list(SEEN.values())), vmin=0, vmax=2)
    axes.set(xlabel="distance of key and query", ylabel="pair, fast to slow")
    handles = [Patch(facecolor=color, label=name) for name, color in SEEN.items()]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    return figure
