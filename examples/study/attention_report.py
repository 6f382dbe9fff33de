"""``python examples/study --why``: a table and a figure of attention beyond the training length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arrays import Float64
from files import make_directory, write_report
from posenc import plot

from .attention_statistics import Statistics, StatisticsRow, statistics_by_length, tail
from .command import Request, plan_runs, prepare, select_methods, train_run
from .progress import Bars
from .schemes import Setting
from .tables import environment

ByMethod = Mapping[str, Mapping[int, Statistics]]
"""Statistics by method and length of the windows."""


def table(setting: Setting, rows: Sequence[StatisticsRow]) -> None:
    """Print a line for each method and length, below an explanation of the columns."""
    reach, queries = setting.length - 1, len(tail(setting, setting.length))
    print(
        f"""
Attention in windows of `length` bytes, by models trained at {setting.length}. Entropy, far and size are means over
layers, heads and the last {queries} queries of each window; equal weights would have the numbers in brackets.

ppl      perplexity per byte
near     perplexity with the keys hidden that are more than {reach} bytes back, farther than any in training
entropy  entropy of the attention weights, in nats
far      weight of the keys that are more than {reach} bytes back
size     root mean square of the output of attention
unseen   angles that training never produced, as a fraction of the new ones, mean over the pairs

{"method":15}length     ppl    near        entropy              far    size unseen"""
    )
    for row in rows:
        unseen = "-" if row["unseen"] is None else f"{row['unseen']:.0%}"
        print(
            f"{row['method']:15}{row['length']:6}{row['perplexity']:8.2f}{row['perplexity_near']:8.2f}"
            f"{row['entropy']:8.2f} ({row['entropy_equal']:.2f}){row['far']:9.1%} ({row['far_equal']:5.1%})"
            f"{row['size']:8.3f}{unseen:>7}"
        )


def block_means(values: Float64, size: int) -> tuple[Float64, Float64]:
    """Split the positions into blocks of `size`; return the middles of the blocks, and their means."""
    blocks = values[: len(values) // size * size].reshape(-1, size)
    middles = size * (np.arange(len(blocks), dtype=np.float64) + 0.5)
    return middles, blocks.mean(1)


def draw(setting: Setting, found: ByMethod) -> Figure:
    """Draw three panels by position in the window, one by distance and one by length; the sixth has the legend."""
    figure = Figure(figsize=(9.2, 9.6), layout="constrained")
    by_position, entropy, by_distance, size, far, place = figure.subplots(3, 2).reshape(-1)
    trained = setting.length
    for number, (method, at) in enumerate(found.items()):
        longest = at[max(at)]
        line = partial(Axes.plot, label=method, linewidth=1.6, **plot.line_style(number))
        positions, nats = block_means(longest.nats, trained // 2)
        line(by_position, positions, np.exp(nats))
        line(entropy, *block_means(longest.entropy, trained // 8))
        line(size, *block_means(longest.size, trained // 8))
        line(by_distance, longest.by_distance)
        line(far, list(at), [100 * one.far for one in at.values()], marker="o")
    equal = partial(Axes.plot, label="equal weights", color="0.5", linestyle=":")
    widest = max(found.values(), key=len)
    equal(entropy, np.log(np.arange(max(widest)) + 1))
    equal(far, list(widest), [100 * one.far_equal for one in widest.values()])
    for axes in (by_position, entropy, by_distance, size):
        axes.axvspan(0, trained, color="0.92", zorder=0)
    for axes in (by_position, entropy, by_distance, size, far):
        axes.grid(alpha=0.3)
    xlabel, queries = f"position in {max(widest)} bytes (grey: trained)", len(tail(setting, trained))
    by_position.set(xlabel=xlabel, ylabel="perplexity per byte", title="Perplexity by position")
    entropy.set(xlabel=xlabel, ylabel="nats", title="Entropy of the attention weights")
    size.set(xlabel=xlabel, ylabel="root mean square", title="Size of the output of attention")
    by_distance.set(xlabel="distance back, bytes (grey: trained)", ylabel=f"mean weight, last {queries} queries")
    by_distance.set(yscale="log", title="Attention by distance")
    far.set(xlabel="bytes in a window", ylabel=f"% of the weight, last {queries} queries")
    far.set_title(f"Attention to keys {trained} or more back")
    far.set_xscale("log", base=2)
    far.set_xticks(list(widest), [str(length) for length in widest])
    place.axis("off")
    place.legend(*entropy.get_legend_handles_labels(), loc="center", fontsize="large")
    return figure


def study(request: Request) -> None:
    """Run the command for the first seed of each method: train, from checkpoints if there are any, and report.

    It writes why.json, the table and the curves, and why.png, the figure.
    """
    names = [name for group in select_methods(request.methods, 1, False) for name in group]
    setting, corpus, _ = prepare(request)
    checkpoints = request.directory / "checkpoints"
    planned = plan_runs(checkpoints, setting, corpus, dict.fromkeys(names, 1))
    make_directory(checkpoints, request.directory)
    print(
        f"{corpus.name}: {', '.join(names)}, each trained on windows of {setting.length} bytes for {setting.steps} "
        "steps",
        flush=True,
    )
    bars = Bars(setting.steps * len(planned))
    rows: list[StatisticsRow] = []
    found: dict[str, dict[int, Statistics]] = {}
    for run in planned:
        weights, _ = train_run(setting, corpus, run, bars)
        of_method, found[run.method] = statistics_by_length(setting, run.method, weights, corpus)
        rows += of_method
    table(setting, rows)
    longest = {
        method: {name: np.asarray(values).tolist() for name, values in at[max(at)]._asdict().items()}
        for method, at in found.items()
    }
    report = {
        "setting": setting._asdict(), "text": corpus.name, "environment": environment(), "rows": rows,
        "longest": longest,
    }  # fmt: skip
    as_json, as_png = request.directory / "why.json", request.directory / "why.png"
    write_report(as_json, report, ".png")
    draw(setting, found).savefig(as_png, dpi=110)
    print(f"\nFiles: {as_json}, {as_png}")
