"""Print which figures of a benchmark changed by more than 5 % between two runs with --json.

    python benchmarks/tools/compare.py before.json after.json

A time is compared as its ratio to the limit or peer that was timed beside it (the first of them), so a slower or busier
machine does not count. The exit status is 1 if a figure became slower or less accurate.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

NOISE = 0.05


def figure(row: dict[str, Any], other: dict[str, Any]) -> tuple[float, str]:
    """The figure of a row and its unit: the time relative to a reference that both runs timed, else seconds."""
    if "value" in row:
        return row["value"], row["unit"]
    ours = row["seconds"][row["ours"]]
    for reference, seconds in row["seconds"].items():
        if reference != row["ours"] and reference in other["seconds"]:
            return ours / seconds, f"times the time of {reference}"
    return ours, "s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--noise", type=float, default=NOISE, help="largest change that is ignored (default 0.05)")
    options = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in (options.before, options.after)]
    for key in runs[0]["environment"]:
        was, now = (run["environment"].get(key) for run in runs)
        if was != now:
            print(f"note: {key} was {was}, is {now}")
    before, after = ({row["work"]: row for row in run["rows"]} for run in runs)
    worse = 0
    for work in before.keys() | after.keys():
        if work not in before or work not in after:
            print(f"{'only ' + ('after' if work in after else 'before'):>12}  {work}")
            continue
        was, unit = figure(before[work], after[work])
        now, _ = figure(after[work], before[work])
        change = now / was - 1 if was else float(now > 0)
        if abs(change) > options.noise:
            worse += change > 0
            print(f"{'WORSE' if change > 0 else 'better':>12}  {work}: {was:.4g} -> {now:.4g} {unit} ({change:+.1%})")
    print(f"{len(before.keys() & after.keys())} figures compared, {worse} worse by more than {options.noise:.0%}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
