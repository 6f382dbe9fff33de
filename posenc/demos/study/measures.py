"""What is read off one training: perplexity by both protocols, and of the last bytes of long windows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import text
from .fixes import FIXES
from .schemes import Scheme, Setting, Weights
from .training import of_the_last, read

ByLength = dict[int, float | None]
"""None where the scheme does not reach, or the question does not arise."""


class Reading(NamedTuple):
    """How test bytes are read. Every number of a column is about the same bytes."""

    targets: int
    """Bytes that windows one after the other predict."""
    slid: int
    """Bytes that sliding windows predict, the first of those."""
    stride: int
    """Of sliding windows."""


class Measured(NamedTuple):
    """Perplexities by length of window."""

    perplexity: ByLength
    last: ByLength
    """Of the bytes that are the last of a long window, as many as in training."""
    last_ratio: ByLength
    """That, divided by the perplexity of the very same bytes in windows as long as in training."""
    sliding: ByLength


def reading(setting: Setting, data: text.Bytes, stride: int | None) -> Reading:
    """A quarter of the bytes for sliding windows: each of those reads a whole window for `stride` bytes."""
    least = int(np.lcm.reduce(setting.lengths))
    count = text.targets(data, max(setting.targets, least), setting.lengths)
    slid = text.targets(data, max(setting.targets // 4, least), setting.lengths)
    return Reading(count, slid, stride or setting.length)


def measured(setting: Setting, scheme: Scheme, weights: Weights, data: text.Bytes, how: Reading) -> Measured:
    trained = setting.length
    found = Measured({}, {}, {}, {})
    own = read(setting, scheme, weights, data, how.targets, trained)
    for length in setting.lengths:
        try:
            nats = own if length == trained else read(setting, scheme, weights, data, how.targets, length)
            slid = read(setting, scheme, weights, data, how.slid, length, how.stride)
        except IndexError:  # a table of positions ends
            nats = slid = None
        found.perplexity[length] = _perplexity(nats)
        found.sliding[length] = _perplexity(slid)
        whole = nats is not None and length % trained == 0
        here, there = (of_the_last(some, length, trained) if whole else None for some in (nats, own))
        found.last[length] = _perplexity(here)
        found.last_ratio[length] = None if here is None else _perplexity(here - there)
    return found


def fixed(setting: Setting, weights: Weights, data: text.Bytes, how: Reading) -> dict[str, ByLength]:
    """Weights of plain RoPE, read in every other way that there is for them."""
    return {
        name: {n: _perplexity(read(setting, fix(setting), weights, data, how.slid, n)) for n in setting.lengths}
        for name, fix in FIXES.items()
    }


def _perplexity(nats: Any) -> float | None:
    return None if nats is None else float(np.exp(nats.mean()))
