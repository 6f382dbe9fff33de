"""The functions of posenc that are not schemes of the tour: a number that each computes, and its meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

import posenc

from .measure import embeddings, project
from .schemes import HEADS, MODEL, WIDTH, Array

SHIFT = 10**6
TRAINED = 512
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip


def difference(found: npt.ArrayLike, wanted: npt.ArrayLike) -> str:
    """Largest difference of two results, relative to the largest number."""
    expected = np.asarray(wanted)
    relative = float(abs(np.asarray(found, np.float64) - expected).max() / abs(expected).max())
    return "differs by 0" if relative == 0 else f"differs by {relative:.0e}"


def listed(values: npt.ArrayLike) -> str:
    return " ".join(f"{x:g}" for x in np.asarray(values).tolist())


def functions(words: Sequence[str]) -> dict[str, tuple[str, Callable[[], str]]]:
    """Return, for each function by its name, the meaning of its number and a call that computes it."""
    n, positions = len(words), np.arange(len(words))
    frequencies = posenc.rope_frequencies(WIDTH)
    rope = partial(posenc.rope, frequencies=frequencies, layout="half")
    q, k, v = project(embeddings(words))
    table: Array = posenc.sinusoidal(n, MODEL)
    shifted: Array = posenc.sinusoidal(positions + SHIFT, MODEL)

    def merge_attention() -> str:
        halves = slice(n // 2), slice(n // 2, None)
        parts = [posenc.attention(q, k[:, half], v[:, half], return_lse=True) for half in halves]
        merged: Array = posenc.merge_attention(*zip(*parts, strict=True))[0]
        return difference(merged, np.asarray(posenc.attention(q, k, v)))

    def attention_of_ones() -> str:
        return difference(np.asarray(posenc.attention(q, k, np.ones_like(v))), np.ones_like(v))

    def attention_weights() -> str:
        return difference(posenc.attention_weights(q, k) @ v, np.asarray(posenc.attention(q, k, v)))

    def distance_function() -> str:
        slopes = posenc.alibi_slopes(HEADS)
        written = posenc.distance_function(lambda rel: -slopes[:, None] * abs(rel), HEADS)
        in_c = np.asarray(posenc.attention(q, k, v, bias=posenc.alibi(slopes)))
        return difference(np.asarray(posenc.attention(q, k, v, bias=written)), in_c)

    def quantize() -> str:
        keys = posenc.quantize(k)
        return f"{(keys.codes.nbytes + keys.scale.nbytes) / k.nbytes:.2f}"

    def largest_distance(q_and_k_positions: tuple[Array, Array]) -> str:
        return f"{q_and_k_positions[0][-1] - q_and_k_positions[1][0]:g} instead of {n - 1}"

    def convert_layout() -> str:
        interleaved = posenc.convert_layout(q, source="half", target="interleaved")
        return difference(posenc.convert_layout(interleaved, source="interleaved", target="half"), q)

    def rope_frequencies() -> str:
        yarn = posenc.rope_frequencies(WIDTH, rope_type="yarn", factor=8, original_max_position_embeddings=TRAINED)
        return listed([yarn.inv_freq[-1] / frequencies.inv_freq[-1]])

    def rope_from_config() -> str:
        scaled = posenc.rope_from_config(LLAMA).inv_freq
        return listed([scaled[-1] / posenc.rope_frequencies(128, base=500000.0).inv_freq[-1]])

    def rope_matrix() -> str:
        matrix = posenc.rope_matrix(n - 1, frequencies, layout="half")
        return difference(q[0, -1] @ matrix.T, rope(q, n)[0, -1])

    def rope_table() -> str:
        return difference(posenc.rope(q, posenc.rope_table(n, frequencies), layout="half"), rope(q, n))

    def rerotate() -> str:
        rotated = posenc.rerotate(rope(k, n), positions, positions + SHIFT, frequencies, layout="half")
        return difference(rotated, rope(k, positions + SHIFT))

    def nezha() -> str:
        return difference(posenc.nezha(WIDTH, K=8)[9], posenc.sinusoidal(18, WIDTH, dtype=np.float64)[9])

    first_and_last = posenc.frequencies(MODEL)[[0, -1]].round(7)
    padded = np.arange(n + 3) >= 3
    hexadecimal = posenc.digits(n, base=16, width=3)
    return {
        "frequencies": (f"radians per position of {MODEL} channels, first and last", lambda: listed(first_and_last)),
        "shift": ("sinusoids moved by 10^6 positions", lambda: difference(posenc.shift(table, SHIFT), shifted)),
        "shift_matrix": (
            "the same move as a matrix",
            lambda: difference(table @ posenc.shift_matrix(SHIFT, MODEL).T, shifted),
        ),
        "digits": (f"{n} in base 16", lambda: listed(hexadecimal)),
        "from_digits": ("these digits as a number", lambda: listed([posenc.from_digits(hexadecimal, base=16)])),
        "interpolate_table": (
            "the rows 0 and 1 resampled to five",
            lambda: listed(posenc.interpolate_table([[0.0], [1.0]], 5)[:, 0]),
        ),
        "positions_from_mask": (
            "positions after 3 tokens of padding",
            lambda: listed(posenc.positions_from_mask(padded)[:6]),
        ),
        "rope_frequencies": ("YaRN, factor 8: slowest frequency, after / before", rope_frequencies),
        "rope_from_config": ("a Llama 3 config: slowest frequency, after / before", rope_from_config),
        "convert_layout": ("queries to the other layout and back", convert_layout),
        "rope_matrix": ("rotation of the last word by a matrix", rope_matrix),
        "rope_table": ("rotation by a table of cosines and sines", rope_table),
        "rerotate": ("rotated keys moved by 10^6 positions", rerotate),
        "logn_scale": (
            f"factor of queries at 4096, trained at {TRAINED}",
            lambda: f"{posenc.logn_scale([4095], TRAINED)[0]:.3f}",
        ),
        "floor_log_scale": (
            f"the same for a model that sharpens every {TRAINED} positions",
            lambda: f"{posenc.floor_log_scale([4095], floor=TRAINED, scale=0.1)[0]:.3f}",
        ),
        "axial_frequencies": (
            "lines, then columns: pairs that each rotates",
            lambda: listed((posenc.axial_frequencies((WIDTH // 2, WIDTH // 2)) > 0).sum(1)),
        ),
        "rerope_positions": (
            "largest distance with window 16",
            lambda: largest_distance(posenc.rerope_positions(n, window=16)),
        ),
        "self_extend_positions": (
            "largest distance with window 16, groups of 8",
            lambda: largest_distance(posenc.self_extend_positions(n, group=8, window=16)),
        ),
        "alibi_slopes": (
            f"slopes of {HEADS} heads, first and last",
            lambda: listed(posenc.alibi_slopes(HEADS)[[0, -1]]),
        ),
        "t5_bucket": (
            "buckets of distances 1, 10, 100, 1000",
            lambda: listed(posenc.t5_bucket([-1, -10, -100, -1000])),
        ),
        "nezha": ("row of distance 1 and the sinusoid at K + 1", nezha),
        "xl_table": ("shape for distances -8 .. 8", lambda: listed(posenc.xl_table(8, WIDTH).shape)),
        "distance_function": ("ALiBi as a function in Python", distance_function),
        "attention": ("attention to values of 1, from 1", attention_of_ones),
        "attention_weights": ("weights times values, from attention", attention_weights),
        "quantize": ("bytes of int8 keys, of those in float32", quantize),
        "merge_attention": ("two halves of the keys, merged", merge_attention),
    }
