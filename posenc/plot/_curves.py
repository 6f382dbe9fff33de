"""Curves against distance and against position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import Bias, PositionBias, analysis
from .._core_api.door import door
from . import _canvas as canvas
from ._canvas import PairFrequencies, fail_kind

SCHEDULES: dict[str, dict[str, Any]] = {
    "$10000^{-t}$": {"base": 10000.0},
    "$1000^{-t}$": {"base": 1000.0},
    "$t$": {"schedule": "power"},
    "$t^2$": {"schedule": "power", "alpha": 2.0},
}
"""The four schedules of Su 2021 (kexue.fm/archives/8231)."""
RELATIVE_POSITION = "position of key - position of query"
LEAST_WEIGHT = 1e-6
"""Share of the largest weight at which `profile` cuts the curves, so that one does not flatten the others."""


@door
def decay(
    distances: npt.ArrayLike | None = None,
    *,
    schedules: Mapping[str, Mapping[str, Any]] = SCHEDULES,
    dim: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the inner product of two sinusoidal encodings against their distance, for several theta(t).

    Parameters
    ----------
    distances : int or array (M,), optional
        An int n means 0 .. n-1; by default -128 .. 128.
    schedules : mapping of str to dict
        Options of `posenc.analysis.decay` by their name in the legend; by default the four schedules of Su 2021
        (kexue.fm/archives/8231).
    dim : int, optional
        Width of the encoding, for the mean over its pairs. None is the integral.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.decay`; also frequencies in place of distances, or options without a name.

    Examples
    --------
    >>> import posenc.plot
    >>> ax = posenc.plot.decay(range(-20, 21), dim=128)
    >>> len(ax.get_lines())
    5
    """
    x = canvas.as_distances(distances, range(-128, 129))
    for options in schedules.values() if isinstance(schedules, Mapping) else [schedules]:
        if not isinstance(options, Mapping):
            fail_kind("schedules", options, "a mapping of names to options, such as {'base 10': {'base': 10.0}}")
    curves = {f"θ(t) = {name}": analysis.decay(x, dim=dim, **options).real for name, options in schedules.items()}
    title = "Inner product of two sinusoidal encodings, by distance"
    labels = {"title": title, "xlabel": "distance of two positions", "ylabel": "mean of cos(distance · θ)"}
    axes = canvas.draw_curves(ax, x, curves, labels)
    axes.axhline(0, color="0.5", linewidth=1)
    return axes


@door
def distance_curves(
    encoding: npt.ArrayLike, *, positions: SupportsIndex | Iterable[int] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the Euclidean distance of a few positions of an encoding from all others.

    Parameters
    ----------
    encoding : array (N, d)
        One row per position.
    positions : int or iterable of int, optional
        The rows to measure from. An int n means 0 .. n-1; by default five rows from the first to the last.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError, ValueError, IndexError
        `encoding` does not consist of two axes of numbers, or a row does not exist.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.distance_curves(posenc.sinusoidal(64, 32), positions=[0, 32])
    >>> len(ax.get_lines())
    2
    """
    matrix = canvas.as_encoding(encoding)
    if positions is None:
        positions = np.unique(np.linspace(0, len(matrix) - 1, 5).astype(int))
    some = positions if isinstance(positions, Iterable) else range(canvas.as_index("positions", positions, 1))
    rows = [canvas.as_index("positions", row, 0, len(matrix)) for row in some]
    distances = analysis.distance_matrix(matrix)
    curves = {f"from position {row}": distances[row] for row in rows}
    labels = {"title": "Distance of a few positions from all others", "xlabel": "position", "ylim": (0, None)}
    return canvas.draw_curves(ax, range(len(matrix)), curves, {**labels, "ylabel": "distance of the encodings"})


@door
def bias(
    bias: PositionBias, *, distances: npt.ArrayLike | None = None, legend: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw the logits that a bias adds against the relative position, a curve for each head.

    Parameters
    ----------
    bias : PositionBias
        A bias that reads positions. The query is at position 0.
    distances : int or array (M,), optional
        Position of the key minus position of the query. An int n means 1-n .. 0, the distances 0 .. n-1 before the
        query, as in `posenc.analysis.attention_profile`; by default -64 .. 64. A causal bias, such as `t5` with
        ``bidirectional=False``, is not drawn for keys after the query.
    legend : bool
        Draw a legend if there are several heads.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `bias` is not a PositionBias, or reads no positions (`dense`, `toeplitz`).
    IndexError
        A distance leaves the table of an operator that indexes by position (`swin`, `beit`, `fox`). Pass `distances`
        from 0 on.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.bias(posenc.alibi(posenc.alibi_slopes(8)))
    >>> len(ax.get_lines())
    8
    """
    if not isinstance(bias, PositionBias):
        fail_kind("bias", bias, "one bias that reads positions, such as alibi(alibi_slopes(8))")
    rel = canvas.as_distances(distances, range(-64, 65), before=True)
    rel = rel[rel <= 0] if canvas.is_causal(bias) else rel
    with canvas.own_names("attention_profile", "bias", "bias"):
        logits = analysis.attention_profile(bias, rel).logits
    curves = {f"head {head}": curve for head, curve in enumerate(logits)}
    labels = {"title": canvas.title_of(bias), "xlabel": RELATIVE_POSITION, "ylabel": "added to the logit"}
    colors, has_legend = canvas.shades(len(logits)), legend and len(logits) > 1
    return canvas.draw_curves(ax, rel, curves, labels, colors=colors, legend=has_legend)


@door
def biases(biases: PositionBias | Mapping[str, PositionBias], *, distances: npt.ArrayLike | None = None) -> Figure:
    """Draw several biases side by side, three to a row, each as `bias` does.

    Parameters
    ----------
    biases : mapping of str to PositionBias, or a PositionBias
        Biases that read positions, by the title above each.
    distances : int or array (M,), optional
        As in `bias`.

    Returns
    -------
    matplotlib.figure.Figure
        A figure of pyplot. In a notebook, end the line with a semicolon, or the figure is shown twice.

    Raises
    ------
    TypeError, ValueError
        As `bias`, or there is no bias.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.biases({"alibi": posenc.alibi([1.0]), "kerple": posenc.kerple_log([1.0], [1.0])})
    >>> [axes.get_title() for axes in figure.axes]
    ['alibi', 'kerple']
    """
    named = canvas.as_mapping("biases", biases, "a bias")
    for one in named.values():
        if not isinstance(one, PositionBias):
            fail_kind("biases", one, "biases that read positions, such as {'alibi': alibi(alibi_slopes(8))}")
    across = min(len(named), 3)
    down = -(-len(named) // across)
    figure = pyplot.figure(figsize=(2.8 * across + 1.0, 2.7 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).reshape(-1)
    for number, (axes, (name, one)) in enumerate(zip(grid, named.items(), strict=False)):
        bias(one, distances=distances, legend=False, ax=axes)
        axes.set(title=name, xlabel="key - query, positions", ylabel="" if number % across else axes.get_ylabel())
    for axes in grid[len(named) :]:
        axes.remove()
    most_heads = max(grid[: len(named)], key=lambda axes: len(axes.get_lines()))
    if len(most_heads.get_lines()) > 1:
        figure.legend(*most_heads.get_legend_handles_labels(), loc="outside right center")
    return figure


@door
def profile(
    schemes: Bias | PairFrequencies | Mapping[str, Bias | PairFrequencies | None] | None,
    *,
    distances: npt.ArrayLike | None = None,
    head: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw the attention weight of keys of equal content against their relative position.

    The axis ends at a millionth of the largest weight.

    Parameters
    ----------
    schemes : PositionBias, RopeFrequencies, array (e,) or None, or a mapping of str to these
        Schemes of `posenc.analysis.attention_profile` by their name in the legend.
    distances : int or array (M,), optional
        Relative positions of the keys that the query sees. An int n means 1-n .. 0; by default -127 .. 0.
    head : int
        The head to draw; the last one of a scheme that has fewer. The legend names the head of a scheme with several.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.attention_profile`; also a scheme that reads q and k.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.profile({"alibi": posenc.alibi([0.5]), "rope": posenc.rope_frequencies(64)})
    >>> len(ax.get_lines())
    2
    """
    rel = canvas.as_distances(distances, range(-127, 1), before=True)
    index = canvas.as_index("head", head, 0)
    what = "a bias that reads positions, or rotary frequencies"
    curves = {}
    for name, scheme in canvas.as_mapping("schemes", schemes, what).items():
        if isinstance(scheme, Bias) and not isinstance(scheme, PositionBias):
            fail_kind("schemes", scheme, what)
        with canvas.own_names("attention_profile", "bias", "schemes"):
            weights = analysis.attention_profile(scheme, rel).weights
        shown, heads = min(index, len(weights) - 1), len(weights)
        curves[f"{name},\nhead {shown} of {heads}" if heads > 1 else name] = weights[shown]
    labels = {"title": "Attention to keys of equal content", "xlabel": RELATIVE_POSITION, "yscale": "log"}
    axes = canvas.draw_curves(ax, rel, curves, {**labels, "ylabel": "attention weight"})
    largest = max(curve.max() for curve in curves.values())
    if axes.get_ylim()[0] < LEAST_WEIGHT * largest:
        axes.set_ylim(LEAST_WEIGHT * largest, 2 * largest)
    return axes


@door
def rope_bands(
    scaled: PairFrequencies | Mapping[str, PairFrequencies],
    original: PairFrequencies,
    *,
    train_length: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the frequency of each RoPE pair after a scaling divided by that before, for one or several scalings.

    Parameters
    ----------
    scaled : array (e,) or RopeFrequencies, or a mapping of str to these
        Scaled frequencies by their name in the legend.
    original : array (e,) or RopeFrequencies
        The frequencies without a scaling.
    train_length : int, optional
        Number of positions in which turns are counted. Pairs to the right of a dotted line make less than one turn.
    ax : Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.rope_bands`.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> plain, halved = posenc.rope_frequencies(64), posenc.rope_frequencies(64, rope_type="linear", factor=2)
    >>> ax = posenc.plot.rope_bands({"PI": halved}, plain, train_length=512)
    >>> ax.get_lines()[0].get_ydata()[:2]
    array([0.5, 0.5])
    """
    before = canvas.as_frequencies("original", original)
    length = 1 if train_length is None else train_length  # a ratio does not depend on it
    bands = {
        name: analysis.rope_bands(canvas.as_frequencies("scaled", w), before, train_length=length)
        for name, w in canvas.as_mapping("scaled", scaled, "frequencies").items()
    }
    least = min(1.0, *(band.ratio[band.ratio > 0].min(initial=1.0) for band in bands.values()))
    ticks = [2.0**-k for k in range(int(np.ceil(-np.log2(least) - 1e-9)) + 1)][:12]
    title = "Frequencies of a rotary embedding after a scaling"
    labels = {"title": title, "xlabel": "pair, fast to slow", "ylabel": "frequency after / before", "yscale": "log"}
    ratios = {name: band.ratio for name, band in bands.items()}
    turns = next(iter(bands.values())).turns
    axes = canvas.draw_curves(ax, range(len(turns)), ratios, labels, legend=train_length is None)
    axes.set_yticks(ticks, [f"1/{1 / tick:g}" if tick < 1 else "1" for tick in ticks])
    axes.minorticks_off()
    if train_length is not None:
        label = f"right: less than a\nturn in {length}"
        axes.axvline(int((turns >= 1).sum()) - 0.5, color="0.4", linewidth=1, linestyle=":", label=label)
        canvas.draw_legend(axes)
    return axes
