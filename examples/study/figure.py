"""The figure study.png: perplexity by the length of the windows, the range of the seeds as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from .evaluation import ByLength

OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Colours that remain distinct for colour-blind readers (Okabe and Ito 2008)."""
COLORS = (*OKABE_ITO, "#6a3d9a", "#8c564b", "#7f7f7f")
MARKERS = "osD^vP*X<>hpd8"
"""Markers distinguish the curves where colours do not."""
SHOWN = ("raw", "PI", "dynamic NTK", "NTK 32", "YaRN", "Self-Extend", "ReRoPE")
"""Extensions of RoPE in the figure; the table has all. "raw" is the scheme rope, with its name and colour."""
TICKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200)
"""Perplexities that get a tick."""

Curves = Mapping[str, Sequence[ByLength]]
"""The perplexities of each seed by method."""


def study_figure(trained: int, lengths: Sequence[int], methods: Curves, extensions: Curves) -> Figure:
    """Draw a panel for the methods, and one for the extensions of RoPE."""
    panels = [(f"Schemes, trained on windows of {trained} bytes", methods)]
    if extensions:
        shown = {"rope" if name == "raw" else name: extensions[name] for name in SHOWN}
        panels.append(("RoPE with extensions, not fine-tuned", shown))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for _, one in panels for name in one))}
    figure = Figure(figsize=(1 + 4.1 * len(panels), 4.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(grid, panels, strict=True):
        draw_panel(axes, trained, lengths, curves, numbers)
        axes.set_title(title)
    grid[0].set_ylabel("perplexity per byte")
    return figure


def draw_panel(axes: Axes, trained: int, tested: Sequence[int], curves: Curves, numbers: Mapping[str, int]) -> None:
    """Draw the mean of the seeds of each method, and their range as a band, in the style of its number."""
    ends = []
    for name, seeds in curves.items():
        lengths = [length for length in tested if seeds[0][length] is not None]
        perplexities = np.array([[seed[length] for length in lengths] for seed in seeds], float)
        color, marker = COLORS[numbers[name] % len(COLORS)], MARKERS[numbers[name] % len(MARKERS)]
        mean = perplexities.mean(0)
        axes.fill_between(lengths, perplexities.min(0), perplexities.max(0), color=color, alpha=0.25, linewidth=0)
        axes.plot(lengths, mean, color=color, marker=marker, markersize=5, linewidth=1.6, label=name)
        ends.append((float(mean[-1]), lengths[-1], name, color))
    axes.axvline(trained, color="0.5", linestyle=":", linewidth=1.2, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="bytes in a window (dotted: training)")
    axes.set_xticks(tested, [str(length) for length in tested])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.spines[["top", "right"]].set_visible(False)
    label_ends(axes, ends, np.log(high / low))


def label_ends(axes: Axes, ends: list[tuple[float, int, str, str]], log_range: float) -> None:
    """Write each name at the end of its curve (perplexity, length, name, colour).

    Names of curves that reach the longest window stand outside the axes, moved up where two would overlap.
    """
    longest = max(length for _, length, _, _ in ends)
    spacing, height = log_range / 20, -np.inf
    for perplexity, length, name, color in sorted(ends):
        if length < longest:
            axes.annotate(
                name,
                (length, perplexity),
                (8, 0),
                textcoords="offset points",
                color=color,
                va="center",
                annotation_clip=False,
            )
            continue
        height = max(np.log(perplexity), height + spacing)
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "alpha": 0.5, "relpos": (0, 0.5), "shrinkB": 4}
        axes.annotate(
            name,
            (length, perplexity),
            (1.06, np.exp(height)),
            textcoords=("axes fraction", "data"),
            color=color,
            va="center",
            annotation_clip=False,
            arrowprops=arrow,
        )
