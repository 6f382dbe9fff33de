"""Write the summary and the picture of docs/explanations/benchmarks.md from the files of benchmarks/results.

Without an option the tables of all lines are printed; --write puts the summary into the page; --check fails unless it
is there.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from html import escape
from math import log
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import made_part
from tools.compare import Change, changes
from tools.results import LIBRARIES, Run, library, load, rows

DOCS = Path(__file__).resolve().parent
PROGRAM = "docs/benchmark_page.py"
PICTURE = DOCS / "_static" / "benchmarks.svg"
SUBJECTS: dict[str, tuple[str, ...]] = {
    "Attention": ("speed/attention", "speed/attention_vjp", "speed/attention_peers"),
    "Decoding": ("speed/decode",),
    "Whole models": ("speed/transformers_models",),
    "Biases as matrices": ("speed/bias",),
    "Rotary embeddings": ("speed/rope",),
    "Encodings": ("speed/sinusoid", "speed/convolution", "speed/lookup", "speed/recurrence", "speed/floater"),
    "Small calls": ("speed/call",),
    "Memory": ("speed/memory",),
    "Accuracy": ("accuracy/accuracy", "accuracy/quantized"),
    "Every operator": ("speed/sweep",),
}
"""The subjects and their scripts."""

TIMES = ("s", "ms")
"""Units of figures that are not shown, because they depend on the machine."""
Cells = dict[tuple[str, str], dict[str, float]]
"""Figures by line and contender (or unit), then by machine."""


class Results:
    """The last run of each machine, and how it differs from the run before."""

    def __init__(self, runs: dict[str, list[Run]]) -> None:
        self.last = {machine: of_machine[-1] for machine, of_machine in runs.items()}
        self.before = {machine: of_machine[-2] for machine, of_machine in runs.items() if len(of_machine) > 1}
        self.changes = {machine: changes(run, self.last[machine]) for machine, run in self.before.items()}
        self.worse = {
            (machine, change.work, change.other or change.unit)
            for machine, found in self.changes.items()
            for change in found
            if change.is_worse
        }

    def rows(self, subject: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield (machine, name, row) of the scripts of a subject."""
        for machine, run in self.last.items():
            named = rows(run)
            for script in SUBJECTS[subject]:
                yield from ((machine, name, row) for name, row in named.items() if name.startswith(f"{script}: "))

    def peers(self, subject: str) -> Cells:
        """The times of peers divided by those of posenc."""
        cells: Cells = {}
        for machine, name, row in self.rows(subject):
            for other, (_, ratio, _) in row.get("ratios", {}).items():
                if library(other):
                    cells.setdefault((name, other), {})[machine] = ratio
        return cells

    def limits(self, subject: str) -> Cells:
        """The times of posenc divided by those of limits, such as a copy, and of other calls of posenc."""
        cells: Cells = {}
        for machine, name, row in self.rows(subject):
            for other, (_, ratio, _) in row.get("ratios", {}).items():
                if not library(other):
                    cells.setdefault((name, other), {})[machine] = 1 / ratio
        return cells

    def figures(self, subject: str) -> Cells:
        """The figures that are no times."""
        cells: Cells = {}
        for machine, name, row in self.rows(subject):
            if "value" in row and row["unit"] not in TIMES:
                cells.setdefault((name, row["unit"]), {})[machine] = row["value"]
        return cells


# ---- tables ----


def table(head: list[str], lines: list[list[str]]) -> list[str]:
    rule = ["---", "---", *["---:"] * len(head[2:])] if len(head) > 2 else ["---"] * len(head)
    written = [[cell.replace("|", r"\|") for cell in line] for line in (head, rule, *lines)]
    return [f"| {' | '.join(line)} |" for line in written] + [""]


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    if 0.05 <= abs(value) < 100:
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.2g}"


def figures(results: Results, cells: Cells, other: str) -> list[str]:
    """A table with a column per machine. A figure that became worse is bold; a dash was not measured."""
    lines = []
    before = ""
    order = list(dict.fromkeys(name for name, _ in cells))
    for (name, contender), found in sorted(cells.items(), key=lambda cell: order.index(cell[0][0])):
        line = name.split(": ", 1)[1]
        shown = [number(found[machine]) if machine in found else "-" for machine in results.last]
        worse = [(machine, name, contender) in results.worse for machine in results.last]
        shown = [f"**{one}**" if is_worse else one for one, is_worse in zip(shown, worse, strict=True)]
        lines.append(["" if line == before else line, contender, *shown])
        before = line
    return table(["line", other, *results.last], lines)


def machines(results: Results) -> list[str]:
    """The machines with their environments, and the peers with their versions."""
    runs = results.last.values()
    environment = [[key, *(run["environment"][key] for run in runs)] for key in next(iter(runs))["environment"]]
    versions = {key: [run["peers"].get(key) or "not installed" for run in runs] for run in runs for key in run["peers"]}
    lines = [
        ["date", *(run["date"] for run in runs)],
        *environment,
        *([key, *found] for key, found in versions.items()),
    ]
    text = table(["", *results.last], lines)
    for machine, run in results.last.items():
        reasons = {who: why for script in run["scripts"].values() for who, why in script["left_out"].items()}
        text += [f"- Left out on {machine}: {who} {why}." for who, why in reasons.items()]
    return text if text[-1] == "" else [*text, ""]


def regressions(results: Results) -> list[str]:
    """A sentence per machine, and the figures that became worse."""
    text = []
    for machine, run in results.last.items():
        if machine not in results.before:
            text.append(f"- {machine}: {run['date']} is the first run.")
            continue
        worse = [change for change in results.changes[machine] if change.is_worse]
        since = f"since {results.before[machine]['date']}, at commit {results.before[machine]['environment']['commit']}"
        text.append(f"- {machine}: {len(worse) or 'no'} figure{'s' * (len(worse) != 1)} became worse {since}.")
        text += [f"  - {described(change, results.before[machine], run)}" for change in worse]
    return [*text, ""]


def described(change: Change, before: Run, after: Run) -> str:
    """A change, and the versions of the peer if they differ."""
    peer = library(change.other)
    versions = [run["peers"].get(peer) for run in (before, after)]
    return f"{change}" + (f"; {peer} {versions[0]} -> {versions[1]}" if versions[0] != versions[1] else "")


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def peers(results: Results) -> list[str]:
    """A row per subject and library: the median, the least and the largest ratio of its lines on each machine."""
    rows = []
    for subject in SUBJECTS:
        cells = results.peers(subject)
        for name in LIBRARIES:
            shown = []
            for machine in results.last:
                ratios = [
                    found[machine] for (_, who), found in cells.items() if library(who) == name and machine in found
                ]
                shown.append(number(median(ratios)) if ratios else "-")
                if len(ratios) > 1:
                    shown[-1] += f" ({number(min(ratios))} - {number(max(ratios))})"
            if set(shown) != {"-"}:
                rows.append([subject, name, *shown])
    return table(["", "peer", *results.last], rows)


def overview(results: Results) -> str:
    """Return the made part of the page."""
    text = ["## Overview", "", *wrapped(f"![{SEEN}](../_static/{PICTURE.name})"), "", *wrapped(f"*{SEEN}*"), ""]
    text += [*wrapped("Time of the peer, divided by the time of posenc: median (least - largest) of the lines."), ""]
    text += [*peers(results), "## Machines", "", *machines(results)]
    text += ["## Changes since the earlier run", "", *regressions(results)]
    return "\n".join(text)


def every_line(results: Results) -> str:
    """Return the tables of all lines."""
    text = []
    for subject in SUBJECTS:
        peers, limits, others = results.peers(subject), results.limits(subject), results.figures(subject)
        if not (peers or limits or others):
            continue
        text += [f"## {subject}", ""]
        if peers:
            text += ["Time of the peer, divided by the time of posenc:", "", *figures(results, peers, "peer")]
        if limits:
            text += ["Time of posenc, divided by the time of:", "", *figures(results, limits, "")]
        if others:
            text += ["Other figures:", "", *figures(results, others, "unit")]
    return "\n".join(text)


# ---- the picture ----

SEEN = (
    "Each dot is a line of the benchmarks: the time of the peer, divided by the time of posenc. posenc is faster "
    "right of the line at 1."
)
AXIS = "time of the peer / time of posenc"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
WIDTH, LEFT, RIGHT, LANE = 480, 164, 16, 11
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def picture(results: Results) -> str:
    """Draw the ratios of all lines as SVG: a row per subject and library, with a lane per machine."""
    every = {subject: cells for subject in SUBJECTS if (cells := results.peers(subject))}
    ratios = [ratio for cells in every.values() for found in cells.values() for ratio in found.values()]
    low = max(tick for tick in TICKS if tick <= min(ratios, default=1))
    high = min(tick for tick in TICKS if tick >= max(ratios, default=1))

    def x(ratio: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * log(ratio / low) / max(log(high / low), 1e-9):.1f}"

    colours = {machine: COLOURS[place % len(COLOURS)] for place, machine in enumerate(results.last)}
    parts, y = [], 16
    for machine, colour in colours.items():
        parts.append(
            f'<circle cx="14" cy="{y}" r="4" fill="{colour}"/><text x="24" y="{y + 4}">{escape(machine)}</text>'
        )
        y += 18
    top = y
    for subject, cells in every.items():
        y += 20
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{subject}</text>')
        y += 6
        for name in LIBRARIES:
            lanes = {
                machine: [
                    found[machine] for (_, other), found in cells.items() if library(other) == name and machine in found
                ]
                for machine in colours
            }
            if not any(lanes.values()):
                continue
            parts.append(f'<text x="{LEFT - 8}" y="{y + 5 + LANE * len(lanes) / 2:g}" text-anchor="end">{name}</text>')
            for machine, found in lanes.items():
                y += LANE
                circles = (f'<circle cx="{x(ratio)}" cy="{y - LANE / 2 + 1:g}" r="3.5"/>' for ratio in sorted(found))
                parts.append(f'<g fill="{colours[machine]}" fill-opacity="0.55">{"".join(circles)}</g>')
            y += 6
    y += 4
    grid = []
    for tick in TICKS:
        if low <= tick <= high:
            stroke = 'stroke="#333" stroke-width="1.5"' if tick == 1 else 'stroke="#ddd"'
            grid.append(f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{top}" y2="{y}" {stroke}/>')
            grid.append(f'<text x="{x(tick)}" y="{y + 16}" text-anchor="middle">{tick:g}</text>')
    grid.append(f'<text x="{x(1)}" y="{top - 4}" text-anchor="middle">posenc</text>')
    axis = f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{y + 34}" text-anchor="middle">{AXIS}</text>'
    height = y + 44
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#222">'
    )
    frame = f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#fff"/>'
    return "\n".join([head, f"<title>{SEEN}</title>", frame, *grid, axis, *parts, "</svg>", ""])


def main() -> int:
    asked = made_part.parser(PROGRAM, (__doc__ or "").split("\n", 1)[0]).parse_args()
    results = Results(load())
    if not (asked.write or asked.check):
        print(every_line(results))
    page, drawn = DOCS / "explanations" / "benchmarks.md", {PICTURE: picture(results)}
    return made_part.finish(page, PROGRAM, overview(results), asked, drawn)


if __name__ == "__main__":
    sys.exit(main())
