"""Adam on random windows, and perplexity at lengths that were never trained."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Any

import autograd.numpy as anp  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np
from autograd import value_and_grad  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .model import initial, losses
from .schemes import Scheme, Setting, Weights
from .text import Bytes, windows

WARM_UP, LAST = 50, 0.1
"""Steps to the full rate, and the share of it that the cosine ends at."""
FIRST_MOMENT, SECOND_MOMENT, TINY = np.float32(0.9), np.float32(0.99), np.float32(1e-8)
ONE = np.float32(1)  # with a Python int NumPy 1 makes float64 of a scalar
TOKENS = 4096
"""Bytes that are read at a time when testing."""


class DivergedError(RuntimeError):
    """The loss is no number any more."""


def rate_at(setting: Setting, step: int) -> float:
    falling = LAST + (1 - LAST) * (1 + cos(pi * step / setting.steps)) / 2
    return setting.rate * falling * min(1.0, (step + 1) / WARM_UP)


def train(
    setting: Setting,
    scheme: Scheme,
    data: Bytes,
    vocabulary: int,
    seed: int,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Weights:
    """The weights after all steps; the same windows for every scheme. DivergedError where the loss is NaN or inf."""
    weights = initial(setting, scheme, vocabulary, seed)
    draw = np.random.default_rng([seed, 1])
    first = {name: np.zeros_like(array) for name, array in weights.items()}
    second = {name: np.zeros_like(array) for name, array in weights.items()}
    offsets = np.arange(setting.length + 1)

    def mean(weights: Weights, inputs: Any, targets: Any) -> Any:
        return anp.mean(losses(setting, scheme, weights, inputs, targets))

    loss_and_gradient = value_and_grad(mean)
    for step in range(setting.steps):
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
    return weights


def perplexity(
    setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, count: int, length: int
) -> float | None:
    """exp(mean nats) of the same `count` bytes, read in windows of `length`; None where the scheme does not reach."""
    inputs, targets = windows(data, count, length)
    rows = max(1, TOKENS // length)
    total = 0.0
    try:
        for row in range(0, len(inputs), rows):
            part = losses(setting, scheme, weights, inputs[row : row + rows], targets[row : row + rows])
            total += float(part.sum(dtype=np.float64))
    except IndexError:  # a table of positions ends
        return None
    return float(np.exp(total / count))
