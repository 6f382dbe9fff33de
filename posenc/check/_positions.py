"""The check of positions of text, images and videos (M-RoPE)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .. import mrope_positions, reference
from ._inputs import call
from ._judge import Case, Kind, as_numbers, hypotheses, judge
from ._laws import versus
from ._report import Array, Float64, Reading, Report, further

__tracebackhide__ = True  # pytest shows the line of the implementation

AXES = ("time", "height", "width")
DECODED = 3
"""Tokens behind the parts that a function is asked for."""
LATER = "a chunk that begins inside the sequence, and decoded tokens"


def numbered(c: Case) -> Float64:
    """The positions of the tokens of all calls, one call after the other, (3, tokens)."""
    blocks, begin = [], 0
    options = {name: c[name] for name in ("style", "merge", "tokens_per_second")}
    for part in c["parts"]:
        block, _, end = reference.mrope_positions([part], start=begin, **options)
        if np.ndim(part):
            t, h, w = (int(size) for size in part[:3])
            block = c["grid"](block, begin)
            end = c["advance"](begin, end, block.shape[1], t, h // c["merge"], w // c["merge"])
        blocks.append(block)
        begin = end
    last = max(end for _, end in c["calls"])
    blocks.append(np.tile(begin + np.arange(max(last - c["n"], 0)), (3, 1)))
    positions = np.concatenate(blocks, axis=1)[c["order"]]
    found = []
    for first, end in c["calls"]:
        window = slice(*c["window"](first, end))
        found.append(np.tile(np.arange(first, end), (3, 1)) if c["counts"](first) else positions[:, window])
    return np.asarray(np.concatenate(found, axis=1), np.float64)


def tokens(c: Case) -> list[str]:
    """Names of the tokens of all calls."""
    kinds = [f"the grid {part}" if np.ndim(part) else "text" for part in c["parts"]]
    names = [f"part {i}, {kind}" for i, kind in enumerate(kinds) for _ in range(c["sizes"][i])]
    return [
        f"token {i} ({names[i] if i < len(names) else 'decoding'}{f', asked for {first}:{end}' if first else ''})"
        for first, end in c["calls"]
        for i in range(first, end)
    ]


def read_positions(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read the first part whose positions are wrong, on each axis."""
    parts = np.array([name.partition(" (")[2][:-1] for name in tokens(c)])
    for axis, got, right in zip(AXES, numbers, wanted, strict=True):
        wrong = np.flatnonzero(got != right)
        if len(wrong):
            same = parts == parts[wrong[0]]
            yield Reading(axis, f"The {axis} of {parts[wrong[0]]} is {versus(got[same], right[same])}.")


POSITIONS = Kind(
    "positions",
    numbered,
    ("axis", "token"),
    lambda c, wanted, u: 1e-2 if c["style"] == "qwen3_omni" else 0.5,
    hypotheses("positions"),
    lambda c: {"axis": AXES, "token": tokens(c)},
    read_positions,
)


def positions(
    impl: object,
    parts: Iterable[object],
    *,
    style: str,
    merge: int = 2,
    tokens_per_second: float | None = None,
) -> Report:
    """Check the positions of text, images and videos in a model with M-RoPE.

    Parameters
    ----------
    impl : callable or array
        ``impl(begin, end)`` returns the positions of the tokens begin .. end - 1, (3, end - begin), or
        (3, 1, end - begin). It is called for
        all tokens of the parts, for a chunk inside of them, and for tokens behind them, as they are decoded. Or the
        positions themselves, (3, N) or more: columns from N on are decoded tokens.
    parts, style, merge, tokens_per_second
        As in `posenc.mrope_positions`.

    Returns
    -------
    Report

    Examples
    --------
    An image of 2 x 3 merged patches takes 6 tokens, but 3 positions:

    >>> import numpy as np, posenc.check
    >>> parts = [3, (1, 4, 6), 2]
    >>> found = posenc.mrope_positions(parts, style="qwen2_vl").positions
    >>> found[:, 9:] = [[9, 10]] * 3
    >>> print(posenc.check.positions(found, parts, style="qwen2_vl").causes[0].sentence)
    Behind a grid positions go on by its number of tokens.
    """
    given: list[Any] = list(parts)
    options: dict[str, Any] = {"style": style, "merge": merge, "tokens_per_second": tokens_per_second}
    n = mrope_positions(given, **options).positions.shape[1]
    sizes = [mrope_positions([part], **options).positions.shape[1] for part in given]
    case: Case = {
        **options, "parts": given, "sizes": sizes, "n": n, "order": [0, 1, 2], "grid": lambda block, begin: block,
        "advance": lambda begin, end, count, t, h, w: end, "window": lambda first, end: (first, end),
        "counts": lambda first: False, "videos": [part for part in given if np.ndim(part) and part[0] > 1],
    }  # fmt: skip

    def numbers(value: object) -> Array:
        """The positions without an axis for the batch."""
        got, _ = as_numbers(value, "positions")
        return got[:, 0] if got.ndim == 3 and got.shape[1] == 1 else got

    def result(first: int, end: int) -> Array:
        got = numbers(call("positions", impl, first, end))
        return got[:, : end - first] if got.shape == (3, n) else got  # a chunk that is not cut

    def run(calls: list[tuple[int, int]]) -> Report:
        got = np.concatenate([result(*one) for one in calls], -1)
        return judge(POSITIONS, got, {**case, "calls": calls}, "float64")

    if not callable(impl):
        got = numbers(impl)
        calls = [(0, n), (n, got.shape[1])] if got.ndim == 2 and got.shape[1] > n else [(0, n)]
        return further(judge(POSITIONS, got, {**case, "calls": calls}, "float64"), None, LATER)
    later = [(n // 3, max(2 * n // 3, min(n // 3 + 1, n))), (n, n + DECODED)]
    with contextlib.suppress(Exception):  # it may take nothing but the whole sequence
        report = run([(0, n), *later])
        if report.got is not None:
            return report
    return further(run([(0, n)]), lambda: run([(0, n), *later]), LATER)
