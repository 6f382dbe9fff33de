"""What of a training step is posenc."""

from __future__ import annotations

import cProfile
from pathlib import Path
from typing import Any, NamedTuple

import posenc

from .schemes import Scheme, Setting
from .text import Corpus
from .training import train

STEPS = 10


class Share(NamedTuple):
    """Of the time of a step, from 0 to 1."""

    attention: float
    """Attention and its gradient, biases included."""
    posenc: float
    """Those and all other functions of posenc."""


def share(setting: Setting, scheme: Scheme, corpus: Corpus) -> Share:
    """From a few steps under Python's profiler, which slows what is not posenc the most."""
    profile = cProfile.Profile()
    few = setting._replace(steps=STEPS)
    profile.runcall(train, few, scheme, corpus.train, corpus.vocabulary, 0)
    package = Path(posenc.__file__).parent
    whole = own = attention = 0.0
    for entry in profile.getstats():
        code: Any = entry.code
        whole += entry.inlinetime
        if isinstance(code, str):
            inside = "posenc._core" in code
            attention += entry.inlinetime * (inside and ".attention" in code)
        else:
            file = Path(code.co_filename)
            inside = package in file.parents and package / "study" not in file.parents
        own += entry.inlinetime * inside
    return Share(attention / whole, own / whole)
