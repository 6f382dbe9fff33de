"""Comparisons with peers: asserted by the tests of this folder, and kept for the table of
benchmarks/accuracy/agreement.py."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Comparison:
    operator: str
    reference: str
    """The peer and its part; by default the names of the file and of the test."""
    configuration: str
    """The parameters of the test."""
    worst: float
    """The largest |ours - theirs|."""
    share: float
    """The largest |ours - theirs| / allowed."""


MADE: list[Comparison] = []


def agree(operator: str, ours: Any, theirs: Any, allowed: Any, reference: str = "") -> None:
    """Assert |ours - theirs| <= allowed, entry by entry; infinities must be equal."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite])
    error = np.abs(ours[finite] - theirs[finite])
    bound = np.broadcast_to(np.asarray(allowed, np.float64), ours.shape)[finite]
    shares = np.divide(error, bound, out=np.where(error > 0, np.inf, 0.0), where=bound > 0)
    worst, share = float(error.max(initial=0.0)), float(shares.max(initial=0.0))
    name, configuration = _where()
    MADE.append(Comparison(operator, reference or name, configuration, worst, share))
    assert share <= 1, f"{worst:.3g} apart, {share:.3g} of the allowed difference"


def _where() -> tuple[str, str]:
    """File, test and parameters of the running test, from `bridges/tests/test_torch.py::test_scale[0.5] (call)`."""
    found = re.match(r".*test_(\w+)\.py::test_(\w+)(?:\[(.*)\])? ", os.environ.get("PYTEST_CURRENT_TEST", ""))
    return (f"{found[1]}: {found[2].replace('_', ' ')}", found[3] or "") if found else ("?", "")
