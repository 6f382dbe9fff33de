"""``python -m posenc study --cost``: time and memory of ALiBi trained at L against sinusoidal positions trained at 2L.

Press et al. 2022 train the first in place of the second. The saving depends on the attention: an attention that forms
the matrix of scores writes twice as many scores in a step at 2L. posenc's attention, which never forms that matrix, is
therefore compared with one that does.
"""

from __future__ import annotations

import multiprocessing
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple, TextIO, TypedDict

import numpy as np

import posenc
from posenc import autograd as traced

from ..files import make_directory, write_csv, write_report
from . import text
from .autograd_typed import anp, defvjp, primitive
from .command import Request, load_text
from .evaluation import perplexity
from .schemes import SCHEMES, Array, Scheme, Setting, Traced, TracedBias
from .tables import versions
from .training import train

LENGTHS = (64, 128, 256, 512)
STEP_BYTES = 2048
"""Bytes of a training step at every length."""
ROUNDS, STEPS = 6, 4
"""Turns of every contender, and the steps of a turn. The first step of a turn is not timed."""
PAPER_RATIO = 0.89
"""Ratio of time and of memory in Press et al. 2022, abstract: 11 % less of both (1.3e9 parameters, L = 1024, GPUs)."""
MIB = 2**20
STATUS = Path("/proc/self/status")


@primitive
def softmax(scores: Array) -> Array:
    """``exp(scores) / sum exp(scores)`` over the last axis. The gradient keeps only the result."""
    weights: Array = scores - scores.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    return weights


def _softmax_vjp(weights: Array, _: Array) -> Callable[[Array], Array]:
    def vjp(g: Array) -> Array:
        gradient: Array = g - np.einsum("...nm,...nm->...n", g, weights)[..., None]
        gradient *= weights
        return gradient

    return vjp


defvjp(softmax, _softmax_vjp)


def materialised(q: Traced, k: Traced, v: Traced, *, bias: TracedBias | tuple[TracedBias, ...], causal: bool) -> Traced:
    """``softmax(q k' / sqrt(D) + bias) v`` with its N x N matrix; `bias` consists of position biases."""
    n, width = q.shape[-2:]
    mask = np.where(np.tri(n, dtype=bool) | (not causal), np.float32(0), np.float32(-np.inf))
    for operator in bias if isinstance(bias, tuple) else (bias,):
        mask = mask + operator.matrix(n)
    scores = anp.matmul(q * width**-0.5, anp.swapaxes(k, -1, -2)) + mask
    return anp.matmul(softmax(scores), v)


ATTENTIONS = {"posenc": traced.attention, "materialised": materialised}


class Contender(NamedTuple):
    """A training to measure. Its parts can be sent to another process."""

    attention: str
    method: str
    length: int


class StepCost(NamedTuple):
    """Time and memory of a training step, or the ratios of two steps."""

    least_ms: float
    """Least wall time, in ms."""
    median_ms: float
    """Median wall time, in ms."""
    cpu_ms: float
    """Median CPU time of all threads, in ms."""
    array_mib: float
    """Peak of the arrays that NumPy allocates, in MiB."""
    process_mib: float | None
    """Peak of the growth of the process, in MiB; None outside Linux."""

    def divided_by(self, other: StepCost) -> StepCost:
        pairs = zip(self, other, strict=True)
        return StepCost._make(None if a is None or b is None else a / b for a, b in pairs)


CostRow = dict[str, str | int | float | None]
"""ALiBi at a length L against sinusoidal positions at 2L: `attention`, `length`, and the fields of three `StepCost`
after "alibi_", "sinusoidal_" and "ratio_" (ALiBi divided by sinusoidal)."""


class PerplexityRow(TypedDict):
    """Perplexity in windows of 2L: ALiBi trained at `length` L, sinusoidal positions trained at 2L."""

    length: int
    seed: int
    alibi: float
    sinusoidal: float


def resize(setting: Setting, length: int, steps: int) -> Setting:
    return setting._replace(length=length, batch=max(1, STEP_BYTES // length), steps=steps)


def scheme_of(contender: Contender) -> Scheme:
    return SCHEMES[contender.method]._replace(attention=ATTENTIONS[contender.attention])


def pair(attention: str, length: int) -> tuple[Contender, Contender]:
    """ALiBi at L and sinusoidal positions at 2L."""
    return Contender(attention, "alibi", length), Contender(attention, "sinusoidal", 2 * length)


def train_steps(
    setting: Setting,
    corpus: text.Corpus,
    contender: Contender,
    steps: int,
    report: Callable[[int, float], object] = lambda step, loss: None,
) -> None:
    resized = resize(setting, contender.length, steps)
    train(resized, scheme_of(contender), corpus.train, corpus.vocabulary, 0, report)


def step_times(
    setting: Setting, corpus: text.Corpus, contenders: Sequence[Contender], rounds: int
) -> dict[Contender, list[tuple[float, float]]]:
    """Wall time and CPU time of every timed step, in seconds.

    The contenders take turns, so that other load on the machine slows all of them.
    """
    times: dict[Contender, list[tuple[float, float]]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            ends: list[tuple[float, float]] = []

            def report(step: int, loss: float, ends: list[tuple[float, float]] = ends) -> None:
                ends.append((perf_counter(), process_time()))

            train_steps(setting, corpus, contender, STEPS, report)
            times[contender] += [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(ends)]
    return times


def array_peak(setting: Setting, corpus: text.Corpus, contender: Contender) -> float:
    """Peak of the memory of Python and NumPy in a step, in MiB.

    It holds the weights, Adam's moments, the gradients and the arrays that the gradient needs.
    """

    def report(step: int, loss: float) -> None:
        if step == 1:
            tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        train_steps(setting, corpus, contender, 2, report)
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def _status_mib(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def _process_growth(setting: Setting, corpus: text.Corpus, contender: Contender) -> float:
    """Peak of the growth of this process during two steps, in MiB."""
    tiny = setting._replace(length=8, batch=1, steps=1)
    train(tiny, scheme_of(contender), corpus.train, corpus.vocabulary, 0)  # BLAS allocates its buffers here
    before = _status_mib("VmRSS")
    train_steps(setting, corpus, contender, 2)
    return _status_mib("VmHWM") - before


def process_peak(setting: Setting, corpus: text.Corpus, contender: Contender) -> float | None:
    """Like `array_peak`, with the memory that C code allocates, in a process of its own. None outside Linux."""
    if not STATUS.exists():
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_process_growth, (setting, corpus, contender))


def step_cost(
    setting: Setting, corpus: text.Corpus, contender: Contender, times: Sequence[tuple[float, float]]
) -> StepCost:
    wall, cpu = ([1e3 * time for time in kind] for kind in zip(*times, strict=True))
    peaks = array_peak(setting, corpus, contender), process_peak(setting, corpus, contender)
    return StepCost(min(wall), median(wall), median(cpu), *peaks)


def step_costs(
    setting: Setting, corpus: text.Corpus, lengths: Sequence[int], rounds: int, out: TextIO
) -> list[CostRow]:
    """Measure a step of every pair of contenders, and print a line for each attention and length."""
    print(
        f"{corpus.name}: cost of a training step of {STEP_BYTES} bytes; width {setting.width}, "
        f"{setting.layers} layers, {setting.heads} heads; {posenc.isa()}, {posenc.get_num_threads()} threads.\n"
        "least: least wall time, ms. CPU: median CPU time of all threads, ms. arrays: peak of NumPy's arrays, MiB.\n"
        "process: peak of the growth of the process, MiB.\n\n"
        f"{'':18}   {'ALiBi at L':^29}   {'sinusoidal at 2L':^29}   {'ALiBi / sinusoidal':^29}\n"
        f"{'attention':13}{'L':>5}" + 3 * "    least     CPU arrays process",
        file=out,
        flush=True,
    )
    rows = []
    for length in lengths:
        pairs = [pair(attention, length) for attention in ATTENTIONS]
        times = step_times(setting, corpus, [contender for both in pairs for contender in both], rounds)
        for both in pairs:
            alibi, sinusoidal = (step_cost(setting, corpus, one, times[one]) for one in both)
            columns = {"alibi": alibi, "sinusoidal": sinusoidal, "ratio": alibi.divided_by(sinusoidal)}
            attention = both[0].attention
            cells = line(alibi, 1) + line(sinusoidal, 1) + line(columns["ratio"], 2)
            print(f"{attention:13}{length:5}{cells}", file=out, flush=True)
            row: CostRow = {"attention": attention, "length": length}
            for column, cost in columns.items():
                row |= {f"{column}_{name}": number for name, number in cost._asdict().items()}
            rows.append(row)
    print(f"{'the paper':13}{1024:5}{'':64}   {PAPER_RATIO:6.2f} {'':7} {PAPER_RATIO:6.2f}", file=out)
    return rows


def line(cost: StepCost, digits: int) -> str:
    numbers = (cost.least_ms, cost.cpu_ms, cost.array_mib, cost.process_mib)
    cells = ("-" if number is None else f"{number:.{digits}f}" for number in numbers)
    return "   {:>6} {:>7} {:>6} {:>7}".format(*cells)


def perplexities(
    setting: Setting, corpus: text.Corpus, lengths: Sequence[int], seeds: int, out: TextIO
) -> list[PerplexityRow]:
    """Train ALiBi at L and sinusoidal positions at 2L; both read the same bytes in windows of 2L."""
    rows: list[PerplexityRow] = []
    for length in lengths:
        count = text.target_count(corpus.test, setting.targets, (2 * length,))
        for seed in range(seeds):
            found = []
            for contender in pair("posenc", length):
                resized, scheme = resize(setting, contender.length, setting.steps), scheme_of(contender)
                weights = train(resized, scheme, corpus.train, corpus.vocabulary, seed)
                found.append(perplexity(resized, scheme, weights, corpus.test, count, 2 * length))
            alibi, sinusoidal = found
            print(
                f"Perplexity in windows of {2 * length}, seed {seed}: {alibi:.2f} for ALiBi trained at {length}, "
                f"{sinusoidal:.2f} for sinusoidal trained at {2 * length}; ALiBi / sinusoidal {alibi / sinusoidal:.3f}",
                file=out,
                flush=True,
            )
            rows.append({"length": length, "seed": seed, "alibi": alibi, "sinusoidal": sinusoidal})
    return rows


def write(directory: Path, report: dict[str, object], rows: Sequence[CostRow]) -> tuple[Path, Path]:
    """Write cost.json with everything, and cost.csv, the table of steps."""
    as_json, as_csv = directory / "cost.json", directory / "cost.csv"
    write_report(as_json, report, ".csv")
    write_csv(as_csv, rows, 4)
    return as_json, as_csv


def environment() -> dict[str, str | int]:
    """Versions and machine settings that a result depends on, besides the setting and the text."""
    return {**versions(), "isa": posenc.isa(), "threads": posenc.get_num_threads()}


def study(request: Request, trained: Sequence[int]) -> None:
    """Run the command: the cost of steps, and perplexities of models trained at L and 2L for the lengths `trained`."""
    wrong = [length for length in trained if length < 1]
    if wrong:
        raise ValueError(f"--cost {wrong[0]}: expected at least 1")
    corpus = load_text(request.text)
    longest = 2 * max(*LENGTHS, *trained)
    if len(corpus.test) <= longest:
        size, least = sum(map(len, corpus[1:4])), 10 * (longest + 1)
        raise ValueError(f"--text {corpus.name}: {size} bytes; expected at least {least}")
    make_directory(request.directory, request.directory)
    steps = step_costs(request.setting, corpus, LENGTHS, ROUNDS, sys.stdout)
    print()
    report: dict[str, object] = {
        "setting": request.setting._asdict() | {"step_bytes": STEP_BYTES},
        "text": corpus.name,
        "environment": environment(),
        "paper": {"time": PAPER_RATIO, "memory": PAPER_RATIO},
        "steps": steps,
        "perplexity": perplexities(request.setting, corpus, trained, request.seeds, sys.stdout),
    }
    print("\nFiles: " + ", ".join(map(str, write(request.directory, report, steps))))
