"""The table of symptoms in guides/validating.md: each row plants an error, and measures which numbers it changes.

``python docs/symptom_table.py --write`` puts the table into the page. The planted errors are those of
tests/check/plain.py, and posenc.check names each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests" / "check")]

import made_part  # noqa: E402
import plain  # noqa: E402

import posenc  # noqa: E402
from posenc import check  # noqa: E402
from posenc.check import Report  # noqa: E402

W, W16 = plain.frequencies(32), plain.frequencies(16)
YARN = {
    "head_dim": 32,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32},
}
RNG = np.random.default_rng(0)
TABLE, WINDOW = RNG.standard_normal((32, 4)), RNG.standard_normal((77, 4))
T5, SWIN, ALIBI = posenc.t5(TABLE, bidirectional=True), posenc.swin(WINDOW, 4, 6), posenc.alibi(posenc.alibi_slopes(12))
ALIBI6 = posenc.alibi(posenc.alibi_slopes(6))
CAUSAL_MASK = partial(check.mask, causal=True)
REL = np.arange(40) - np.arange(40)[:, None]
ROPE = {"dim": 32, "layout": "half"}
FAR = np.arange(10**6, 10**6 + 24)


def rope(w: np.ndarray = W, **errors: object) -> Callable[..., np.ndarray]:
    return lambda x, p: plain.rope(x, p, w, **errors)


def single(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Angles in float32."""
    angle = (p.astype(np.float32)[:, None] * W.astype(np.float32)).astype(np.float64)
    cos, sin = (np.tile(table, 2) for table in (np.cos(angle), np.sin(angle)))
    return x * cos + plain.rotate_half(x, "half") * sin


def t5(rel: np.ndarray = REL, more: int = 0, **errors: object) -> np.ndarray:
    return TABLE[np.minimum(plain.bucket(rel, **errors) + more, 31)].transpose(2, 0, 1)


def alibi(slopes: np.ndarray) -> np.ndarray:
    return -slopes[:, None, None] * abs(REL)


def attention(**errors: object) -> Callable[..., np.ndarray]:
    return lambda q, k, v: plain.attention(q, k, v, **errors)


SLOPES6 = np.array(plain.get_slopes(6))[:, None, None] * abs(REL[:9, :9])
ROWS: dict[str, Callable[[], Report]] = {
    "pairs of the other layout": partial(check.rope, rope(pairs="interleaved"), **ROPE),
    "tables of the other layout": partial(check.rope, rope(table_pairs="interleaved"), **ROPE),
    "clockwise rotation": partial(check.rope, rope(sign=(1, -1)), **ROPE),
    "positions from 1": partial(check.rope, rope(offset=1), **ROPE),
    "base 10000 for 500000": partial(check.rope, rope(), {"head_dim": 32, "rope_theta": 500000.0}, layout="half"),
    "YaRN without attention factor": partial(check.rope, rope(plain.yarn(32, 1e4, 8.0, 32)), YARN, layout="half"),
    "whole head for half of it": partial(check.rope, rope(), dim=32, rotary_dim=16, layout="half"),
    "float32 angles near 10**6": partial(check.rope, single, positions=FAR, dtype="float64", **ROPE),
    "sinusoid in halves": partial(check.sinusoid, partial(plain.sinusoid, dim=32, layout="half"), 32),
    "a frequency for each channel": partial(check.sinusoid, partial(plain.sinusoid, dim=32, by_channel=2), 32),
    "slopes 2**(-8 h / 12)": partial(check.slopes, 2.0 ** (-8 * np.arange(1, 13) / 12), 12),
    "ALiBi with these slopes": partial(check.bias, alibi(2.0 ** (-8 * np.arange(1, 13) / 12)), ALIBI, 40),
    "T5 with i - j": partial(check.bias, t5(direction=-1), T5, 40),
    "T5 buckets one too large": partial(check.bias, t5(more=1), T5, 40),
    "T5 causal for bidirectional": partial(check.bias, t5(bidirectional=False), T5, 40),
    "T5 buckets rounded up": partial(check.bias, t5(ceil=True), T5, 40),
    "Swin 4 x 6 with 2 h - 1": partial(check.bias, WINDOW[plain.swin_index(4, 6, 7)].transpose(2, 0, 1), SWIN, 24),
    "mask aligned at the start": partial(CAUSAL_MASK, plain.causal(4, 9, 0), 4, 9, align="end"),
    "window of one key more": partial(CAUSAL_MASK, plain.causal(9, 9, left=4), 9, window=(3, None)),
    "attention aligned at the start": partial(
        check.attention, attention(mask=plain.causal(4, 9, 0)), causal=True, n=4, m=9),
    "attention without a scale": partial(check.attention, attention(scale=1.0)),
    "mask after the softmax": partial(
        check.attention, attention(mask=plain.causal(9, 9), after=True), causal=True),
    "key head h mod G": partial(check.attention, attention(repeat="tile"), kv_heads=2),
    "bias before the scale": partial(check.attention, attention(bias=-SLOPES6, bias_inside=True), bias=ALIBI6),
    "cache without an offset": partial(
        check.cache, plain.decoder(W16, lambda start: 0), frequencies=W16, layout="half"),
}  # fmt: skip
"""The planted errors, in the order of the page."""


def ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as 0-2, 5"""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


AXES = {
    "rope": ("batch", "head", "position", "channel"),
    "sinusoid": ("position", "channel"),
    "slopes": ("head",),
    "bias": ("head", "query", "key"),
    "mask": ("query", "key"),
    "attention": ("head", "query", "channel"),
    "cache": ("head", "query", "channel"),
}
MOST = 24
"""Longest list of places in a cell."""


def measured(report: Report) -> tuple[str, str, str]:
    """Return the share of wrong numbers, the places that are right, and the cause that posenc.check names."""
    assert report.got is not None
    assert report.wanted is not None
    assert report.wrong is not None
    wrong = report.wrong
    right = []
    for axis, name in enumerate(AXES[report.subject]):
        other = tuple(a for a in range(wrong.ndim) if a != axis)
        places = np.flatnonzero(~wrong.any(other))
        if 0 < len(places) < wrong.shape[axis]:
            listed = ranges([int(i) for i in places])
            right.append(f"{name} {listed}" if len(listed) <= MOST else f"{len(places)} of {wrong.shape[axis]} {name}s")
    both = report.wanted != 0
    ratio = report.got[both] / report.wanted[both]
    if wrong.mean() > 0.9 and np.ptp(ratio) < 1e-4 * abs(ratio).max():
        right.append(f"all x {np.median(ratio):.3f}")
    return (
        f"{100 * wrong.mean():.0f} %",
        "; ".join(right) or "nothing",
        " and ".join(dict.fromkeys(c.name for c in report.causes)),
    )


def table() -> str:
    lines = ["| planted error | wrong numbers | right | posenc.check names |", "|---|---|---|---|"]
    for name, run in ROWS.items():
        lines.append(f"| {name} | {' | '.join(measured(run()))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    program = "docs/symptom_table.py"
    asked = made_part.parser(program, "Write the table of symptoms of guides/validating.md.").parse_args(arguments)
    made = table()
    if not (asked.write or asked.check):
        print(made)
    return made_part.finish(ROOT / "docs" / "guides" / "validating.md", program, made, asked)


if __name__ == "__main__":
    sys.exit(main())
