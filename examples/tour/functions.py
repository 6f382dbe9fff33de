"""The functions of posenc that are not schemes of the tour: a number that each computes, and its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

import posenc
from arrays import Array
from posenc.__main__ import HEADS, MODEL, WIDTH, embeddings, project

SHIFT = 10**6
TRAINED = 512
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
MEANINGS = {
    "frequencies": f"radians per position of {MODEL} channels, first and last",
    "shift": "sinusoids moved by 10^6 positions",
    "shift_matrix": "the same move as a matrix",
    "digits": "{n} in base 16",
    "from_digits": "these digits as a number",
    "interpolate_table": "the rows 0 and 1 resampled to five",
    "positions_from_mask": "positions after 3 tokens of padding",
    "rope_frequencies": "YaRN, factor 8: slowest frequency, after / before",
    "rope_from_config": "a Llama 3 config: slowest frequency, after / before",
    "convert_layout": "queries to the other layout and back",
    "rope_matrix": "rotation of the last word by a matrix",
    "rope_table": "rotation by a table of cosines and sines",
    "rerotate": "rotated keys moved by 10^6 positions",
    "logn_scale": f"factor of queries at 4096, trained at {TRAINED}",
    "floor_log_scale": f"the same for a model that sharpens every {TRAINED} positions",
    "axial_frequencies": "lines, then columns: pairs that each rotates",
    "rerope_positions": "largest distance with window 16",
    "self_extend_positions": "largest distance with window 16, groups of 8",
    "alibi_slopes": f"slopes of {HEADS} heads, first and last",
    "t5_bucket": "buckets of distances 1, 10, 100, 1000",
    "nezha": "row of distance 1 and the sinusoid at K + 1",
    "xl_table": "shape for distances -8 .. 8",
    "distance_function": "ALiBi as a function in Python",
    "attention": "attention to values of 1, from 1",
    "attention_weights": "weights times values, from attention",
    "quantize": "bytes of int8 keys, of those in float32",
    "merge_attention": "two halves of the keys, merged",
}
"""The meaning of the number of each function, for a text of n words."""


def difference(found: npt.ArrayLike, wanted: npt.ArrayLike) -> str:
    """Largest difference of two results, relative to the largest number."""
    expected = np.asarray(wanted)
    relative = float(abs(np.asarray(found, np.float64) - expected).max() / abs(expected).max())
    return "differs by 0" if relative == 0 else f"differs by {relative:.0e}"


def listed(values: npt.ArrayLike) -> str:
    return " ".join(f"{x:g}" for x in np.asarray(values).tolist())


def functions(words: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return, for each function by its name, the meaning of its number and the number."""
    n, positions = len(words), np.arange(len(words))
    frequencies = posenc.rope_frequencies(WIDTH)
    yarn = posenc.rope_frequencies(WIDTH, rope_type="yarn", factor=8, original_max_position_embeddings=TRAINED)
    llama, llama3 = posenc.rope_frequencies(128, base=500000.0), posenc.rope_from_config(LLAMA)
    rope = partial(posenc.rope, layout="half")
    q, k, v = project(embeddings(words))
    rotated = rope(q, n, frequencies)
    shifted: Array = posenc.sinusoidal(positions + SHIFT, MODEL)
    table: Array = posenc.sinusoidal(n, MODEL)
    interleaved = posenc.convert_layout(q, source="half", target="interleaved")
    moved = posenc.rerotate(rope(k, n, frequencies), positions, positions + SHIFT, frequencies, layout="half")
    halves = slice(n // 2), slice(n // 2, None)
    parts = [posenc.attention(q, k[:, half], v[:, half], return_lse=True) for half in halves]
    attended = np.asarray(posenc.attention(q, k, v))
    ones = np.ones_like(v)
    slopes = posenc.alibi_slopes(HEADS)
    by_function = posenc.distance_function(lambda rel: -slopes[:, None] * abs(rel), HEADS)
    in_python, in_c = (np.asarray(posenc.attention(q, k, v, bias=one)) for one in (by_function, posenc.alibi(slopes)))
    keys = posenc.quantize(k)
    hexadecimal = posenc.digits(n, base=16, width=3)

    def largest_distance(q_positions: Array, k_positions: Array) -> str:
        return f"{q_positions[-1] - k_positions[0]:g} instead of {n - 1}"

    numbers = {
        "frequencies": listed(posenc.frequencies(MODEL)[[0, -1]].round(7)),
        "shift": difference(posenc.shift(table, SHIFT), shifted),
        "shift_matrix": difference(table @ posenc.shift_matrix(SHIFT, MODEL).T, shifted),
        "digits": listed(hexadecimal),
        "from_digits": f"{posenc.from_digits(hexadecimal, base=16):g}",
        "interpolate_table": listed(posenc.interpolate_table([[0.0], [1.0]], 5)[:, 0]),
        "positions_from_mask": listed(posenc.positions_from_mask(np.arange(n + 3) >= 3)[:6]),
        "rope_frequencies": f"{yarn.inv_freq[-1] / frequencies.inv_freq[-1]:g}",
        "rope_from_config": f"{llama3.inv_freq[-1] / llama.inv_freq[-1]:g}",
        "convert_layout": difference(posenc.convert_layout(interleaved, source="interleaved", target="half"), q),
        "rope_matrix": difference(q[0, -1] @ posenc.rope_matrix(n - 1, frequencies, layout="half").T, rotated[0, -1]),
        "rope_table": difference(rope(q, posenc.rope_table(n, frequencies)), rotated),
        "rerotate": difference(moved, rope(k, positions + SHIFT, frequencies)),
        "logn_scale": f"{posenc.logn_scale([4095], TRAINED)[0]:.3f}",
        "floor_log_scale": f"{posenc.floor_log_scale([4095], floor=TRAINED, scale=0.1)[0]:.3f}",
        "axial_frequencies": listed((posenc.axial_frequencies((WIDTH // 2, WIDTH // 2)) > 0).sum(1)),
        "rerope_positions": largest_distance(*posenc.rerope_positions(n, window=16)),
        "self_extend_positions": largest_distance(*posenc.self_extend_positions(n, group=8, window=16)),
        "alibi_slopes": listed(slopes[[0, -1]]),
        "t5_bucket": listed(posenc.t5_bucket([-1, -10, -100, -1000])),
        "nezha": difference(posenc.nezha(WIDTH, K=8)[9], posenc.sinusoidal(18, WIDTH, dtype=np.float64)[9]),
        "xl_table": listed(posenc.xl_table(8, WIDTH).shape),
        "distance_function": difference(in_python, in_c),
        "attention": difference(np.asarray(posenc.attention(q, k, ones)), ones),
        "attention_weights": difference(posenc.attention_weights(q, k) @ v, attended),
        "quantize": f"{(keys.codes.nbytes + keys.scale.nbytes) / k.nbytes:.2f}",
        "merge_attention": difference(posenc.merge_attention(*zip(*parts, strict=True))[0], attended),
    }
    return {name: (meaning.format(n=n), numbers[name]) for name, meaning in MEANINGS.items()}
