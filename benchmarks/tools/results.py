"""The files of benchmarks/results: one run of `benchmarks/run.py` on one machine each.

A file is a JSON object with these members:

- `machine`: its name; runs with the same name are compared.
- `date`: the day of the run, as in 2026-11-22.
- `environment`: the processor, the instruction set, the commit and versions.
- `peers`: the version of each peer, or null if it is not installed.
- `scripts`: an object per script, such as `speed/rope`, with `rows` and `left_out`.

A row has a name, `work`. It is either a figure, with `value` and `unit`, or a line of times. A line has `ours`, the
contender of posenc; `seconds`, the median time of each contender; and `ratios`. These are the times of the other
contenders divided by ours, as lower quartile, median and upper quartile over the turns. `left_out` has the reason why a
contender was not timed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parents[1] / "results"
PEERS = (
    "torch", "transformers", "x-transformers", "rotary-embedding-torch", "onnxruntime", "openvino", "jax", "ml_dtypes",
)  # fmt: skip
"""Packages that a benchmark compares with, or needs for a dtype."""
LIBRARIES = ("NumPy", *PEERS[:-1])
"""The first words of the names of peers."""

Run = dict[str, Any]


def library(contender: str) -> str:
    """The library that a contender belongs to; an empty string for posenc and for limits such as a copy."""
    name = re.split("[ ,.]", contender, maxsplit=1)[0].replace("np", "NumPy")
    return name if name in LIBRARIES else ""


def rounded(value: Any) -> Any:
    """Round every float of a JSON document to four digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def file_name(machine: str, date: str) -> str:
    """The name of a file, such as amd-epyc-zen-4-2026-11-22.json."""
    return f"{re.sub('[^a-z0-9]+', '-', machine.lower()).strip('-')}-{date}.json"


def load(directory: Path = DIRECTORY) -> dict[str, list[Run]]:
    """All runs by machine, the oldest first."""
    runs: dict[str, list[Run]] = {}
    found = [json.loads(path.read_text("utf-8")) for path in sorted(directory.glob("*.json"))]
    for run in sorted(found, key=lambda run: (run["machine"], run["date"])):
        runs.setdefault(run["machine"], []).append(run)
    return runs


def rows(run: Run) -> dict[str, dict[str, Any]]:
    """The rows of a run, or of one script's --json, by their names."""
    scripts = run["scripts"].items() if "scripts" in run else [("", run)]
    return {f"{script}: {row['work']}".removeprefix(": "): row for script, one in scripts for row in one["rows"]}
