"""``python -m posenc study``: train every scheme, print the table as it goes, keep the numbers."""

from __future__ import annotations

import csv
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import posenc

from . import text
from .schemes import SCHEMES, Setting
from .training import DivergedError, perplexity, train

QUICK = Setting("quick", 64, 2, 4, length=64, batch=16, steps=400, rate=8e-3, targets=24576, tested=(1, 2, 4, 8))
FULL = Setting("full", 128, 2, 8, length=64, batch=32, steps=1000, rate=4e-3, targets=49152, tested=(1, 2, 4, 8, 16))
DEFAULT = {
    "quick": ("sinusoidal", "rope", "t5", "alibi"),
    "full": ("none", "learned", "sinusoidal", "rope", "t5", "alibi"),
}
Row = dict[str, Any]


class Progress:
    """One line of a terminal that says how far a training is; nothing where there is no terminal."""

    def __init__(self, stream: TextIO, method: str, steps: int) -> None:
        self.stream, self.method, self.steps, self.began = stream, method, steps, time.monotonic()
        self.shown = stream.isatty()

    def __call__(self, step: int, loss: float) -> None:
        if self.shown and (step % 10 == 0 or step == self.steps):
            left = (time.monotonic() - self.began) / step * (self.steps - step)
            end = "\r" if step < self.steps else "\r\033[K"
            self.stream.write(f"{self.method}: step {step} of {self.steps}, loss {loss:.3f}, {left:.0f} s left   {end}")
            self.stream.flush()


def chosen(methods: list[str] | None, setting: Setting) -> tuple[str, ...]:
    names = tuple(methods or DEFAULT[setting.name])
    unknown = [name for name in names if name not in SCHEMES]
    if unknown:
        raise ValueError(f"--methods {unknown[0]}: there is no such method; there are {', '.join(SCHEMES)}")
    return tuple(dict.fromkeys(names))


def run(
    setting: Setting, corpus: text.Corpus, count: int, methods: tuple[str, ...], seeds: int, out: TextIO, errors: TextIO
) -> list[Row]:
    """Every method with every seed, `count` bytes predicted; a line of the table as soon as it is there."""
    of_validation = text.targets(corpus.validation, setting.targets, setting.lengths[:1])
    print(
        f"{corpus.name}: {len(corpus.train)} bytes to train on, perplexity of the same {count} bytes at every length; "
        f"trained at {setting.length}, {setting.steps} steps of {setting.batch * setting.length} bytes.", file=out,
    )  # fmt: skip
    print(f"{'method':15}seed" + "".join(f"{length:>9}" for length in setting.lengths) + "   s", file=out, flush=True)
    rows = []
    for method in methods:
        for seed in range(seeds):
            began = time.monotonic()
            scheme, progress = SCHEMES[method], Progress(errors, method, setting.steps)
            try:
                weights = train(setting, scheme, corpus.train, corpus.vocabulary, seed, progress)
            except DivergedError as error:
                raise DivergedError(f"{method}, seed {seed}: {error}") from error
            seconds = time.monotonic() - began
            found = {
                length: perplexity(setting, scheme, weights, corpus.test, count, length) for length in setting.lengths
            }
            validation = perplexity(setting, scheme, weights, corpus.validation, of_validation, setting.length)
            rows.append(
                {
                    "method": method, "seed": seed, "parameters": sum(array.size for array in weights.values()),
                    "seconds": round(seconds, 2), "validation": validation, "perplexity": found,
                }
            )  # fmt: skip
            line = "".join("        -" if p is None else f"{p:9.2f}" for p in found.values())
            print(f"{method:15}{seed:4}{line}{seconds:5.0f}", file=out, flush=True)
    ratios(setting, rows, methods, out)
    return rows


def ratios(setting: Setting, rows: list[Row], methods: tuple[str, ...], out: TextIO) -> None:
    """Each length against the length of training, mean over the seeds."""
    print("\nPerplexity at a length, divided by that at the length of training:", file=out)
    for method in methods:
        own = [row["perplexity"] for row in rows if row["method"] == method]
        line = ""
        for length in setting.lengths:
            at = [row[length] / row[setting.length] for row in own if row[length] is not None]
            line += f"{np.mean(at):9.2f}" if at else "        -"
        print(f"{method:19}{line}", file=out)
    if any(p is None for row in rows for p in row["perplexity"].values()):
        print("-: the table of positions ends before this length", file=out)


def write(directory: Path, setting: Setting, corpus: text.Corpus, rows: list[Row]) -> tuple[Path, Path]:
    """study.json, everything; study.csv, a line for each method, seed and length."""
    as_json, as_csv = directory / "study.json", directory / "study.csv"
    made_by = {"posenc": posenc.__version__, "numpy": np.__version__, "python": platform.python_version()}
    text_used = {"name": corpus.name, "train": len(corpus.train), "test": len(corpus.test)}
    whole = {"setting": setting._asdict(), "text": text_used, "versions": made_by, "runs": rows}
    as_json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    with as_csv.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["method", "seed", "length", "perplexity", "ratio"])
        for row in rows:
            trained = row["perplexity"][setting.length]
            for length, p in row["perplexity"].items():
                given = ["", ""] if p is None else [f"{p:.6g}", f"{p / trained:.6g}"]
                table.writerow([row["method"], row["seed"], length, *given])
    return as_json, as_csv


def study(setting: Setting, file: Path | None, methods: list[str] | None, seeds: int, directory: Path) -> None:
    """The whole command; ValueError or DivergedError says in one line why not."""
    names = chosen(methods, setting)
    corpus = text.embedded() if file is None else text.of_file(file)
    count = text.targets(corpus.test, setting.targets, setting.lengths)
    least = 10 * (int(np.lcm.reduce(setting.lengths)) + 1)
    if not count:
        raise ValueError(f"--text {corpus.name}: {sum(map(len, corpus[1:4]))} bytes; expected at least {least}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {directory}: {error.strerror or error}") from error
    rows = run(setting, corpus, count, names, seeds, sys.stdout, sys.stderr)
    print("\n" + ", ".join(map(str, write(directory, setting, corpus, rows))))
