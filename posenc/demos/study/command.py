"""``python -m posenc study``: train every scheme, print the table as it goes, keep the numbers and the weights."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from . import checkpoint, tables, text
from .allocation import keep_freed
from .figure import draw
from .measures import Reading, fixed, measured, reading
from .progress import Bars
from .schemes import SCHEMES, Scheme, Setting, Weights
from .share import share
from .training import DivergedError, perplexity, train

QUICK = Setting("quick", 64, 2, 4, length=64, batch=16, steps=400, rate=8e-3, targets=24576, tested=(1, 2, 4, 8))
FULL = Setting(
    "full", 128, 2, 8, length=64, batch=32, steps=1000, rate=4e-3, targets=49152, tested=(1, 1.5, 2, 4, 8, 16)
)
DEFAULT = ("sinusoidal", "rope", "t5", "alibi")
FULL_DEFAULT = ("none", "learned", *DEFAULT)
ALL = "all"


class Asked(NamedTuple):
    """What the user wants."""

    setting: Setting
    directory: Path
    text: Path | None = None
    methods: Sequence[str] | None = None
    seeds: int = 1
    lengths: Sequence[int] | None = None
    stride: int | None = None


class Run(NamedTuple):
    """One training."""

    method: str
    seed: int
    kept: Path
    described: checkpoint.Description

    @property
    def scheme(self) -> Scheme:
        return SCHEMES[self.method]


def chosen(methods: Sequence[str] | None, seeds: int, full: bool) -> tuple[dict[str, int], dict[str, int]]:
    """How often each method is trained; those that only `all` names once, in a table of their own."""
    default = FULL_DEFAULT if full else DEFAULT
    names = tuple(methods or default)
    unknown = [name for name in names if name not in (*SCHEMES, ALL)]
    if unknown:
        raise ValueError(f"--methods {unknown[0]}: there is no such method; there are {', '.join(SCHEMES)}, {ALL}")
    if ALL not in names:
        return dict.fromkeys(names, seeds), {}
    named = dict.fromkeys((*default, *(name for name in names if name != ALL)), seeds)
    return named, {name: 1 for name in SCHEMES if name not in named}


def tested(setting: Setting, lengths: Sequence[int] | None, stride: int | None) -> Setting:
    """With the lengths of the user, if they are any."""
    trained = setting.length
    if stride is not None and not 1 <= stride <= trained:
        raise ValueError(f"--stride {stride}: from 1 to {trained}, the length of training")
    if not lengths:
        return setting
    short = [length for length in lengths if length < trained]
    if short:
        raise ValueError(f"--lengths {short[0]}: less than {trained}, the length of training")
    return setting._replace(tested=tuple(length / trained for length in sorted({trained, *lengths})))


def prepared(asked: Asked) -> tuple[Setting, text.Corpus, Reading]:
    setting = tested(asked.setting, asked.lengths, asked.stride)
    corpus = text.embedded() if asked.text is None else text.of_file(asked.text)
    how = reading(setting, corpus.test, asked.stride)
    least = int(np.lcm.reduce(setting.lengths))
    if not how.targets and asked.lengths:
        given = " ".join(map(str, setting.lengths))
        raise ValueError(
            f"--lengths {given}: whole windows of each are {least} bytes at least; "
            f"{corpus.name} has {len(corpus.test)} to test on"
        )
    if not how.targets:
        raise ValueError(
            f"--text {corpus.name}: {sum(map(len, corpus[1:4]))} bytes; expected at least {10 * (least + 1)}"
        )
    return setting, corpus, how


def runs(directory: Path, setting: Setting, corpus: text.Corpus, often: dict[str, int]) -> list[Run]:
    def run(method: str, seed: int) -> Run:
        described = checkpoint.description(setting, method, seed, corpus)
        return Run(method, seed, directory / f"{method}-{seed}.npz", described)

    for file in directory.glob("*.npz"):  # whatever is there, of any method, must be of this study
        method, _, seed = file.stem.rpartition("-")
        checkpoint.load(file, checkpoint.description(setting, method, int(seed) if seed.isdigit() else -1, corpus))
    return [run(method, seed) for method, seeds in often.items() for seed in range(seeds)]


def trained(setting: Setting, corpus: text.Corpus, run: Run, bars: Bars) -> tuple[Weights, float]:
    """Weights and seconds, from where the checkpoint is."""
    state = checkpoint.load(run.kept, run.described)
    title = f"{run.method}, seed {run.seed}"
    seconds = [0.0 if state is None else state.seconds]

    def keep(state: checkpoint.State) -> None:
        checkpoint.save(run.kept, state, run.described)
        seconds.append(state.seconds)

    report = bars.training(title, 0 if state is None else state.step, setting.steps)
    try:
        vocabulary = corpus.vocabulary
        weights = train(setting, run.scheme, corpus.train, vocabulary, run.seed, report, state=state, keep=keep)
    except DivergedError as error:
        raise DivergedError(f"{title}: {error}") from error
    finally:
        bars.clear()
    return weights, seconds[-1]


def result(setting: Setting, corpus: text.Corpus, how: Reading, run: Run, bars: Bars) -> tables.Row:
    """What the table says of one training: from the file beside its weights if that answers the same questions."""
    weights, seconds = trained(setting, corpus, run, bars)
    file = run.kept.with_suffix(".json")
    asked = [checkpoint.FORMAT, checkpoint.hashed(corpus.test), checkpoint.hashed(corpus.validation)]
    asked += [list(setting.lengths), setting.targets, list(how)]
    if file.exists():
        kept = tables.with_lengths(file.read_text(encoding="utf-8"))
        if kept["asked"] == asked:
            found: tables.Row = kept["found"]
            return found
    of_validation = text.targets(corpus.validation, setting.targets, setting.lengths[:1])
    row: tables.Row = {
        "method": run.method, "seed": run.seed, "parameters": sum(array.size for array in weights.values()),
        "seconds": round(seconds, 2),
        "validation": perplexity(setting, run.scheme, weights, corpus.validation, of_validation, setting.length),
        **measured(setting, run.scheme, weights, corpus.test, how)._asdict(),
        "share": share(setting, run.scheme, corpus)._asdict(),
    }  # fmt: skip
    if run.method == "rope":
        row["fixes"] = fixed(setting, weights, corpus.test, how)
    checkpoint.replace(file, lambda stream: stream.write(json.dumps({"asked": asked, "found": row}).encode()))
    return row


def table(
    setting: Setting, corpus: text.Corpus, how: Reading, planned: Sequence[Run], bars: Bars, out: TextIO
) -> list[tables.Row]:
    """Every training, a line as soon as it is there."""
    print(tables.head("perplexity", setting.lengths), file=out, flush=True)
    rows = []
    for run in planned:
        rows.append(result(setting, corpus, how, run, bars))
        print(tables.line(rows[-1]), file=out, flush=True)
    return rows


def make(directory: Path, given: Path) -> None:
    """With its parents; ValueError says in one line to who gave `given` why not."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {given}: {error.strerror or error}") from error


def study(asked: Asked, out: TextIO | None = None) -> None:
    """The whole command; ValueError or DivergedError says in one line why not."""
    out, began = out or sys.stdout, time.monotonic()
    keep_freed()
    main, others = chosen(asked.methods, asked.seeds, asked.setting.name == FULL.name)
    setting, corpus, how = prepared(asked)
    checkpoints = asked.directory / "checkpoints"
    planned = [runs(checkpoints, setting, corpus, often) for often in (main, others)]
    make(checkpoints, asked.directory)
    print(
        f"{corpus.name}: {len(corpus.train)} bytes to train on, perplexity of the same {how.targets} bytes at every "
        f"length; trained at {setting.length}, {setting.steps} steps of {setting.batch * setting.length} bytes.",
        file=out,
    )
    bars = Bars(sys.stderr, setting.steps * sum(map(len, planned)))
    rows = table(setting, corpus, how, planned[0], bars, out)
    if others:
        print("\nThe other methods, one seed each:", file=out)
        rows += table(setting, corpus, how, planned[1], bars, out)
    tables.summary(setting, rows, how, out)
    files = tables.write(asked.directory, setting, corpus, how, rows)
    files.append(draw(asked.directory, setting, rows, tuple(main)))
    print(f"\n{time.monotonic() - began:.0f} s. " + ", ".join(map(str, files)), file=out)
