"""``python -m posenc study --why``: the table and the picture of what attention does beyond the length of training."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..._core_api.arguments import Array
from ...analysis import rope_coverage
from ...plot import line_style as style
from . import text
from .allocation import keep_freed
from .attended import Look, frequencies, last, rows_of
from .command import Asked, chosen, make, prepared, runs, trained
from .cost import made_by
from .progress import Bars
from .schemes import Setting
from .tables import Row

Looks = Mapping[str, Mapping[int, Look]]
"""By method and length of the windows."""


def table(setting: Setting, rows: Sequence[Row], out: TextIO) -> None:
    """A line for each method and length, under a few words on the columns."""
    near, queries = setting.length - 1, len(last(setting, setting.length))
    print(
        f"\nnear: perplexity with keys more than {near} back hidden. The rest are means over layers, heads and the\n"
        f"last {queries} queries of windows: entropy of their weights, in nats; far: weight of keys over {near} back;\n"
        "in brackets what even weights have; size: root mean square of what attention returns.\n"
        "unseen: angles that training never made, mean over the pairs.\n\n"
        f"{'method':15}length perplexity    near        entropy              far    size unseen",
        file=out,
    )
    for row in rows:
        new = "-" if row["unseen"] is None else f"{row['unseen']:.0%}"
        print(
            f"{row['method']:15}{row['length']:6}{row['perplexity']:11.2f}{row['perplexity_near']:8.2f}"
            f"{row['entropy']:8.2f} ({row['entropy_even']:.2f}){row['far']:9.1%} ({row['far_even']:5.1%})"
            f"{row['size']:8.3f}{new:>7}", file=out,
        )  # fmt: skip


def in_blocks(values: Array, size: int) -> tuple[Array, Array]:
    """Middles of whole blocks of places, and their means."""
    blocks = values[: len(values) // size * size].reshape(-1, size)
    return (np.arange(len(blocks)) + 0.5) * size, blocks.mean(1)


def picture(setting: Setting, looks: Looks) -> Figure:
    """Six panels: by place, by distance, by length, by wavelength."""
    figure = Figure(figsize=(14.0, 8.0), layout="constrained")
    by_place, spread, back, size, far, angles = figure.subplots(2, 3).reshape(-1)
    trained = setting.length
    for number, (method, at) in enumerate(looks.items()):
        longest, line = at[max(at)], {"label": method, "linewidth": 1.6, **style(number)}
        middles, nats = in_blocks(longest.nats, trained // 2)
        by_place.plot(middles, np.exp(nats), **line)
        spread.plot(*in_blocks(longest.entropy, trained // 8), **line)
        size.plot(*in_blocks(longest.size, trained // 8), **line)
        back.plot(longest.by_distance, **line)
        far.plot(list(at), [100 * seen.far for seen in at.values()], marker="o", **line)
        coverage(angles, setting, method, line["color"])
    even = {"label": "even weights", "color": "0.5", "linestyle": ":"}
    most = max(looks.values(), key=len)
    spread.plot(np.log(np.arange(max(most)) + 1), **even)
    far.plot(list(most), [100 * seen.even for seen in most.values()], **even)
    for axes in (by_place, spread, back, size):
        axes.axvspan(0, trained, color="0.92", zorder=0)
    for axes in (by_place, spread, back, size, far, angles):
        axes.grid(alpha=0.3)
    where, queries = f"place in a window of {max(most)} (grey: trained)", len(last(setting, trained))
    by_place.set(xlabel=where, ylabel="perplexity", title="Perplexity by place")
    spread.set(xlabel=where, ylabel="nats", title="Entropy of attention")
    size.set(xlabel=where, ylabel="root mean square", title="Size of what attention returns")
    back.set(xlabel="keys back (grey: trained)", ylabel=f"mean weight, last {queries} queries", yscale="log")
    back.set_title("Attention by distance")
    far.set(xlabel="length of the window", ylabel=f"% of the weight, last {queries} queries")
    far.set_title(f"Attention to keys {trained} or more back")
    far.set_xscale("log", base=2)
    far.set_xticks(list(most), [str(length) for length in most])
    angles.set(xlabel="positions of one turn", ylabel="% of the new ones", title="Angles that training never made")
    figure.legend(*spread.get_legend_handles_labels(), loc="outside lower center", ncols=len(looks) + 1)
    return figure


def coverage(axes: Axes, setting: Setting, method: str, color: str) -> None:
    """A mark for each pair of a scheme that is made of angles, at the first length beyond training and at the last."""
    w = frequencies(setting, method)
    if w is None:
        return
    for length, marker in ((setting.lengths[1], "o"), (setting.lengths[-1], "x")):
        new = 100 * rope_coverage(w, setting.length, test_length=length).unseen
        axes.plot(2 * np.pi / w, new, label=f"{method}, {length}", marker=marker, color=color, linewidth=0.7)
    axes.set_xscale("log")
    axes.legend(fontsize="small", loc="lower right")


def as_lists(looks: Looks) -> dict[str, Any]:
    """For JSON, of the longest windows alone: what the picture shows by place and by distance."""
    return {
        method: {name: np.asarray(values).tolist() for name, values in at[max(at)]._asdict().items()}
        for method, at in looks.items()
    }


def write(
    directory: Path, setting: Setting, corpus: text.Corpus, rows: Sequence[Row], looks: Looks
) -> tuple[Path, Path]:
    """why.json, the table and the curves; why.png, the picture."""
    as_json, as_png = directory / "why.json", directory / "why.png"
    whole = {
        "setting": setting._asdict(), "text": corpus.name, "made_by": made_by(), "rows": list(rows),
        "longest": as_lists(looks),
    }  # fmt: skip
    as_json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    picture(setting, looks).savefig(as_png, dpi=110)
    return as_json, as_png


def study(asked: Asked) -> None:
    """The whole command: train what is not in a checkpoint yet, look, print, write. The first seed of each method."""
    keep_freed()
    names = [name for group in chosen(asked.methods, 1, False) for name in group]
    setting, corpus, _ = prepared(asked)
    checkpoints = asked.directory / "checkpoints"
    planned = runs(checkpoints, setting, corpus, dict.fromkeys(names, 1))
    make(checkpoints, asked.directory)
    print(f"{corpus.name}: {', '.join(names)}, trained at {setting.length} for {setting.steps} steps", flush=True)
    bars = Bars(sys.stderr, setting.steps * len(planned))
    rows: list[Row] = []
    looks: dict[str, dict[int, Look]] = {}
    for run in planned:
        weights, _ = trained(setting, corpus, run, bars)
        found, looks[run.method] = rows_of(setting, run.method, weights, corpus)
        rows += found
    table(setting, rows, sys.stdout)
    print("\n" + ", ".join(map(str, write(asked.directory, setting, corpus, rows, looks))))
