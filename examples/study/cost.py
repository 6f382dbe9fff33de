"""``python examples/study --cost``: time and memory of ALiBi trained at L against sinusoidal positions trained at 2L.

Press et al. 2022 train the first in place of the second. The saving depends on the attention: an attention that forms
the matrix of scores writes twice as many scores in a step at 2L. posenc's attention, which never forms that matrix, is
therefore compared with one that does.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

import posenc
from arrays import Array, Traced
from files import make_directory, write_csv, write_report
from posenc_bridges import autograd as traced

from . import layers, text
from .autograd_typed import Gradients, anp, node
from .command import Request, load_text
from .evaluation import perplexity
from .schemes import SCHEMES, Scheme, Setting, Weights
from .tables import environment
from .training import Report, train

LENGTHS = (64, 128, 256, 512)
STEP_BYTES = 2048
"""Bytes of a training step at every length."""
ROUNDS, STEPS = 6, 4
"""Turns of every contender, and the steps of a turn. The first step of a turn is not timed."""
PAPER_RATIO = 0.89
"""Ratio of time and of memory in Press et al. 2022, abstract: 11 % less of both (1.3e9 parameters, L = 1024, GPUs)."""
MIB = 2**20


def _softmax_vjp(g: Array, weights: Array, _: Array) -> Gradients:
    gradient: Array = g - np.einsum("...nm,...nm->...n", g, weights)[..., None]
    gradient *= weights
    return (gradient,)


@node(_softmax_vjp)
def softmax(scores: Array) -> Array:
    """Softmax over the last axis. It overwrites the scores, so that one matrix is kept for the gradient."""
    return layers.softmax(scores, out=scores)


def materialised(q: Traced, k: Traced, v: Traced, *, bias: Traced, causal: bool) -> Traced:
    """``softmax(q k' / sqrt(D) + bias) v`` with its N x N matrix; `bias` consists of position biases."""
    n, width = q.shape[-2:]
    mask = np.where(np.tri(n, dtype=bool) | (not causal), np.float32(0), np.float32(-np.inf))
    for operator in bias if isinstance(bias, tuple) else (bias,):
        mask = mask + operator.matrix(n)
    scores = anp.matmul(q * width**-0.5, anp.swapaxes(k, -1, -2)) + mask
    return anp.matmul(softmax(scores), v)


CostRow = dict[str, str | float]
"""ALiBi at a length L against sinusoidal positions at 2L: `attention`, `length`, and the fields of three `StepCost`
after "alibi_", "sinusoidal_" and "ratio_" (ALiBi divided by sinusoidal)."""
ATTENTIONS = {"posenc": traced.attention, "materialised": materialised}


class Contender(NamedTuple):
    """A training to measure, in steps of `STEP_BYTES` bytes."""

    attention: str
    method: str
    length: int

    def scheme(self) -> Scheme:
        return SCHEMES[self.method]._replace(attention=ATTENTIONS[self.attention])

    def setting(self, setting: Setting, steps: int) -> Setting:
        return setting._replace(length=self.length, batch=max(1, STEP_BYTES // self.length), steps=steps)

    def train(
        self, setting: Setting, corpus: text.Corpus, steps: int, report: Report = lambda step, loss: None, seed: int = 0
    ) -> Weights:
        return train(self.setting(setting, steps), self.scheme(), corpus.train, corpus.vocabulary, seed, report)


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

    def line(self, digits: int) -> str:
        return f"   {self.least_ms:6.{digits}f} {self.cpu_ms:7.{digits}f} {self.array_mib:6.{digits}f}"


def pair(attention: str, length: int) -> tuple[Contender, Contender]:
    """ALiBi at L and sinusoidal positions at 2L."""
    return Contender(attention, "alibi", length), Contender(attention, "sinusoidal", 2 * length)


def step_times(
    setting: Setting, corpus: text.Corpus, contenders: Sequence[Contender], rounds: int
) -> dict[Contender, list[tuple[float, float]]]:
    """Wall time and CPU time of every timed step, in ms.

    The contenders take turns, so that other load on the machine slows all of them.
    """
    times: dict[Contender, list[tuple[float, float]]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            ends: list[tuple[float, float]] = []
            contender.train(setting, corpus, STEPS, lambda *_, ends=ends: ends.append((perf_counter(), process_time())))
            times[contender] += [(1e3 * (b[0] - a[0]), 1e3 * (b[1] - a[1])) for a, b in pairwise(ends)]
    return times


def array_peak(setting: Setting, corpus: text.Corpus, contender: Contender) -> float:
    """Peak of the memory of Python and NumPy in a step, in MiB.

    It holds the weights, Adam's moments, the gradients and the arrays that the gradient needs. The first step, which
    also allocates what the others keep, does not count.
    """
    tracemalloc.start()
    try:
        contender.train(setting, corpus, 2, lambda step, loss: tracemalloc.reset_peak() if step == 1 else None)
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def step_costs(setting: Setting, corpus: text.Corpus, lengths: Sequence[int], rounds: int) -> list[CostRow]:
    """Measure a step of every pair of contenders, and print a line for each attention and length."""
    print(
        f"{corpus.name}: cost of a training step of {STEP_BYTES} bytes; width {setting.width}, "
        f"{setting.layers} layers, {setting.heads} heads; {posenc.isa()}, {posenc.get_num_threads()} threads.\n"
        "least: least wall time, ms. CPU: median CPU time of all threads, ms. arrays: peak of NumPy's arrays, MiB.\n\n"
        f"{'':18}   {'ALiBi at L':^21}   {'sinusoidal at 2L':^21}   {'ALiBi / sinusoidal':^21}\n"
        f"{'attention':13}{'L':>5}" + 3 * "    least     CPU arrays",
        flush=True,
    )
    rows = []
    for length in lengths:
        pairs = [pair(attention, length) for attention in ATTENTIONS]
        times = step_times(setting, corpus, [contender for both in pairs for contender in both], rounds)
        for both in pairs:
            costs = []
            for contender in both:
                wall, cpu = zip(*times[contender], strict=True)
                peak = array_peak(setting, corpus, contender)
                costs.append(StepCost(min(wall), median(wall), median(cpu), peak))
            ratio = StepCost(*(a / b for a, b in zip(*costs, strict=True)))
            columns = dict(zip(("alibi", "sinusoidal", "ratio"), (*costs, ratio), strict=True))
            row: CostRow = {"attention": both[0].attention, "length": length}
            for column, cost in columns.items():
                row |= {f"{column}_{name}": number for name, number in cost._asdict().items()}
            rows.append(row)
            print(f"{both[0].attention:13}{length:5}{costs[0].line(1)}{costs[1].line(1)}{ratio.line(2)}", flush=True)
    print(f"{'the paper':13}{1024:5}{'':48}   {PAPER_RATIO:6.2f} {'':7} {PAPER_RATIO:6.2f}")
    return rows


def perplexities(setting: Setting, corpus: text.Corpus, lengths: Sequence[int], seeds: int) -> list[dict[str, float]]:
    """Train ALiBi at L and sinusoidal positions at 2L; both read the same bytes in windows of 2L."""
    rows = []
    for length in lengths:
        count = text.target_count(corpus.test, setting.targets, (2 * length,))
        for seed in range(seeds):
            row: dict[str, float] = {"length": length, "seed": seed}
            for one in pair("posenc", length):
                weights = one.train(setting, corpus, setting.steps, seed=seed)
                resized = one.setting(setting, setting.steps)
                row[one.method] = perplexity(resized, one.scheme(), weights, corpus.test, count, 2 * length)
            alibi, sinusoidal = row["alibi"], row["sinusoidal"]
            print(
                f"Perplexity in windows of {2 * length}, seed {seed}: {alibi:.2f} for ALiBi trained at {length}, "
                f"{sinusoidal:.2f} for sinusoidal trained at {2 * length}; ALiBi / sinusoidal {alibi / sinusoidal:.3f}",
                flush=True,
            )
            rows.append(row)
    return rows


def study(request: Request, trained: Sequence[int]) -> None:
    """Run the command: the cost of steps, and perplexities of models trained at L and 2L for the lengths `trained`.

    It writes cost.json with everything, and cost.csv, the table of steps.
    """
    wrong = [length for length in trained if length < 1]
    if wrong:
        raise ValueError(f"--cost {wrong[0]}: expected at least 1")
    corpus = load_text(request.text)
    longest = 2 * max(*LENGTHS, *trained)
    if len(corpus.test) <= longest:
        size, least = sum(map(len, corpus[1:4])), 10 * (longest + 1)
        raise ValueError(f"--text {corpus.name}: {size} bytes; expected at least {least}")
    make_directory(request.directory, request.directory)
    steps = step_costs(request.setting, corpus, LENGTHS, ROUNDS)
    print()
    report = {
        "setting": request.setting._asdict() | {"step_bytes": STEP_BYTES},
        "text": corpus.name,
        "environment": environment(),
        "paper": {"time": PAPER_RATIO, "memory": PAPER_RATIO},
        "steps": steps,
        "perplexity": perplexities(request.setting, corpus, trained, request.seeds),
    }
    as_json, as_csv = request.directory / "cost.json", request.directory / "cost.csv"
    write_report(as_json, report, ".csv")
    write_csv(as_csv, steps, 4)
    print(f"\nFiles: {as_json}, {as_csv}")
