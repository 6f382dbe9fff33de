"""Train a model with Adam on random windows of the text."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

import numpy as np

from arrays import Traced

from .autograd_typed import anp, value_and_grad
from .model import initial, losses
from .schemes import Scheme, Setting, Weights
from .text import Bytes, Tokens

WARM_UP, FINAL_RATE = 50, 0.1
"""Steps until the learning rate is at its largest, and the fraction of it that the cosine schedule ends at."""
BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.99), np.float32(1e-8)
"""Parameters of Adam."""
ONE = np.float32(1)  # NumPy 1 turns a float32 scalar and a Python int into float64
Report = Callable[[int, float], object]
"""Called with the number of each step, from 1, and its loss."""


class DivergedError(RuntimeError):
    """The loss or its gradient is NaN or infinite."""


def rate_at(setting: Setting, step: int) -> float:
    """Learning rate of a step: linear warm-up times cosine decay."""
    decay = FINAL_RATE + (1 - FINAL_RATE) * (1 + cos(pi * step / setting.steps)) / 2
    return setting.rate * decay * min(1.0, (step + 1) / WARM_UP)


def train(
    setting: Setting,
    scheme: Scheme,
    data: Bytes,
    vocabulary: int,
    seed: int,
    report: Report = lambda step, loss: None,
) -> Weights:
    """Train a model on the text `data`, and return its weights. All schemes see the same windows.

    DivergedError if the loss or its gradient is NaN or infinite.
    """
    weights = initial(setting, scheme, vocabulary, seed)
    first, second = ({name: np.zeros_like(array) for name, array in weights.items()} for _ in range(2))
    draw = np.random.default_rng([seed, 1])
    offsets = np.arange(setting.length + 1)

    def mean_loss(weights: Weights, inputs: Tokens, targets: Tokens) -> Traced:
        return anp.mean(losses(setting, scheme, weights, inputs, targets))

    loss_and_gradient = value_and_grad(mean_loss)
    for step in range(setting.steps):
        starts = draw.integers(0, len(data) - setting.length, setting.batch)
        ids = data[starts[:, None] + offsets].astype(np.int64)
        with np.errstate(all="ignore"):  # the check below reports NaN and infinity
            loss, gradient = loss_and_gradient(weights, ids[:, :-1], ids[:, 1:])
        norm = sum(float((g.astype(np.float64) ** 2).sum()) for g in gradient.values()) ** 0.5
        if not np.isfinite(loss) or not np.isfinite(norm):
            raise DivergedError(
                f"training diverged at step {step + 1} of {setting.steps}: loss {loss}, norm of its gradient {norm}"
            )
        clip, rate = np.float32(min(1.0, 1.0 / max(norm, 1e-12))), rate_at(setting, step)
        first_bias, second_bias = 1 - float(BETA_1) ** (step + 1), 1 - float(BETA_2) ** (step + 1)
        for name, g in gradient.items():
            g = g * clip
            first[name] = BETA_1 * first[name] + (ONE - BETA_1) * g
            second[name] = BETA_2 * second[name] + (ONE - BETA_2) * g * g
            direction = first[name] / (np.sqrt(second[name] / np.float32(second_bias)) + EPSILON)
            weights[name] = np.asarray(weights[name] - np.float32(rate / first_bias) * direction)
        report(step + 1, float(loss))
    return weights
