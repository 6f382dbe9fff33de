"""Methods that extend the context of a model trained with RoPE, without further training."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import posenc

from .schemes import Array, Scheme, Setting

RopeType = Literal["linear", "ntk", "ntk_by_parts", "yarn"]
Extension = Callable[[Setting], Scheme]
Frequencies = Callable[[Setting, int, int], posenc.RopeFrequencies]
"""Frequencies for (setting, n bytes of a window, head width)."""
NoBias = tuple[()]
"""A scheme of RoPE has no bias."""
Positions = npt.NDArray[Any]
FarPositions = Callable[[int, int, int], tuple[Positions, Positions]]
"""Positions of queries and keys at or beyond a window, for (n, window, training length)."""


def _scaled(rope_type: RopeType, factor: float | None = None, **keys: Any) -> Frequencies:
    """Frequencies of a `rope_type` scaled by `factor`, by default n / training length."""
    return lambda setting, n, width: posenc.rope_frequencies(
        width, rope_type=rope_type, factor=max(1.0, n / setting.length) if factor is None else factor, **keys
    )


def _scaled_from_length(rope_type: RopeType, **keys: Any) -> Frequencies:
    """Frequencies of a `rope_type` that also reads the training length, scaled by n / training length."""
    return lambda setting, n, width: _scaled(rope_type, original_max_position_embeddings=setting.length, **keys)(
        setting, n, width
    )


def _unscaled(setting: Setting, n: int, width: int) -> posenc.RopeFrequencies:
    return posenc.rope_frequencies(width)


def _dynamic_ntk(setting: Setting, n: int, width: int) -> posenc.RopeFrequencies:
    return posenc.rope_frequencies(
        width, rope_type="dynamic", factor=1.0, seq_len=n, max_position_embeddings=setting.length
    )


def _scale_by_log_n(setting: Setting, q: Array) -> Array:
    """Multiply each query by log(its position) / log(training length) beyond that length."""
    return q * posenc.logn_scale(q.shape[-2], setting.length).astype(q.dtype)[:, None]


def _with_frequencies(frequencies: Frequencies, *, log_n: bool = False) -> Extension:
    """Rotate by other frequencies."""

    def of(setting: Setting) -> Scheme:
        def attention(q: Array, k: Array, v: Array, *, bias: NoBias = (), causal: bool) -> Array:
            n, width = q.shape[-2:]
            scaled = frequencies(setting, n, width)
            q, k = (posenc.rope(x, n, scaled, layout="half") for x in (q, k))
            if log_n:
                q = _scale_by_log_n(setting, q)
            out: Any = posenc.attention(q, k, v, bias=bias, causal=causal)
            return np.asarray(out)

        return Scheme(attention=attention)

    return of


def _with_far_positions(far_positions: FarPositions, *, log_n: bool = False) -> Extension:
    """Rotate by other positions at distances from half the training length on."""

    def of(setting: Setting) -> Scheme:
        def attention(q: Array, k: Array, v: Array, *, bias: NoBias = (), causal: bool) -> Array:
            n, width = q.shape[-2:]
            window, frequencies = setting.length // 2, posenc.rope_frequencies(width)
            if log_n:
                q = _scale_by_log_n(setting, q)
            q_far, k_far = far_positions(n, window, setting.length)

            def rotated(q_positions: int | Positions, k_positions: int | Positions) -> tuple[Array, Array]:
                return (
                    posenc.rope(q, q_positions, frequencies, layout="half"),
                    posenc.rope(k, k_positions, frequencies, layout="half"),
                )

            near = posenc.attention(
                *rotated(n, n), v, bias=bias, causal=causal, window=(window - 1, None), return_lse=True
            )
            far = posenc.attention(
                *rotated(q_far, k_far), v, bias=bias, causal=causal, window=(None, -window), return_lse=True
            )
            merged: Array = posenc.merge_attention(*zip(near, far, strict=True))[0]
            return merged

        return Scheme(attention=attention)

    return of


def _rerope(n: int, window: int, length: int) -> tuple[Positions, Positions]:
    return posenc.rerope_positions(n, window=window)


def _self_extend(n: int, window: int, length: int) -> tuple[Positions, Positions]:
    """Positions in the smallest groups that keep every distance below the training length."""
    group = next(g for g in count(1) if (n - 1) // g + window - window / g <= length - 1)
    return posenc.self_extend_positions(n, group=group, window=window)


EXTENSIONS: dict[str, Extension] = {
    "raw": _with_frequencies(_unscaled),
    "PI": _with_frequencies(_scaled("linear")),
    "dynamic NTK": _with_frequencies(_dynamic_ntk),
    "NTK 8": _with_frequencies(_scaled("ntk", 8)),
    "NTK 16": _with_frequencies(_scaled("ntk", 16)),
    "NTK 32": _with_frequencies(_scaled("ntk", 32)),
    "NTK-by-parts": _with_frequencies(_scaled_from_length("ntk_by_parts")),
    "YaRN": _with_frequencies(_scaled_from_length("yarn")),
    "YaRN, temperature 1": _with_frequencies(_scaled_from_length("yarn", attention_factor=1.0)),
    "ReRoPE": _with_far_positions(_rerope),
    "Self-Extend": _with_far_positions(_self_extend),
    "raw, log n": _with_frequencies(_unscaled, log_n=True),
    "dynamic NTK, log n": _with_frequencies(_dynamic_ntk, log_n=True),
    "ReRoPE, log n": _with_far_positions(_rerope, log_n=True),
}
"""Replacements of attention for weights that were trained with plain RoPE.

"raw" is RoPE unchanged. PI, YaRN and NTK-by-parts scale by the length of the window over the training length. NTK 8, 16
and 32 scale by that number at every length. The window of ReRoPE and Self-Extend is half the training length.
NTK-by-parts is the ramp over turns of YaRN's paper. YaRN is the ramp over pairs of its code, with the temperature of
the paper unless the name says 1."""
