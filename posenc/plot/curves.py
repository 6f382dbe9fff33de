"""Lines: against distance, position, and the size of positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._core_api.arguments import Array, as_index, fail
from ..absolute.frequency import frequencies as all_frequencies
from ..absolute.sinusoid import sinusoidal
from ..analysis.curves import decay as decay_curve
from ..analysis.curves import as_places
from ..analysis.matrices import distance_matrix
from ..analysis.profiles import attention_profile
from ..bias.operator import Bias
from ._canvas import COLORS, STYLES, axes_of, matrix, shades, style

__all__ = ["bias", "biases", "decay", "distance_curves", "precision", "profile"]

SCHEDULES: dict[str, dict[str, Any]] = {
    "$10000^{-t}$": {"base": 10000.0},
    "$1000^{-t}$": {"base": 1000.0},
    "$t$": {"schedule": "power"},
    "$t^2$": {"schedule": "power", "alpha": 2.0},
}
"""The four of Su 2021."""
KEY = "position of key - position of query"


def axis(function: str, argument: str, value: Any) -> Array:
    array = as_places(function, argument, value)
    if array.ndim != 1 or len(array) == 0:
        fail(ValueError, function, argument, f"shape {array.shape}", "one axis, not empty")
    return array


def decay(
    distances: npt.ArrayLike | None = None,
    *,
    schedules: Mapping[str, Mapping[str, Any]] = SCHEDULES,
    dim: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """How the inner product of two positions falls with their distance, for several theta(t).

    Parameters
    ----------
    distances : array (M,), optional
        -128 .. 128 unless given.
    schedules : mapping of str to options
        What `posenc.analysis.decay` takes, by the name in the legend.
    dim : int, optional
        Width for the finite mean; None is the integral, which needs scipy.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

    Raises
    ------
    ImportError, TypeError, ValueError
        As `posenc.analysis.decay`.

    Examples
    --------
    >>> import posenc.plot
    >>> figure = posenc.plot.decay(range(-20, 21), dim=128)
    >>> len(figure.axes[0].get_lines())
    5
    """
    function = "decay"
    x = np.arange(-128, 129) if distances is None else axis(function, "distances", distances)
    curves = {name: decay_curve(x, dim=dim, **options).real for name, options in schedules.items()}
    figure, axes = axes_of(function, ax)
    axes.axhline(0, color="0.5", linewidth=1)
    for number, (name, curve) in enumerate(curves.items()):
        axes.plot(x, curve, label=f"θ(t) = {name}", linewidth=1.8, **style(number))
    axes.set(xlabel="distance of two positions", ylabel="mean of cos(distance · θ)")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def distance_curves(values: npt.ArrayLike, *, positions: Any = None, ax: Axes | None = None) -> Figure:
    """How far chosen positions of an encoding are from all others.

    Parameters
    ----------
    values : array (N, d)
        An encoding.
    positions : sequence of int, optional
        Rows; five from first to last unless given.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError, ValueError, IndexError
        Not two axes of numbers; a row that does not exist.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.distance_curves(posenc.sinusoidal(64, 32), positions=[0, 32])
    >>> len(figure.axes[0].get_lines())
    2
    """
    function = "distance_curves"
    shown = matrix(function, "values", values)
    n = len(shown)
    given = np.unique(np.linspace(0, n - 1, 5).astype(int)) if positions is None else positions
    rows = [as_index(function, "positions", row, 0) for row in given]
    if any(row >= n for row in rows):
        fail(IndexError, function, "positions", f"row {max(rows)}", f"rows below {n}")
    distances = distance_matrix(shown)
    figure, axes = axes_of(function, ax)
    for number, row in enumerate(rows):
        axes.plot(distances[row], label=f"from position {row}", linewidth=1.6, **style(number))
    axes.set(xlabel="position", ylabel="distance of the encodings", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def bias(
    operator: Bias, *, distances: npt.ArrayLike | None = None, legend: bool = True, ax: Axes | None = None
) -> Figure:
    """What a bias adds to the logits by distance, a line for each head.

    Parameters
    ----------
    operator : Bias
        That reads positions. The query stands at 0.
    distances : array (M,), optional
        Position of the key minus that of the query; -64 .. 64 unless given.
    legend : bool
        Whether to name the heads, where there are several.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError, ValueError
        No Bias, or one that reads q and k.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.bias(posenc.alibi(posenc.alibi_slopes(8)))
    >>> len(figure.axes[0].get_lines())
    8
    """
    function = "bias"
    if not isinstance(operator, Bias):
        fail(TypeError, function, "operator", f"type {type(operator).__name__}", "a Bias")
    x = np.arange(-64, 65) if distances is None else axis(function, "distances", distances)
    rows = attention_profile(operator, x).logits
    figure, axes = axes_of(function, ax)
    for head, (row, color) in enumerate(zip(rows, shades(len(rows)), strict=True)):
        axes.plot(x, row, color=color, label=f"head {head}")
    axes.set(xlabel=KEY, ylabel="added to the logit", title=f"posenc.{operator.name}")
    axes.grid(alpha=0.3)
    if legend and len(rows) > 1:
        axes.legend(fontsize="small", ncols=-(-len(rows) // 8))
    return figure


def biases(operators: Mapping[str, Bias], *, distances: npt.ArrayLike | None = None) -> Figure:
    """Several biases side by side, three to a line: `bias` of each.

    Parameters
    ----------
    operators : mapping of str to Bias
        By the name above each.
    distances : array (M,), optional
        As in `bias`.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError, ValueError
        As `bias`; no operator at all.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> figure = posenc.plot.biases({"alibi": posenc.alibi([1.0]), "kerple": posenc.kerple_log([1.0], [1.0])})
    >>> [axes.get_title() for axes in figure.axes]
    ['alibi', 'kerple']
    """
    if not operators:
        fail(ValueError, "biases", "operators", "no entries", "at least one")
    across = min(len(operators), 3)
    down = -(-len(operators) // across)
    figure = Figure(figsize=(4 * across + 1.0, 3.3 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes, (name, operator) in zip(grid, operators.items(), strict=False):
        bias(operator, distances=distances, legend=False, ax=axes)
        axes.set_title(name)
    for axes in grid[len(operators) :]:
        axes.remove()
    longest = max(grid[: len(operators)], key=lambda axes: len(axes.get_lines()))
    if len(longest.get_lines()) > 1:
        figure.legend(*longest.get_legend_handles_labels(), loc="outside right center")
    return figure


def profile(
    schemes: Mapping[str, Any], *, distances: npt.ArrayLike | None = None, head: int = 0, ax: Axes | None = None
) -> Figure:
    """What schemes do to attention by distance, with keys of equal content.

    Parameters
    ----------
    schemes : mapping of str to Bias or frequencies
        What `posenc.analysis.attention_profile` takes, by the name in the legend.
    distances : array (M,), optional
        Those that the query sees; -127 .. 0 unless given.
    head : int
        Which head to show; the last where there are fewer.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure

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
    function = "profile"
    x = np.arange(-127, 1) if distances is None else axis(function, "distances", distances)
    row = as_index(function, "head", head, 0)
    curves = {name: attention_profile(scheme, x).weights for name, scheme in schemes.items()}
    figure, axes = axes_of(function, ax)
    for number, (name, weights) in enumerate(curves.items()):
        axes.plot(x, weights[min(row, len(weights) - 1)], label=name, linewidth=1.6, **style(number))
    axes.set(xlabel=KEY, ylabel="weight of a key", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


TWO_PI = Fraction("6.283185307179586476925286766559005768394338798750211641949889")


def exact_angles(positions: Sequence[int], w: Array) -> Array:
    """position * frequency reduced to [-pi, pi) in rational arithmetic: nothing is rounded before the end."""
    products = [[Fraction(int(p)) * Fraction(float(one)) for one in w] for p in positions]
    return np.array([[float((x / TWO_PI + Fraction(1, 2)) % 1 * TWO_PI - TWO_PI / 2) for x in row] for row in products])


def precision(*, pairs: int = 32, ax: Axes | None = None) -> Figure:
    """What float32 sinusoids lose as positions grow: the usual formula and `sinusoidal`, against exact angles.

    Parameters
    ----------
    pairs : int
        Frequencies of the encoding.
    ax : Axes, optional
        Where to draw.

    Returns
    -------
    Figure
        Largest errors of sines and cosines at positions from 1 to 2**53, four in each octave.

    Raises
    ------
    TypeError, ValueError
        No positive number of pairs.

    Examples
    --------
    >>> import posenc.plot
    >>> figure = posenc.plot.precision(pairs=4)
    >>> len(figure.axes[0].get_lines())
    3
    """
    function = "precision"
    w = all_frequencies(2 * as_index(function, "pairs", pairs, 1))
    octaves = 2.0 ** np.arange(0, 53)
    positions = np.floor(octaves[:, None] * np.random.default_rng(0).uniform(1, 2, 4)).astype(np.int64)
    flat = positions.reshape(-1)
    angles = exact_angles(flat.tolist(), w)
    exact = np.concatenate([np.sin(angles), np.cos(angles)], -1)
    ours = sinusoidal(flat, 2 * len(w), frequencies=w, layout="halves")
    product = flat.astype(np.float32)[:, None] * w.astype(np.float32)
    usual = np.concatenate([np.sin(product), np.cos(product)], -1)
    figure, axes = axes_of(function, ax)
    for numbers, label, number in (
        (usual, "usual formula: sin(float32(p) * float32(w))", 1),
        (ours, "posenc.sinusoidal", 0),
    ):
        worst = abs(numbers - exact).reshape(len(octaves), -1).max(axis=1)
        axes.plot(octaves, worst, label=label, linewidth=2, color=COLORS[number], linestyle=STYLES[number])
    axes.axhline(2.0**-24, color="0.5", linewidth=1, linestyle=":", label="$2^{-24}$, the last bit just below 1")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlim=(1, 2.0**53), xlabel="position", ylabel=f"largest error of sin and cos, {len(w)} frequencies")
    axes.set_title("Error of float32 encodings, against exact angles")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
