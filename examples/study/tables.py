"""Tables that the study prints, and its files study.json and study.csv."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

import posenc
from arrays import Traced
from files import write_csv, write_report

from .evaluation import ByLength, Evaluation, Protocol
from .schemes import Setting
from .text import Corpus

NAME_COLUMNS = 23


class TrainingRow(Evaluation):
    """Result of one training; JSON, except the keys of `ByLength`, which JSON turns into strings."""

    method: str
    seed: int
    parameters: int
    """Number of trained numbers."""
    seconds: float
    """Time of the training."""
    validation: float
    """Perplexity of the validation text at the training length."""
    embeddings: dict[str, float] | None
    """Norms and covariances of words and positions; None except for "learned"."""
    rope_extensions: dict[str, ByLength] | None
    """Perplexity with each method that extends RoPE; None for the other schemes."""


def versions() -> dict[str, str]:
    return {"posenc": posenc.__version__, "numpy": np.__version__, "python": platform.python_version()}


def environment() -> dict[str, str | int]:
    """Versions and machine settings that a measurement depends on, besides the setting and the text."""
    return {**versions(), "isa": posenc.isa(), "threads": posenc.get_num_threads()}


def load_json(text: str) -> Traced:
    """Read JSON and turn the keys that are numbers, the lengths, back into numbers."""
    return json.loads(text, object_hook=lambda d: {int(key) if key.isdigit() else key: d[key] for key in d})


def cells(values: Iterable[float | None]) -> str:
    return "".join("        -" if value is None else f"{value:9.2f}" for value in values)


def head(lengths: Sequence[int]) -> str:
    """The header of a table by length of the windows in bytes."""
    return f"{'bytes in a window':{NAME_COLUMNS}}" + "".join(f"{length:>9}" for length in lengths)


def line(row: TrainingRow) -> str:
    name = f"{row['method']}, seed {row['seed']}"
    return f"{name:{NAME_COLUMNS}}{cells(row['perplexity'].values())}{row['seconds']:6.0f} s"


def mean(columns: Sequence[ByLength], length: int) -> float | None:
    """Mean over the seeds; None if a seed has no number."""
    values = [column[length] for column in columns]
    return None if None in values else float(np.mean([value for value in values if value is not None]))


def ratios(column: ByLength, trained: int) -> ByLength:
    """Each perplexity divided by that at the training length."""
    own = column[trained]
    return {length: None if p is None or own is None else p / own for length, p in column.items()}


def by_method(rows: Sequence[TrainingRow]) -> dict[str, list[TrainingRow]]:
    return {name: [row for row in rows if row["method"] == name] for name in dict.fromkeys(r["method"] for r in rows)}


def rope_extensions(rows: Sequence[TrainingRow]) -> dict[str, list[ByLength]]:
    """Perplexity of each method that extends RoPE, by seed; empty if no model with RoPE was trained."""
    of_seeds = [extended for row in rows if (extended := row["rope_extensions"]) is not None]
    return {name: [extended[name] for extended in of_seeds] for name in of_seeds[0]} if of_seeds else {}


def summary(setting: Setting, rows: Sequence[TrainingRow], protocol: Protocol) -> None:
    """Print the means over the seeds."""
    lengths, trained = setting.lengths, setting.length

    def table(title: str, columns: dict[str, list[ByLength]]) -> None:
        print(f"\n{title}\n{head(lengths)}")
        for name, seeds in columns.items():
            print(f"{name:{NAME_COLUMNS}}{cells(mean(seeds, length) for length in lengths)}")

    methods = by_method(rows)
    table(
        "Perplexity divided by that at the training length (1: longer windows do no harm):",
        {name: [ratios(row["perplexity"], trained) for row in own] for name, own in methods.items()},
    )
    table(
        f"The same ratio with sliding windows of stride {protocol.stride}, first {protocol.sliding_targets} bytes:",
        {name: [ratios(row["sliding"], trained) for row in own] for name, own in methods.items()},
    )
    table(
        f"Perplexity of the last {trained} bytes of each window, divided by that of the same bytes in windows of "
        f"{trained}:",
        {name: [row["last_ratio"] for row in own] for name, own in methods.items()},
    )
    if any(None in row["perplexity"].values() for row in rows):
        print("-: the scheme's table of positions ends before this length")
    if extensions := rope_extensions(rows):
        table(
            "Methods that extend RoPE without further training, perplexity of the first "
            f"{protocol.sliding_targets} bytes:",
            extensions,
        )
    embeddings = [found for row in rows if (found := row["embeddings"]) is not None]
    if embeddings:
        print("\nEmbeddings of the model with a learned table, means over the seeds:")
        print(f"{'':{NAME_COLUMNS}}{'norm':>9}{'diagonal / other covariances':>30}")
    for name in ("word", "position") if embeddings else ():
        norm, diagonal = (np.mean([one[f"{name}_{part}"] for one in embeddings]) for part in ("norm", "diagonal"))
        print(f"{name + 's':{NAME_COLUMNS}}{norm:9.2f}{diagonal:30.1f}")


def write(
    directory: Path, setting: Setting, corpus: Corpus, protocol: Protocol, rows: Sequence[TrainingRow]
) -> list[Path]:
    """Write study.json with everything, and study.csv with a line for each number."""
    as_json, as_csv = directory / "study.json", directory / "study.csv"
    text = {"name": corpus.name, "train": len(corpus.train), "test": len(corpus.test)}
    study = {
        "setting": setting._asdict(), "text": text, "protocol": protocol._asdict(), "versions": versions(),
        "runs": rows,
    }  # fmt: skip
    write_report(as_json, study, ".csv", ".png")
    write_csv(as_csv, list(csv_lines(setting, rows)), 6)
    return [as_json, as_csv]


def csv_lines(setting: Setting, rows: Sequence[TrainingRow]) -> Iterator[dict[str, object]]:
    """Yield a line of study.csv for each number: of each training, extension of RoPE, protocol and length."""
    for row in rows:
        columns = {
            ("none", "windows"): (row["perplexity"], ratios(row["perplexity"], setting.length)),
            ("none", "sliding"): (row["sliding"], ratios(row["sliding"], setting.length)),
            ("none", "last"): (row["last"], row["last_ratio"]),
        }
        for name, extended in (row["rope_extensions"] or {}).items():
            columns[name, "windows"] = extended, ratios(extended, setting.length)
        for (extension, protocol), (perplexities, own_ratios) in columns.items():
            names = {"method": row["method"], "extension": extension, "protocol": protocol, "seed": row["seed"]}
            for length, p in perplexities.items():
                yield {**names, "length": length, "perplexity": p, "ratio": own_ratios[length]}
