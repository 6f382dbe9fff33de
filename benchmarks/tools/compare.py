"""Print which figures changed between two runs: files of benchmarks/run.py, or of one benchmark with --json.

    python benchmarks/tools/compare.py before.json after.json

A time is compared as its ratio to each limit and peer that was timed beside it, so a slower or busier machine does not
count. A ratio has changed if it did by more than 5 % and by more than the spread that was measured: the quartiles of
the two runs do not overlap. The exit status is 1 if a figure became slower or less accurate.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.results import Run, rows

NOISE = 0.05


class Change(NamedTuple):
    """A figure that changed."""

    work: str
    other: str
    """The contender that posenc is compared with, or an empty string for a figure that is no time."""
    was: float
    now: float
    """For a contender, its time divided by that of posenc; else the figure."""
    unit: str

    @property
    def is_worse(self) -> bool:
        return self.now < self.was if self.other else self.now > self.was

    def __str__(self) -> str:
        figure = f"{self.other} takes {self.was:.3g} -> {self.now:.3g} times the time of posenc"
        return f"{self.work}: " + (figure if self.other else f"{self.was:.4g} -> {self.now:.4g} {self.unit}")


def changes(before: Run, after: Run, noise: float = NOISE) -> list[Change]:
    """The figures of both runs that changed."""
    was, now = rows(before), rows(after)
    found = []
    for work in was.keys() & now.keys():
        a, b = was[work], now[work]
        if "value" in a and "value" in b:
            if abs(b["value"] - a["value"]) > noise * abs(a["value"]):
                found.append(Change(work, "", a["value"], b["value"], b["unit"]))
            continue
        for other in a.get("ratios", {}).keys() & b.get("ratios", {}).keys():
            (low, middle, high), (low_now, middle_now, high_now) = a["ratios"][other], b["ratios"][other]
            if (high_now < low or low_now > high) and abs(middle_now / middle - 1) > noise:
                found.append(Change(work, other, middle, middle_now, ""))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--noise", type=float, default=NOISE, help="largest change that is ignored (default 0.05)")
    options = parser.parse_args()
    before, after = (json.loads(path.read_text("utf-8")) for path in (options.before, options.after))
    for part in ("environment", "peers"):
        for key in before[part]:
            if before[part][key] != after[part].get(key):
                print(f"note: {key} was {before[part][key]}, is {after[part].get(key)}")
    for work in sorted(rows(before).keys() ^ rows(after).keys()):
        print(f"{'only ' + ('after' if work in rows(after) else 'before'):>12}  {work}")
    found = changes(before, after, options.noise)
    for change in found:
        print(f"{'WORSE' if change.is_worse else 'better':>12}  {change}")
    worse = sum(change.is_worse for change in found)
    print(f"lines compared: {len(rows(before).keys() & rows(after).keys())}, figures worse: {worse}")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
