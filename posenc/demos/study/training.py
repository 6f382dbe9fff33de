"""Adam on random windows, and perplexity at lengths that were never trained."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import cos, pi
from typing import Any

import autograd.numpy as anp  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np
from autograd import value_and_grad  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .checkpoint import State
from .model import initial, losses
from .schemes import Scheme, Setting, Weights
from .text import Bytes

WARM_UP, LAST = 50, 0.1
"""Steps to the full rate, and the share of it that the cosine ends at."""
FIRST_MOMENT, SECOND_MOMENT, TINY = np.float32(0.9), np.float32(0.99), np.float32(1e-8)
ONE = np.float32(1)  # with a Python int NumPy 1 makes float64 of a scalar
TOKENS = 4096
"""Bytes that are read at a time when testing."""
KEPT = 100
"""Steps from one checkpoint to the next."""


class DivergedError(RuntimeError):
    """The loss is no number any more."""


def rate_at(setting: Setting, step: int) -> float:
    falling = LAST + (1 - LAST) * (1 + cos(pi * step / setting.steps)) / 2
    return setting.rate * falling * min(1.0, (step + 1) / WARM_UP)


def beginning(setting: Setting, scheme: Scheme, vocabulary: int, seed: int) -> State:
    """Before the first step."""
    weights = initial(setting, scheme, vocabulary, seed)
    first, second = ({name: np.zeros_like(array) for name, array in weights.items()} for _ in range(2))
    return State(weights, first, second, 0, dict(np.random.default_rng([seed, 1]).bit_generator.state), 0.0)


def train(
    setting: Setting,
    scheme: Scheme,
    data: Bytes,
    vocabulary: int,
    seed: int,
    report: Callable[[int, float], None] = lambda step, loss: None,
    *,
    state: State | None = None,
    keep: Callable[[State], None] = lambda state: None,
) -> Weights:
    """The weights after all steps; the same windows for every scheme. DivergedError where the loss is NaN or inf.

    Goes on from `state`, which it leaves as it is, and hands `keep` one every 100 steps and at the end.
    """
    weights, first, second, done, generator, seconds = state or beginning(setting, scheme, vocabulary, seed)
    weights, first, second = dict(weights), dict(first), dict(second)
    draw = np.random.default_rng()
    draw.bit_generator.state = generator
    offsets = np.arange(setting.length + 1)
    began = time.monotonic() - seconds

    def mean(weights: Weights, inputs: Any, targets: Any) -> Any:
        return anp.mean(losses(setting, scheme, weights, inputs, targets))

    loss_and_gradient = value_and_grad(mean)
    for step in range(done, setting.steps):
        starts = draw.integers(0, len(data) - setting.length, setting.batch)
        ids = data[starts[:, None] + offsets].astype(np.int64)
        with np.errstate(all="ignore"):  # what is not finite is seen below
            loss, gradient = loss_and_gradient(weights, ids[:, :-1], ids[:, 1:])
        norm = sum(float((g.astype(np.float64) ** 2).sum()) for g in gradient.values()) ** 0.5
        if not np.isfinite(loss) or not np.isfinite(norm):
            raise DivergedError(f"diverged at step {step + 1} of {setting.steps}: loss {loss}, gradient {norm}")
        clip, rate = np.float32(min(1.0, 1.0 / max(norm, 1e-12))), rate_at(setting, step)
        one, two = 1 - float(FIRST_MOMENT) ** (step + 1), 1 - float(SECOND_MOMENT) ** (step + 1)
        for name, g in gradient.items():
            g = g * clip
            first[name] = FIRST_MOMENT * first[name] + (ONE - FIRST_MOMENT) * g
            second[name] = SECOND_MOMENT * second[name] + (ONE - SECOND_MOMENT) * g * g
            moved = first[name] / (np.sqrt(second[name] / np.float32(two)) + TINY)
            weights[name] = np.asarray(weights[name] - np.float32(rate / one) * moved)
        report(step + 1, float(loss))
        over = step + 1 == setting.steps
        if over or (step + 1) % KEPT == 0:
            moments = ({}, {}) if over else (dict(first), dict(second))
            reached = dict(draw.bit_generator.state)
            keep(State(dict(weights), *moments, step + 1, reached, time.monotonic() - began))
    return weights


def read(
    setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, count: int, length: int, stride: int | None = None
) -> Any:
    """Nats of the bytes 1..count of `data`, (count,), read in windows of `length`; IndexError where the scheme ends.

    Windows follow each other; with a `stride` they begin that far apart, and each predicts only what none before did.
    """
    ids = data[: count + 1].astype(np.int64)
    ends = np.append(np.arange(length, count, stride or length), count)
    found = np.empty(count)
    done = 0
    for some in np.array_split(ends, max(1, len(ends) * length // TOKENS)):
        at = some[:, None] + np.arange(-length, 0)
        nats = losses(setting, scheme, weights, ids[at], ids[at + 1]).reshape(at.shape)
        for end, row in zip(some, nats, strict=True):
            found[done:end] = row[length - (end - done) :]
            done = end
    return found


def perplexity(
    setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, count: int, length: int
) -> float | None:
    """exp(mean nats) of the same `count` bytes, read in windows of `length`; None where the scheme does not reach."""
    try:
        return float(np.exp(read(setting, scheme, weights, data, count, length).mean()))
    except IndexError:  # a table of positions ends
        return None


def of_the_last(nats: Any, length: int, last: int) -> Any:
    """Those of the last bytes of each window of `length`."""
    return nats.reshape(-1, length)[:, -last:].ravel()
