"""``python examples/study``: train every scheme, print the table as it grows, keep the numbers and the weights."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from files import make_directory

from . import checkpoint, tables, text
from .embeddings import embedding_statistics
from .evaluation import Protocol, evaluate, evaluate_rope_extensions, perplexity, protocol
from .figure import draw
from .progress import Bars
from .schemes import SCHEMES, Scheme, Setting, Weights
from .training import DivergedError, train

QUICK = Setting("quick", 64, 2, 4, length=64, batch=16, steps=400, rate=8e-3, targets=24576, tested=(1, 2, 4, 8))
FULL = Setting(
    "full", 128, 2, 8, length=64, batch=32, steps=1000, rate=4e-3, targets=49152, tested=(1, 1.5, 2, 4, 8, 16)
)
DEFAULT = ("sinusoidal", "rope", "t5", "alibi")
FULL_DEFAULT = ("none", "learned", *DEFAULT)
ALL = "all"
LONGEST_TRAINING = 4096
RESULT_FORMAT = 4
"""Version of the .json files beside the checkpoints; results of another version are computed again."""


class Request(NamedTuple):
    """The options of the command."""

    setting: Setting
    directory: Path
    text: Path | None = None
    methods: Sequence[str] | None = None
    seeds: int = 1
    lengths: Sequence[int] | None = None
    stride: int | None = None
    length: int | None = None


class Run(NamedTuple):
    """One training and its checkpoint."""

    method: str
    seed: int
    file: Path
    description: checkpoint.Description

    @property
    def scheme(self) -> Scheme:
        return SCHEMES[self.method]


def select_methods(methods: Sequence[str] | None, seeds: int, full: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Number of seeds of each method: those of the main table, and those that only ``all`` selects, with one seed."""
    default = FULL_DEFAULT if full else DEFAULT
    names = tuple(methods or default)
    unknown = [name for name in names if name not in (*SCHEMES, ALL)]
    if unknown:
        raise ValueError(f"--methods {unknown[0]}: no such method; expected one of {', '.join(SCHEMES)}, {ALL}")
    if ALL not in names:
        return dict.fromkeys(names, seeds), {}
    named = dict.fromkeys((*default, *(name for name in names if name != ALL)), seeds)
    return named, {name: 1 for name in SCHEMES if name not in named}


def with_options(setting: Setting, request: Request) -> Setting:
    """Replace the length of the windows in training, and those in the test, by those of the user if there are any.

    The bytes of a step in training stay, up to a whole number of windows.
    """
    length, lengths = setting.length if request.length is None else request.length, request.lengths
    if length != setting.length:
        if not 4 <= length <= LONGEST_TRAINING:
            raise ValueError(f"--length {length}: expected 4 to {LONGEST_TRAINING}")
        setting = setting._replace(length=length, batch=max(1, setting.batch * setting.length // length))
    if request.stride is not None and not 1 <= request.stride <= length:
        raise ValueError(f"--stride {request.stride}: expected 1 to {length}, the training length")
    if not lengths:
        return setting
    if min(lengths) < length:
        raise ValueError(f"--lengths {min(lengths)}: expected at least {length}, the training length")
    return setting._replace(tested=tuple(one / length for one in sorted({length, *lengths})))


def load_text(path: Path | None) -> text.Corpus:
    return text.embedded() if path is None else text.from_file(path)


def prepare(request: Request) -> tuple[Setting, text.Corpus, Protocol]:
    """Read the text and choose what to predict. ValueError if the text is too short."""
    setting = with_options(request.setting, request)
    corpus = load_text(request.text)
    chosen = protocol(setting, corpus.test, request.stride)
    least = int(np.lcm.reduce(setting.lengths))
    if not chosen.targets and request.lengths:
        lengths = " ".join(map(str, setting.lengths))
        raise ValueError(
            f"--lengths {lengths}: whole windows of all lengths need {least} test bytes; "
            f"{corpus.name} has {len(corpus.test)}"
        )
    if not chosen.targets:
        raise ValueError(
            f"--text {corpus.name}: {sum(map(len, corpus[1:4]))} bytes; expected at least {10 * (least + 1)}"
        )
    return setting, corpus, chosen


def plan_runs(directory: Path, setting: Setting, corpus: text.Corpus, seeds: dict[str, int]) -> list[Run]:
    """List the trainings. ValueError if a checkpoint in the directory, of any method, is of another study."""

    def run(method: str, seed: int) -> Run:
        described = checkpoint.description(setting, method, seed, corpus)
        return Run(method, seed, directory / f"{method}-{seed}.npz", described)

    for file in directory.glob("*.npz"):
        method, _, seed = file.stem.rpartition("-")
        checkpoint.load(file, checkpoint.description(setting, method, int(seed) if seed.isdigit() else -1, corpus))
    return [run(method, seed) for method, count in seeds.items() for seed in range(count)]


def train_run(setting: Setting, corpus: text.Corpus, run: Run, bars: Bars) -> tuple[Weights, float]:
    """Train from the last checkpoint on; return the weights and the seconds of the whole training."""
    state = checkpoint.load(run.file, run.description)
    title = f"{run.method}, seed {run.seed}"
    seconds = [0.0 if state is None else state.seconds]

    def keep(state: checkpoint.State) -> None:
        checkpoint.save(run.file, state, run.description)
        seconds.append(state.seconds)

    try:
        with bars.training(title, 0 if state is None else state.step, setting.steps) as report:
            weights = train(
                setting, run.scheme, corpus.train, corpus.vocabulary, run.seed, report, state=state, keep=keep
            )
    except DivergedError as error:
        raise DivergedError(f"{title}: {error}") from error
    return weights, seconds[-1]


def result(setting: Setting, corpus: text.Corpus, chosen: Protocol, run: Run, bars: Bars) -> tables.TrainingRow:
    """Train and evaluate. The result is kept beside the checkpoint, and used again for the same questions."""
    weights, seconds = train_run(setting, corpus, run, bars)
    file = run.file.with_suffix(".json")
    asked = [RESULT_FORMAT, checkpoint.hashed(corpus.test), checkpoint.hashed(corpus.validation)]
    asked += [list(setting.lengths), setting.targets, list(chosen)]
    if file.exists():
        kept = tables.load_json(file.read_text(encoding="utf-8"))
        if kept["asked"] == asked:
            found: tables.TrainingRow = kept["found"]
            return found
    validation_count = text.target_count(corpus.validation, setting.targets, setting.lengths[:1])
    row: tables.TrainingRow = {
        "method": run.method,
        "seed": run.seed,
        "parameters": sum(array.size for array in weights.values()),
        "seconds": round(seconds, 2),
        "validation": perplexity(setting, run.scheme, weights, corpus.validation, validation_count, setting.length),
        **evaluate(setting, run.scheme, weights, corpus.test, chosen),
        "embeddings": embedding_statistics(weights, corpus.train) if run.method == "learned" else None,
        "rope_extensions": (
            evaluate_rope_extensions(setting, weights, corpus.test, chosen) if run.method == "rope" else None
        ),
    }
    checkpoint.replace(file, lambda stream: stream.write(json.dumps({"asked": asked, "found": row}).encode()))
    return row


def study(request: Request) -> None:
    """Run the command. ValueError or DivergedError says in one line why it fails."""
    start = time.monotonic()
    main, others = select_methods(request.methods, request.seeds, request.setting.name == FULL.name)
    setting, corpus, chosen = prepare(request)
    checkpoints = request.directory / "checkpoints"
    planned = [plan_runs(checkpoints, setting, corpus, seeds) for seeds in (main, others)]
    make_directory(checkpoints, request.directory)
    print(
        f"{corpus.name}: {len(corpus.train)} bytes for training, the same {chosen.targets} bytes to predict at every "
        f"length.\nEach model is trained on windows of {setting.length} bytes: {setting.steps} steps of "
        f"{setting.batch * setting.length} bytes.\n\nPerplexity per byte, and the time of the training:"
    )
    bars = Bars(setting.steps * sum(map(len, planned)))
    rows = []
    for title, runs in (("", planned[0]), ("\nThe other methods, one seed each:\n", planned[1])):
        if runs:
            print(title + tables.head(setting.lengths), flush=True)
        for run in runs:
            rows.append(result(setting, corpus, chosen, run, bars))
            print(tables.line(rows[-1]), flush=True)
    tables.summary(setting, rows, chosen)
    files = tables.write(request.directory, setting, corpus, chosen, rows)
    files.append(draw(request.directory, setting, rows, tuple(main)))
    print(f"\n{time.monotonic() - start:.0f} s. Files: " + ", ".join(map(str, files)))
