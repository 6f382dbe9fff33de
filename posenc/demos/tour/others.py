"""The functions around the schemes: what each says, and a number that shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import posenc

from ..._core_api.arguments import Array
from .measure import embeddings, project
from .schemes import HEADS, MODEL, WIDTH

FAR = 10**6
TRAINED = 512
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip


def off(made: Any, wanted: Any) -> str:
    """How far two results are from each other, as a part of the largest number."""
    difference = float(abs(np.asarray(made, np.float64) - wanted).max() / abs(np.asarray(wanted)).max())
    return "off by 0" if difference == 0 else f"off by {difference:.0e}"


def listed(values: Any) -> str:
    return " ".join(f"{x:g}" for x in np.asarray(values).tolist())


def others(words: Sequence[str]) -> dict[str, tuple[str, Callable[[], str]]]:
    """By the name of the function: what it shows, and how to get the number."""
    n, numbers = len(words), np.arange(len(words))
    w, rope = posenc.rope_frequencies(WIDTH), partial(posenc.rope, frequencies=posenc.rope_frequencies(WIDTH))
    q, k, v = project(embeddings(words))
    table: Array = posenc.sinusoidal(n, MODEL)
    moved: Array = posenc.sinusoidal(numbers + FAR, MODEL)

    def halves() -> str:
        parts = [posenc.attention(q, k[:, s], v[:, s], return_lse=True) for s in (slice(n // 2), slice(n // 2, None))]
        return off(posenc.merge_attention(*zip(*parts, strict=True))[0], posenc.attention(q, k, v))

    def farthest(positions: tuple[Array, Array]) -> str:
        return f"{positions[0][-1] - positions[1][0]:g} instead of {n - 1}"

    def back() -> str:
        there = posenc.convert_layout(q, source="half", target="interleaved")
        return off(posenc.convert_layout(there, source="interleaved", target="half"), q)

    def config() -> str:
        scaled = posenc.rope_from_config(LLAMA).inv_freq
        return listed([scaled[-1] / posenc.rope_frequencies(128, base=500000.0).inv_freq[-1]])

    def slowest() -> str:
        yarn = posenc.rope_frequencies(WIDTH, rope_type="yarn", factor=8, original_max_position_embeddings=TRAINED)
        return listed([yarn.inv_freq[-1] / w.inv_freq[-1]])

    ends = posenc.frequencies(MODEL)[[0, -1]]
    mask = np.arange(n + 3) >= 3
    written = posenc.digits(n, base=16, width=3)
    return {
        "frequencies": (f"radians per position of {MODEL} channels, first and last", lambda: listed(ends.round(7))),
        "shift": ("the sinusoid 10^6 later, from here", lambda: off(posenc.shift(table, FAR), moved)),
        "shift_matrix": ("the same as a matrix", lambda: off(table @ posenc.shift_matrix(FAR, MODEL).T, moved)),
        "digits": (f"{n} words, in base 16", lambda: listed(written)),
        "from_digits": ("and back", lambda: listed([posenc.from_digits(written, base=16)])),
        "positions_from_mask": ("3 of padding, then the text", lambda: listed(posenc.positions_from_mask(mask)[:6])),
        "rope_frequencies": ("YaRN by 8: slowest pair, after / before", slowest),
        "rope_from_config": ("a Llama 3 config: slowest pair, after / before", config),
        "convert_layout": ("queries to the other layout and back", back),
        "rope_matrix": (
            "rope of the last word, by a matrix",
            lambda: off(q[0, -1] @ posenc.rope_matrix(n - 1, w, layout="half").T, rope(q, n, layout="half")[0, -1]),
        ),
        "rope_table": (
            "rope from a table",
            lambda: off(posenc.rope(q, posenc.rope_table(n, w), layout="half"), rope(q, n, layout="half")),
        ),
        "rerotate": (
            "rotated keys, moved by 10^6",
            lambda: off(
                posenc.rerotate(rope(k, n, layout="half"), numbers, numbers + FAR, w, layout="half"),
                rope(k, numbers + FAR, layout="half"),
            ),
        ),
        "logn_scale": (f"trained at {TRAINED}: factor at 4096", lambda: f"{posenc.logn_scale([4095], TRAINED)[0]:.3f}"),
        "rerope_positions": (
            "largest distance, window 16",
            lambda: farthest(posenc.rerope_positions(n, window=16)),
        ),
        "self_extend_positions": (
            "largest distance, window 16, groups of 8",
            lambda: farthest(posenc.self_extend_positions(n, group=8, window=16)),
        ),
        "alibi_slopes": (f"of {HEADS} heads, first and last", lambda: listed(posenc.alibi_slopes(HEADS)[[0, -1]])),
        "t5_bucket": ("of distances 1, 10, 100, 1000", lambda: listed(posenc.t5_bucket([-1, -10, -100, -1000]))),
        "nezha": (
            "row of distance 1 is PE[K + 1]",
            lambda: off(posenc.nezha(WIDTH, K=8)[9], posenc.sinusoidal(18, WIDTH, dtype=np.float64)[9]),
        ),
        "xl_table": ("its rows for distances -8 .. 8", lambda: listed(posenc.xl_table(8, WIDTH).shape)),
        "attention": (
            "of equal values is that value",
            lambda: off(posenc.attention(q, k, np.ones_like(v)), np.ones_like(v)),
        ),
        "merge_attention": ("two halves of the keys, merged", halves),
    }
