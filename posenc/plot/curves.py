"""Curves against distance and against position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import Bias, analysis, sinusoidal, sinusoidal_frequencies
from .._core_api.door import door
from . import _canvas as canvas
from ._canvas import Array, PairFrequencies, fail

SCHEDULES: dict[str, dict[str, Any]] = {
    "$10000^{-t}$": {"base": 10000.0},
    "$1000^{-t}$": {"base": 1000.0},
    "$t$": {"schedule": "power"},
    "$t^2$": {"schedule": "power", "alpha": 2.0},
}
"""The four schedules of Su 2021 (kexue.fm/archives/8231)."""
RELATIVE_POSITION = "position of key - position of query"


def profile_of(argument: str, scheme: Bias | PairFrequencies | None, distances: Array) -> analysis.AttentionProfile:
    """Return the `attention_profile`; its errors name the argument of the user's call, and its `door` the function."""
    try:
        return analysis.attention_profile(scheme, distances)
    except (TypeError, ValueError, IndexError) as error:
        text = str(error).replace("attention_profile: scheme", f": {argument}")
        error.args = (text.replace("attention_profile:", ":"),)
        raise


@door
def decay(
    distances: npt.ArrayLike | None = None,
    *,
    schedules: Mapping[str, Mapping[str, Any]] = SCHEDULES,
    dim: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the inner product of two sinusoidal encodings against their distance, for several theta(t).

    Parameters
    ----------
    distances : array (M,), optional
        By default -128 .. 128.
    schedules : mapping of str to dict
        Options of `posenc.analysis.decay` by their name in the legend; by default the four schedules of Su 2021
        (kexue.fm/archives/8231).
    dim : int, optional
        Width of the encoding, for the mean over its pairs. None is the integral.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.decay`.

    Examples
    --------
    >>> import posenc.plot
    >>> figure = posenc.plot.decay(range(-20, 21), dim=128)
    >>> len(figure.axes[0].get_lines())
    5
    """
    x = np.arange(-128, 129) if distances is None else np.asarray(distances)
    curves = {f"θ(t) = {name}": analysis.decay(x, dim=dim, **options).real for name, options in schedules.items()}
    title = "Inner product of two sinusoidal encodings, by distance"
    labels = {"title": title, "xlabel": "distance of two positions", "ylabel": "mean of cos(distance · θ)"}
    figure, axes = canvas.draw_curves(ax, x, curves, labels)
    axes.axhline(0, color="0.5", linewidth=1)
    return figure


@door
def distance_curves(values: npt.ArrayLike, *, positions: Iterable[int] | None = None, ax: Axes | None = None) -> Figure:
    """Draw the Euclidean distance of a few positions of an encoding from all others.

    Parameters
    ----------
    values : array (N, d)
        An encoding.
    positions : iterable of int, optional
        The rows to measure from; by default five from the first to the last.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError, IndexError
        `values` does not consist of two axes of numbers, or a row does not exist.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.distance_curves(posenc.sinusoidal(64, 32), positions=[0, 32])
    >>> len(figure.axes[0].get_lines())
    2
    """
    encoding = canvas.as_matrix("values", values)
    if positions is None:
        positions = np.unique(np.linspace(0, len(encoding) - 1, 5).astype(int))
    rows = [canvas.as_index("positions", row, 0) for row in positions]
    distances = analysis.distance_matrix(encoding)
    curves = {f"from position {row}": distances[row] for row in rows}
    labels = {"title": "Distance of a few positions from all others", "xlabel": "position", "ylim": (0, None)}
    return canvas.draw_curves(ax, range(len(encoding)), curves, {**labels, "ylabel": "distance of the encodings"})[0]


@door
def bias(
    operator: Bias, *, distances: npt.ArrayLike | None = None, legend: bool = True, ax: Axes | None = None
) -> Figure:
    """Draw the logits that a bias adds against the relative position, a curve for each head.

    Parameters
    ----------
    operator : Bias
        An operator that reads positions. The query is at position 0.
    distances : array (M,), optional
        Position of the key minus position of the query; by default -64 .. 64.
    legend : bool
        Draw a legend if there are several heads.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError
        `operator` is not a Bias, reads q and k, or reads no positions (`dense`, `toeplitz`).
    IndexError
        A distance leaves the table of an operator that indexes by position (`swin`, `beit`, `fox`). Pass `distances`
        from 0 on.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.bias(posenc.alibi(posenc.alibi_slopes(8)))
    >>> len(figure.axes[0].get_lines())
    8
    """
    if not isinstance(operator, Bias):
        fail(TypeError, "operator", f"type {type(operator).__name__}", "a Bias")
    rel = np.arange(-64, 65) if distances is None else np.asarray(distances)
    logits = profile_of("operator", operator, rel).logits
    curves = {f"head {head}": curve for head, curve in enumerate(logits)}
    labels = {"title": canvas.title_of(operator), "xlabel": RELATIVE_POSITION, "ylabel": "added to the logit"}
    colors, has_legend = canvas.shades(len(logits)), legend and len(logits) > 1
    return canvas.draw_curves(ax, rel, curves, labels, colors=colors, legend=has_legend)[0]


@door
def biases(operators: Mapping[str, Bias], *, distances: npt.ArrayLike | None = None) -> Figure:
    """Draw several biases side by side, three to a row, each as `bias` does.

    Parameters
    ----------
    operators : mapping of str to Bias
        Operators that read positions, by the title above each.
    distances : array (M,), optional
        As in `bias`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        As `bias`, or there is no operator.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.biases({"alibi": posenc.alibi([1.0]), "kerple": posenc.kerple_log([1.0], [1.0])})
    >>> [axes.get_title() for axes in figure.axes]
    ['alibi', 'kerple']
    """
    if not operators:
        fail(ValueError, "operators", "no entries", "at least one")
    across = min(len(operators), 3)
    down = -(-len(operators) // across)
    figure = Figure(figsize=(2.8 * across + 1.0, 2.7 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).reshape(-1)
    for number, (axes, (name, operator)) in enumerate(zip(grid, operators.items(), strict=False)):
        bias(operator, distances=distances, legend=False, ax=axes)
        axes.set(title=name, xlabel="key - query, positions", ylabel="" if number % across else axes.get_ylabel())
    for axes in grid[len(operators) :]:
        axes.remove()
    most_heads = max(grid[: len(operators)], key=lambda axes: len(axes.get_lines()))
    if len(most_heads.get_lines()) > 1:
        figure.legend(*most_heads.get_legend_handles_labels(), loc="outside right center")
    return figure


@door
def profile(
    schemes: Mapping[str, Bias | PairFrequencies | None],
    *,
    distances: npt.ArrayLike | None = None,
    head: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Draw the attention weight of keys of equal content against their relative position, for several schemes.

    Parameters
    ----------
    schemes : mapping of str to Bias, RopeFrequencies, array (e,) or None
        Schemes of `posenc.analysis.attention_profile` by their name in the legend.
    distances : array (M,), optional
        Relative positions of the keys that the query sees; by default -127 .. 0.
    head : int
        The head to draw; the last one of a scheme that has fewer. The legend names the head of a scheme with several.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        As `posenc.analysis.attention_profile`.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.profile({"alibi": posenc.alibi([0.5]), "rope": posenc.rope_frequencies(64)})
    >>> len(figure.axes[0].get_lines())
    2
    """
    rel = np.arange(-127, 1) if distances is None else np.asarray(distances)
    index = canvas.as_index("head", head, 0)
    curves = {}
    if not isinstance(schemes, Mapping):
        fail(TypeError, "schemes", f"type {type(schemes).__name__}", "a mapping, such as {'alibi': operator}")
    for name, scheme in schemes.items():
        weights = profile_of("schemes", scheme, rel).weights
        shown, heads = min(index, len(weights) - 1), len(weights)
        curves[f"{name},\nhead {shown} of {heads}" if heads > 1 else name] = weights[shown]
    labels = {"title": "Attention to keys of equal content", "xlabel": RELATIVE_POSITION, "yscale": "log"}
    return canvas.draw_curves(ax, rel, curves, {**labels, "ylabel": "attention weight"})[0]


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
    bands = {name: analysis.rope_bands(w, original, train_length=train_length) for name, w in scalings.items()}
    least = min([1.0, *(band.ratio[band.ratio > 0].min(initial=1.0) for band in bands.values())])
    ticks = [2.0**-k for k in range(int(np.ceil(-np.log2(least) - 1e-9)) + 1)][:12]
    title = "Frequencies of a rotary embedding after a scaling"
    labels = {"title": title, "xlabel": "pair, fast to slow", "ylabel": "frequency after / before", "yscale": "log"}
    ratios = {name: band.ratio for name, band in bands.items()}
    figure, axes = canvas.draw_curves(ax, range(np.size(original)), ratios, labels)
    axes.set_yticks(ticks, [f"1/{1 / tick:g}" if tick < 1 else "1" for tick in ticks])
    axes.minorticks_off()
    for band in list(bands.values())[:1]:
        pairs_with_a_turn = int((band.turns >= 1).sum())
        label = f"right: less than a\nturn in {train_length}"
        axes.axvline(pairs_with_a_turn - 0.5, color="0.4", linewidth=1, linestyle=":", label=label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


@door
def precision(*, pairs: int = 32, ax: Axes | None = None) -> Figure:
    """Draw the error of float32 sinusoids against the position, of the usual formula and of `sinusoidal`.

    The error is the largest difference of a sine or cosine from that of `sinusoidal` in float64.

    Parameters
    ----------
    pairs : int
        Number of frequencies of the encoding.
    ax : Axes, optional
        Axes to draw on; by default the axes of a new Figure.

    Returns
    -------
    matplotlib.figure.Figure
        Errors at positions from 1 to 2**53, four random ones in each octave.

    Raises
    ------
    TypeError, ValueError
        `pairs` is not a positive integer.

    Examples
    --------
    >>> import posenc.plot
    >>> figure = posenc.plot.precision(pairs=4)
    >>> len(figure.axes[0].get_lines())
    3
    """
    frequencies = sinusoidal_frequencies(2 * canvas.as_index("pairs", pairs, 1))
    octaves = 2.0 ** np.arange(0, 53)
    positions = np.floor(octaves[:, None] * np.random.default_rng(0).uniform(1, 2, 4)).astype(np.int64).reshape(-1)
    product = positions.astype(np.float32)[:, None] * frequencies.astype(np.float32)
    encodings = {
        "posenc.sinusoidal": sinusoidal(positions, 2 * pairs, frequencies=frequencies, layout="half"),
        "usual formula,\nfloat32(p) * float32(w)": np.concatenate([np.sin(product), np.cos(product)], -1),
    }
    exact = sinusoidal(positions, 2 * pairs, frequencies=frequencies, layout="half", dtype=np.float64)
    errors = {name: abs(x - exact).reshape(len(octaves), -1).max(axis=1) for name, x in encodings.items()}
    _, axes = canvas.axes_of(ax)
    axes.axhline(2.0**-24, color="0.5", linewidth=1, linestyle=":", label="$2^{-24}$, spacing of\nfloat32 below 1")
    axes.set_xscale("log", base=2)
    labels = {"xlabel": "position", "ylabel": f"largest error of sin and cos, {pairs} frequencies", "yscale": "log"}
    title = "Error of float32 encodings, against exact angles"
    return canvas.draw_curves(axes, octaves, errors, {"title": title, "xlim": (1, 2.0**53), **labels})[0]
