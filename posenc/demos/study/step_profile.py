"""Measure the fraction of a training step that is spent in posenc."""

from __future__ import annotations

import cProfile
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import posenc

from .schemes import Scheme, Setting
from .text import Corpus
from .training import train

STEPS = 10
PACKAGE = Path(posenc.__file__).parent


class StepFractions(NamedTuple):
    """Fractions of the time of a training step, from 0 to 1."""

    attention: float
    """Attention and its gradient, biases included."""
    posenc: float
    """All functions of posenc, attention included."""


def is_posenc(code: CodeType | str) -> bool:
    """Return whether a profiled function belongs to posenc. The demos, which train the model, do not count."""
    if isinstance(code, str):  # a function of an extension module
        return "posenc._core" in code
    file = Path(code.co_filename)
    return PACKAGE in file.parents and PACKAGE / "demos" not in file.parents


def step_fractions(setting: Setting, scheme: Scheme, corpus: Corpus) -> StepFractions:
    """Profile ten steps. Python's profiler slows Python code more than posenc's kernels."""
    profile = cProfile.Profile()
    profile.runcall(train, setting._replace(steps=STEPS), scheme, corpus.train, corpus.vocabulary, 0)
    total = in_posenc = attention = 0.0
    for entry in profile.getstats():
        inside = entry.inlinetime * is_posenc(entry.code)
        total += entry.inlinetime
        in_posenc += inside
        attention += inside * (isinstance(entry.code, str) and ".attention" in entry.code)
    return StepFractions(attention / total, in_posenc / total)
