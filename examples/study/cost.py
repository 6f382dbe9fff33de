"""``python examples/study --cost``: time and memory of ALiBi trained at L against sinusoidal positions trained at 2L.

Press et al. 2022 train the first in place of the second. The saving depends on the attention: an attention that forms
the matrix of scores writes twice as many scores in a step at 2L. posenc's attention, which never forms that matrix, is
therefore compared with one that does.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

import posenc
from arrays import Array, Traced
from posenc_bridges import autograd as traced

from . import layers
from .autograd_typed import Gradients, anp, node
from .command import prepare, write
from .evaluation import perplexity
from .schemes import SCHEMES, Scheme, Setting, Weights
from .text import Corpus, target_count
from .training import Report, train

LENGTHS = (64, 128, 256, 512)
STEP_BYTES = 2048
"""Bytes of a training step at every length."""
ROUNDS, STEPS = 6, 4
"""Turns of every contender, and the steps of a turn. The first step of a turn is not timed."""
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
        self, setting: Setting, corpus: Corpus, steps: int, report: Report = lambda step, loss: None, seed: int = 0
    ) -> Weights:
        return train(self.setting(setting, steps), self.scheme(), corpus.train, corpus.vocabulary, seed, report)


class StepCost(NamedTuple):
    """Time and memory of a training step, or the ratios of two steps."""

    least_ms: float
    """Least wall time, in ms."""
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
    setting: Setting, corpus: Corpus, contenders: Sequence[Contender], rounds: int
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


def array_peak(setting: Setting, corpus: Corpus, contender: Contender) -> float:
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


def step_costs(setting: Setting, corpus: Corpus) -> list[dict[str, object]]:
    """Measure a step of every pair of contenders, and print a line for each attention and length."""
    print(
        f"{corpus.name}: cost of a training step of {STEP_BYTES} bytes; width {setting.width}, "
        f"{setting.layers} layers, {setting.heads} heads; {posenc.runtime.isa()}, {posenc.get_num_threads()} threads.\n"
        "least: least wall time, ms. CPU: median CPU time of all threads, ms. arrays: peak of NumPy's arrays, MiB.\n\n"
        f"{'':18}   {'ALiBi at L':^21}   {'sinusoidal at 2L':^21}   {'ALiBi / sinusoidal':^21}\n"
        f"{'attention':13}{'L':>5}" + 3 * "    least     CPU arrays",
        flush=True,
    )
    rows: list[dict[str, object]] = []
    for length in LENGTHS:
        contenders = [contender for attention in ATTENTIONS for contender in pair(attention, length)]
        times = step_times(setting, corpus, contenders, ROUNDS)
        costs = {}
        for contender, both in times.items():
            wall, cpu = zip(*both, strict=True)
            costs[contender] = StepCost(min(wall), median(cpu), array_peak(setting, corpus, contender))
        for attention in ATTENTIONS:
            alibi, sinusoidal = (costs[contender] for contender in pair(attention, length))
            ratio = StepCost(*(a / b for a, b in zip(alibi, sinusoidal, strict=True)))
            print(f"{attention:13}{length:5}{alibi.line(1)}{sinusoidal.line(1)}{ratio.line(2)}", flush=True)
            rows.append({"attention": attention, "length": length, "alibi": alibi, "sinusoidal": sinusoidal})
    return rows


def perplexities(setting: Setting, corpus: Corpus, seed: int) -> dict[str, float]:
    """Train ALiBi at L and sinusoidal positions at 2L; both read the same bytes in windows of 2L."""
    length, found = 2 * setting.length, {}
    count = target_count(corpus.test, setting.targets, (length,))
    for one in pair("posenc", setting.length):
        weights = one.train(setting, corpus, setting.steps, seed=seed)
        resized = one.setting(setting, setting.steps)
        found[one.method] = perplexity(resized, one.scheme(), weights, corpus.test, count, length)
    alibi, sinusoidal = found.values()
    print(
        f"Perplexity in windows of {length}, seed {seed}: {alibi:.2f} for ALiBi trained at {setting.length}, "
        f"{sinusoidal:.2f} for sinusoidal trained at {length}; ALiBi / sinusoidal {alibi / sinusoidal:.3f}",
        flush=True,
    )
    return found


def study(setting: Setting, corpus: Corpus, directory: Path, seeds: int) -> None:
    """Run the command: the cost of steps, and perplexities. It writes cost.json."""
    file = directory / "cost.json"
    prepare(setting, corpus, file, ())
    steps = step_costs(setting, corpus)
    print()
    read = [perplexities(setting, corpus, seed) for seed in range(seeds)]
    write(file, setting, corpus, step_bytes=STEP_BYTES, steps=steps, perplexity=read)
    print(f"\nFile: {file}")
