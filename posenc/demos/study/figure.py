"""The figure: perplexity by length of window, the seeds as a band, the length of training marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ...plot.styles import COLORS
from .measures import ByLength
from .schemes import Setting
from .tables import Row, by_method

MARKERS = "osD^vP*X<>hpd8"
"""They tell lines too, beside the colours."""
SHOWN = ("raw", "PI", "dynamic NTK", "NTK 32", "YaRN", "Self-Extend", "ReRoPE")
"""Of the ways to read RoPE; the table has all."""


def draw(directory: Path, setting: Setting, rows: Sequence[Row], main: Sequence[str]) -> Path:
    """study.png: what was asked for, and beside it the other methods, and RoPE read in other ways."""
    methods = {name: [row["perplexity"] for row in own] for name, own in by_method(rows).items()}
    panels = [("", {name: methods[name] for name in main})]
    others = {name: values for name, values in methods.items() if name not in main}
    if others:
        panels.append(("other methods, one seed", others))
    rope = [row["fixes"] for row in rows if "fixes" in row]
    if rope:
        panels.append(("RoPE, read in other ways", {name: [row[name] for row in rope] for name in SHOWN}))
    figure = Figure(figsize=(1 + 4.8 * len(panels), 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, lines) in zip(axes, panels, strict=True):
        panel(ax, setting, lines)
        ax.set_title(title, fontsize="medium")
    axes[0].set_ylabel("perplexity per byte")
    file = directory / "study.png"
    figure.savefig(file, dpi=150)
    return file


def panel(ax: Any, setting: Setting, lines: dict[str, list[ByLength]]) -> None:
    ends = []
    for number, (name, seeds) in enumerate(lines.items()):
        lengths = [length for length in setting.lengths if seeds[0][length] is not None]
        values = np.array([[row[length] for length in lengths] for row in seeds], float)
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        middle = values.mean(0)
        ax.fill_between(lengths, values.min(0), values.max(0), color=color, alpha=0.25, linewidth=0)
        ax.plot(lengths, middle, color=color, marker=marker, markersize=5, linewidth=1.6)
        ends.append((middle[-1], lengths[-1], name, color))
    ax.axvline(setting.length, color="0.5", linestyle=":", linewidth=1.2, zorder=0)
    ax.set(xscale="log", yscale="log", xlabel="bytes in a window (dotted: in training)")
    ax.set_xticks(setting.lengths, [str(length) for length in setting.lengths])
    ax.xaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    ticks = [tick for tick in (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200) if low <= tick <= high]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.spines[["top", "right"]].set_visible(False)
    names(ax, ends, np.log(high / low))


def names(ax: Any, ends: list[tuple[float, int, str, str]], span: float) -> None:
    """Each beside the end of its line; outside, moved up where the one below stands."""
    furthest = max(length for _, length, _, _ in ends)
    least, place = span / 20, -np.inf
    for value, length, name, color in sorted(ends):
        here = {"text": name, "xy": (length, value), "color": color, "va": "center", "annotation_clip": False}
        if length < furthest:
            ax.annotate(**here, xytext=(8, 0), textcoords="offset points")
            continue
        place = max(np.log(value), place + least)
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "alpha": 0.5, "relpos": (0, 0.5), "shrinkB": 4}
        ax.annotate(**here, xytext=(1.06, np.exp(place)), textcoords=("axes fraction", "data"), arrowprops=arrow)
