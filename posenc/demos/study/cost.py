"""``python -m posenc study --cost``: ALiBi trained at L against sinusoidal positions trained at 2L, in time and memory.

Press et al. 2022 train the one in the place of the other. What is saved depends on the attention: with a matrix of
scores a step at 2L writes twice as many numbers of it, so posenc's kernels run here beside an attention that has one.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple, TextIO

import autograd.numpy as anp  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np
from autograd.extend import defvjp, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]

import posenc
from posenc import autograd as traced

from . import text
from .allocation import keep_freed
from .command import Asked, make
from .schemes import SCHEMES, Scheme, Setting
from .tables import Row, versions
from .training import perplexity, train

LENGTHS = (64, 128, 256, 512)
TOKENS = 2048
"""Bytes of a step, whatever the length."""
ROUNDS, STEPS = 6, 4
"""Turns that every contender takes, and steps in a turn; the first step of a turn is not timed."""
PAPER = 0.89
"""1.3e9 parameters, L = 1024, on GPUs: 11 % faster and 11 % less memory (Press et al. 2022, abstract)."""
MIB = 2**20
STATUS = Path("/proc/self/status")


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def softmax(scores: Any) -> Any:
    """``exp(scores) / sum exp(scores)`` over the last axis. Its result is all that its gradient keeps."""
    weights = scores - scores.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    return weights


def _back(weights: Any, _: Any) -> Any:
    def vjp(g: Any) -> Any:
        moved = g - np.einsum("...nm,...nm->...n", g, weights)[..., None]
        moved *= weights
        return moved

    return vjp


defvjp(softmax, _back)


def materialised(q: Any, k: Any, v: Any, *, bias: Any, causal: bool) -> Any:
    """``softmax(q k' / sqrt(D) + bias) v`` with its N x N matrix; `bias` is () or one that does not read q and k."""
    n, width = q.shape[-2:]
    added = np.where(np.tri(n, dtype=bool) | (not causal), np.float32(0), np.float32(-np.inf))
    for one in bias if isinstance(bias, tuple) else (bias,):
        added = added + one.matrix(n)
    scores = anp.matmul(q * width**-0.5, anp.swapaxes(k, -1, -2)) + added
    return anp.matmul(softmax(scores), v)


ATTENTIONS = {"posenc": traced.attention, "materialised": materialised}


class Contender(NamedTuple):
    """What is trained; of simple parts, that another process can be told."""

    attention: str
    method: str
    length: int


def sized(setting: Setting, length: int, steps: int) -> Setting:
    return setting._replace(length=length, batch=max(1, TOKENS // length), steps=steps)


def scheme_of(contender: Contender) -> Scheme:
    return SCHEMES[contender.method]._replace(attention=ATTENTIONS[contender.attention])


def pair(attention: str, length: int) -> tuple[Contender, Contender]:
    return Contender(attention, "alibi", length), Contender(attention, "sinusoidal", 2 * length)


def few_steps(
    setting: Setting,
    corpus: text.Corpus,
    contender: Contender,
    steps: int,
    report: Callable[..., None] = lambda *_: None,
) -> None:
    small = sized(setting, contender.length, steps)
    train(small, scheme_of(contender), corpus.train, corpus.vocabulary, 0, report)


def seconds(
    setting: Setting, corpus: text.Corpus, contenders: Sequence[Contender], rounds: int
) -> dict[Contender, list[list[float]]]:
    """Of every step that was timed, on the clock and of the processor. The contenders take turns: who else uses the
    machine slows all of them."""
    found: dict[Contender, list[list[float]]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            ends: list[tuple[float, float]] = []
            few_steps(
                setting, corpus, contender, STEPS, lambda *_, ends=ends: ends.append((perf_counter(), process_time()))
            )
            found[contender] += np.diff(ends, axis=0).tolist()
    return found


def traced_peak(setting: Setting, corpus: text.Corpus, contender: Contender) -> float:
    """MiB that Python and NumPy hold at most in a step: weights, moments, gradients and what the gradient needs."""

    def report(step: int, _: float) -> None:
        if step == 1:
            tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        few_steps(setting, corpus, contender, 2, report)
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def _status(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def _growth(setting: Setting, corpus: text.Corpus, contender: Contender) -> float:
    """MiB by which this process grows at most while it takes two steps."""
    tiny = setting._replace(length=8, batch=1, steps=1)
    train(tiny, scheme_of(contender), corpus.train, corpus.vocabulary, 0)  # what BLAS keeps is there from now on
    before = _status("VmRSS")
    few_steps(setting, corpus, contender, 2)
    return _status("VmHWM") - before


def resident_peak(setting: Setting, corpus: text.Corpus, contender: Contender) -> float | None:
    """As `traced_peak`, and with what C takes for itself: in a process of its own. None but on Linux."""
    if not STATUS.exists():
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_growth, (setting, corpus, contender))


def measured(
    setting: Setting, corpus: text.Corpus, contender: Contender, times: Sequence[Sequence[float]]
) -> dict[str, float | None]:
    clock, processor = ([1e3 * time for time in kind] for kind in zip(*times, strict=True))
    return {
        "least_ms": min(clock),
        "median_ms": median(clock),
        "processor_ms": median(processor),
        "mib": traced_peak(setting, corpus, contender),
        "resident_mib": resident_peak(setting, corpus, contender),
    }


def costs(setting: Setting, corpus: text.Corpus, lengths: Sequence[int], rounds: int, out: TextIO) -> list[Row]:
    """The table: time and memory of a step, a line for each attention and length."""
    print(
        f"{corpus.name}: steps of {TOKENS} bytes, width {setting.width}, {setting.layers} layers, "
        f"{setting.heads} heads; {posenc.isa()}, threads of posenc: {posenc.get_num_threads()}.\n"
        "Milliseconds of a step: the least on the clock, and the median of the processor (CPU), all threads.\n"
        "MiB: peaks of arrays, and of the process (RSS).\n\n"
        f"{'':18}   {'ALiBi at L':^28}   {'sinusoidal at 2L':^28}   {'ALiBi / sinusoidal':^28}\n"
        f"{'attention':13}{'L':>5}" + 3 * "    least     CPU    MiB    RSS", file=out, flush=True,
    )  # fmt: skip
    rows = []
    for length in lengths:
        pairs = [pair(attention, length) for attention in ATTENTIONS]
        took = seconds(setting, corpus, [one for both in pairs for one in both], rounds)
        for both in pairs:
            alibi, sinusoidal = (measured(setting, corpus, one, took[one]) for one in both)
            ratios = {name: quotient(alibi[name], sinusoidal[name]) for name in alibi}
            shown = line(alibi, 1) + line(sinusoidal, 1) + line(ratios, 2)
            print(f"{both[0].attention:13}{length:5}{shown}", file=out, flush=True)
            rows.append(
                {"attention": both[0].attention, "length": length}
                | {f"alibi_{name}": value for name, value in alibi.items()}
                | {f"sinusoidal_{name}": value for name, value in sinusoidal.items()}
                | {f"ratio_{name}": value for name, value in ratios.items()}
            )
    print(f"{'the paper':13}{1024:5}{'':62}   {PAPER:6.2f} {'':7} {PAPER:6.2f}", file=out)
    return rows


def quotient(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def line(values: Row, digits: int) -> str:
    shown = (values[name] for name in ("least_ms", "processor_ms", "mib", "resident_mib"))
    cells = ("-" if value is None else f"{value:.{digits}f}" for value in shown)
    return "   {:>6} {:>7} {:>6} {:>6}".format(*cells)


def perplexities(setting: Setting, corpus: text.Corpus, lengths: Sequence[int], seeds: int, out: TextIO) -> list[Row]:
    """ALiBi trained at L and sinusoidal positions trained at 2L read the same bytes in windows of 2L."""
    rows = []
    for length in lengths:
        count = text.targets(corpus.test, setting.targets, (2 * length,))
        for seed in range(seeds):
            found = []
            for one in pair("posenc", length):
                own = sized(setting, one.length, setting.steps)
                weights = train(own, scheme_of(one), corpus.train, corpus.vocabulary, seed)
                found.append(perplexity(own, scheme_of(one), weights, corpus.test, count, 2 * length))
            alibi, sinusoidal = found
            assert alibi is not None  # neither has a table that ends
            assert sinusoidal is not None
            print(
                f"perplexity at {2 * length}, seed {seed}: ALiBi trained at {length} {alibi:.2f}, "
                f"sinusoidal trained at {2 * length} {sinusoidal:.2f}, ratio {alibi / sinusoidal:.3f}",
                file=out,
                flush=True,
            )
            rows.append({"length": length, "seed": seed, "alibi": alibi, "sinusoidal": sinusoidal})
    return rows


def write(directory: Path, whole: Row) -> tuple[Path, Path]:
    """cost.json, everything; cost.csv, the table of steps."""
    as_json, as_csv = directory / "cost.json", directory / "cost.csv"
    as_json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    with as_csv.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(whole["steps"][0]))
        table.writeheader()
        table.writerows(
            {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
            for row in whole["steps"]
        )
    return as_json, as_csv


def made_by() -> Row:
    """What a result depends on, beside the setting and the text."""
    return versions() | {"isa": posenc.isa(), "threads": posenc.get_num_threads()}


def study(asked: Asked, trained: Sequence[int]) -> None:
    """The whole command: the table of steps, and perplexities of models trained at `trained` and twice that."""
    keep_freed()
    wrong = [length for length in trained if length < 1]
    if wrong:
        raise ValueError(f"--cost {wrong[0]}: at least 1")
    corpus = text.embedded() if asked.text is None else text.of_file(asked.text)
    longest = 2 * max(*LENGTHS, *trained)
    if len(corpus.test) <= longest:
        size, least = sum(map(len, corpus[1:4])), 10 * (longest + 1)
        raise ValueError(f"--text {corpus.name}: {size} bytes; expected at least {least}")
    make(asked.directory, asked.directory)
    steps = costs(asked.setting, corpus, LENGTHS, ROUNDS, sys.stdout)
    print()
    whole = {
        "setting": asked.setting._asdict() | {"tokens": TOKENS},
        "text": corpus.name,
        "made_by": made_by(),
        "paper": {"time": PAPER, "memory": PAPER},
        "steps": steps,
        "perplexity": perplexities(asked.setting, corpus, trained, asked.seeds, sys.stdout),
    }
    print("\n" + ", ".join(map(str, write(asked.directory, whole))))
