"""What the study prints and keeps: tables as it goes, study.json and study.csv."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import posenc

from .measures import ByLength, Measured, Reading
from .schemes import Setting
from .share import Share
from .text import Corpus

Row = dict[str, Any]
"""Of a table. In that of the trainings: method, seed, parameters, seconds, validation, the fields of Measured, share,
for RoPE fixes."""
WIDE = 23


def versions() -> Row:
    return {"posenc": posenc.__version__, "numpy": np.__version__, "python": platform.python_version()}


def with_lengths(words: str) -> Any:
    """JSON, whose keys are text even where they were lengths."""
    return json.loads(words, object_hook=lambda d: {int(key) if key.isdigit() else key: d[key] for key in d})


def cells(values: Iterable[float | None]) -> str:
    return "".join("        -" if value is None else f"{value:9.2f}" for value in values)


def head(first: str, lengths: Sequence[int]) -> str:
    return f"{first:{WIDE}}" + "".join(f"{length:>9}" for length in lengths)


def line(row: Row) -> str:
    name = f"{row['method']}, seed {row['seed']}"
    return f"{name:{WIDE}}{cells(row['perplexity'].values())}{row['seconds']:6.0f} s"


def mean(rows: Sequence[ByLength], length: int) -> float | None:
    values = [row[length] for row in rows]
    return None if None in values else float(np.mean([value for value in values if value is not None]))


def to_own(row: ByLength, trained: int) -> ByLength:
    """Each length against the length of training."""
    own = row[trained]
    return {length: None if p is None or own is None else p / own for length, p in row.items()}


def by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {name: [row for row in rows if row["method"] == name] for name in dict.fromkeys(r["method"] for r in rows)}


def summary(setting: Setting, rows: Sequence[Row], how: Reading, out: TextIO) -> None:
    """Means over the seeds."""
    lengths, trained = setting.lengths, setting.length

    def table(title: str, given: dict[str, list[ByLength]]) -> None:
        print(f"\n{title}\n{head('', lengths)}", file=out)
        for name, several in given.items():
            print(f"{name:{WIDE}}{cells(mean(several, length) for length in lengths)}", file=out)

    methods = by_method(rows)
    table(
        "Perplexity, divided by that at the length of training:",
        {name: [to_own(row["perplexity"], trained) for row in own] for name, own in methods.items()},
    )
    table(
        f"The same with sliding windows, stride {how.stride}, of the first {how.slid} bytes:",
        {name: [to_own(row["sliding"], trained) for row in own] for name, own in methods.items()},
    )
    table(
        f"The last {trained} bytes of each window, divided by the same bytes in windows of {trained}:",
        {name: [row["last_ratio"] for row in own] for name, own in methods.items()},
    )
    if any(None in row["perplexity"].values() for row in rows):
        print("-: the table of positions ends before this length", file=out)
    trained_rope = [row["fixes"] for row in rows if "fixes" in row]
    if trained_rope:
        table(
            f"RoPE, the same weights read in other ways, perplexity of the first {how.slid} bytes:",
            {name: [row[name] for row in trained_rope] for name in trained_rope[0]},
        )
    print(
        "\nA step: milliseconds, and how much of it is attention and all of posenc (under Python's profiler):", file=out
    )
    for name, own in methods.items():
        step = 1e3 * float(np.mean([row["seconds"] for row in own])) / setting.steps
        parts = (float(np.mean([row["share"][part] for row in own])) for part in Share._fields)
        print(f"{name:{WIDE}}{step:9.1f}" + "".join(f"{part:9.0%}" for part in parts), file=out)


def write(directory: Path, setting: Setting, corpus: Corpus, how: Reading, rows: Sequence[Row]) -> list[Path]:
    """study.json, everything; study.csv, a line for each number."""
    as_json, as_csv = directory / "study.json", directory / "study.csv"
    text_used = {"name": corpus.name, "train": len(corpus.train), "test": len(corpus.test)}
    whole = {
        "setting": setting._asdict(), "text": text_used, "reading": how._asdict(), "versions": versions(), "runs": rows,
    }  # fmt: skip
    as_json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    with as_csv.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["method", "read", "protocol", "seed", "length", "perplexity", "ratio"])
        for row in rows:
            for read, protocol, values, ratios in _numbers(setting, row):
                for length, p in values.items():
                    given = ["" if x is None else f"{x:.6g}" for x in (p, ratios[length])]
                    table.writerow([row["method"], read, protocol, row["seed"], length, *given])
    return [as_json, as_csv]


def _numbers(setting: Setting, row: Row) -> Iterator[tuple[str, str, ByLength, ByLength]]:
    found = Measured(*(row[name] for name in Measured._fields))
    trained = setting.length
    yield "as trained", "windows", found.perplexity, to_own(found.perplexity, trained)
    yield "as trained", "sliding", found.sliding, to_own(found.sliding, trained)
    yield "as trained", "last", found.last, found.last_ratio
    for name, values in row.get("fixes", {}).items():
        yield name, "windows", values, to_own(values, trained)
