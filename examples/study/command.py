"""``python examples/study``: train every scheme, print the tables, and write the numbers and the figure."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import posenc
from files import make_directory

from . import evaluation
from .figure import study_figure
from .schemes import SCHEMES, Setting, Weights
from .text import Corpus
from .training import DivergedError, train

QUICK = Setting("quick", 64, 2, 4, length=64, batch=16, steps=400, rate=8e-3, targets=24576, tested=(1, 2, 4, 8))
FULL = Setting(
    "full", 128, 2, 8, length=64, batch=32, steps=1000, rate=4e-3, targets=49152, tested=(1, 1.5, 2, 4, 8, 16)
)
DEFAULT = ("sinusoidal", "rope", "t5", "alibi")
FULL_DEFAULT = ("none", "learned", *DEFAULT)
LONGEST_TRAINING = 4096
NAME_COLUMNS = 23


def with_options(setting: Setting, length: int | None, lengths: Sequence[int] | None) -> Setting:
    """Replace the length of the windows in training, and those in the test, by those of the user if there are any.

    The bytes of a step in training stay, up to a whole number of windows.
    """
    if length not in (None, setting.length):
        if not 4 <= length <= LONGEST_TRAINING:
            raise ValueError(f"--length {length}: expected 4 to {LONGEST_TRAINING}")
        batch = max(1, setting.batch * setting.length // length)
        setting = setting._replace(name=f"{setting.name}-{length}", length=length, batch=batch)
    if lengths and min(lengths) < setting.length:
        raise ValueError(f"--lengths {min(lengths)}: expected at least {setting.length}, the training length")
    tested = sorted({setting.length, *(lengths or setting.lengths)})
    return setting._replace(tested=tuple(one / setting.length for one in tested))


def prepare(setting: Setting, corpus: Corpus, file: Path, methods: Sequence[str]) -> evaluation.Protocol:
    """Choose what to predict, and create the directory of the file of results. ValueError says what is wrong."""
    if unknown := [name for name in methods if name not in SCHEMES]:
        raise ValueError(f"--methods {unknown[0]}: no such method; expected one of {', '.join(SCHEMES)}")
    chosen = evaluation.protocol(setting, corpus.test)
    if not chosen.targets:
        least = np.lcm.reduce(setting.lengths) + 1
        lengths = ", ".join(map(str, setting.lengths))
        raise ValueError(
            f"{corpus.name}: {len(corpus.test)} bytes for the test; expected at least {least}, for whole windows of "
            f"{lengths} bytes"
        )
    if file.exists():
        raise ValueError(f"{file}: it has the results of an earlier study; choose another --out")
    make_directory(file.parent)
    return chosen


def write(file: Path, setting: Setting, corpus: Corpus, **results: object) -> None:
    """Write a report as JSON, with what a measurement depends on."""
    report = {
        "setting": setting._asdict(), "text": corpus.name, "posenc": posenc.__version__, "numpy": np.__version__,
        "python": platform.python_version(), "isa": posenc.runtime.isa(), "threads": posenc.get_num_threads(),
        **results,
    }  # fmt: skip
    file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def trained(setting: Setting, corpus: Corpus, method: str, seed: int) -> Weights:
    """Train a model. A terminal shows the progress."""
    title = f"{method}, seed {seed}"

    def report(step: int, loss: float) -> None:
        said = f"{title}: step {step} of {setting.steps}, loss {loss:.3f}"
        print(f"\r{said if step < setting.steps else '':60}", end="\r", file=sys.stderr, flush=True)

    shown = report if sys.stderr.isatty() else lambda step, loss: None
    try:
        return train(setting, SCHEMES[method], corpus.train, corpus.vocabulary, seed, shown)
    except DivergedError as error:
        raise DivergedError(f"{title}: {error}") from error


def result(setting: Setting, corpus: Corpus, chosen: evaluation.Protocol, method: str, seed: int) -> evaluation.Row:
    """Train and evaluate."""
    start = time.monotonic()
    weights = trained(setting, corpus, method, seed)
    seconds = round(time.monotonic() - start, 2)
    return evaluation.Row(
        method,
        seed,
        sum(array.size for array in weights.values()),
        seconds,
        *evaluation.evaluate(setting, SCHEMES[method], weights, corpus.test, chosen),
        evaluation.embedding_statistics(weights, corpus.train) if method == "learned" else None,
        evaluation.evaluate_rope_extensions(setting, weights, corpus.test, chosen) if method == "rope" else None,
    )


def cells(values: Iterable[float | None]) -> str:
    """The cells of a row; "-" where there is no number, or NaN, the mean of numbers of which one is missing."""
    return "".join("        -" if np.isnan(x) else f"{x:9.2f}" for x in np.array([*values], np.float64))


def head(lengths: Sequence[int]) -> str:
    """The header of a table by length of the windows in bytes."""
    return f"{'bytes in a window':{NAME_COLUMNS}}" + "".join(f"{length:>9}" for length in lengths)


def table(title: str, lengths: Sequence[int], columns: dict[str, list[evaluation.ByLength]]) -> None:
    """Print a table of the means over the seeds."""
    print(f"\n{title}\n{head(lengths)}")
    for name, seeds in columns.items():
        values = np.array([[seed[length] for length in lengths] for seed in seeds], np.float64)
        print(f"{name:{NAME_COLUMNS}}{cells(values.mean(0))}")


def summary(setting: Setting, rows: Sequence[evaluation.Row], chosen: evaluation.Protocol) -> None:
    """Print the means over the seeds."""
    lengths, length = setting.lengths, setting.length
    methods = {name: [row for row in rows if row.method == name] for name in dict.fromkeys(row.method for row in rows)}
    table(
        "Perplexity divided by that at the training length (1: longer windows do no harm):",
        lengths,
        {name: [evaluation.ratios(row.perplexity, length) for row in own] for name, own in methods.items()},
    )
    table(
        f"The same ratio with sliding windows of stride {length}, first {chosen.sliding_targets} bytes:",
        lengths,
        {name: [evaluation.ratios(row.sliding, length) for row in own] for name, own in methods.items()},
    )
    table(
        f"Perplexity of the last {length} bytes of each window, divided by that of the same bytes in windows of "
        f"{length}:",
        lengths,
        {name: [row.last_ratio for row in own] for name, own in methods.items()},
    )
    if extensions := evaluation.rope_extensions(rows):
        title = "Methods that extend RoPE without further training, perplexity of the first"
        table(f"{title} {chosen.sliding_targets} bytes:", lengths, extensions)
    if embeddings := [row.embeddings for row in rows if row.embeddings is not None]:
        print("\nEmbeddings of the model with a learned table, means over the seeds:")
        print(f"{'':{NAME_COLUMNS}}{'norm':>9}{'diagonal / other covariances':>30}")
        for name in ("word", "position"):
            norm, diagonal = (np.mean([one[f"{name}_{part}"] for one in embeddings]) for part in ("norm", "diagonal"))
            print(f"{name + 's':{NAME_COLUMNS}}{norm:9.2f}{diagonal:30.1f}")


def study(setting: Setting, corpus: Corpus, directory: Path, methods: Sequence[str], seeds: int) -> None:
    """Run the command. ValueError or DivergedError says in one line why it fails."""
    as_json, as_png = directory / "study.json", directory / "study.png"
    chosen = prepare(setting, corpus, as_json, methods)
    print(
        f"{corpus.name}: {len(corpus.train)} bytes for training, the same {chosen.targets} bytes to predict at every "
        f"length.\nEach model is trained on windows of {setting.length} bytes: {setting.steps} steps of "
        f"{setting.batch * setting.length} bytes.\n\nPerplexity per byte (-: the scheme's table of positions ends "
        f"before this length), and the time of the training:\n{head(setting.lengths)}",
        flush=True,
    )
    rows = []
    for method in methods:
        for seed in range(seeds):
            rows.append(row := result(setting, corpus, chosen, method, seed))
            name = f"{method}, seed {seed}"
            print(f"{name:{NAME_COLUMNS}}{cells(row.perplexity.values())}{row.seconds:6.0f} s", flush=True)
            write(as_json, setting, corpus, protocol=chosen._asdict(), runs=[one._asdict() for one in rows])
    summary(setting, rows, chosen)
    curves = {name: [row.perplexity for row in rows if row.method == name] for name in methods}
    study_figure(setting.length, setting.lengths, curves, evaluation.rope_extensions(rows)).savefig(as_png, dpi=150)
    print(f"\nFiles: {as_json}, {as_png}")
