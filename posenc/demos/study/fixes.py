"""RoPE read beyond the length of training, without any more training: what was made for that, on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import posenc

from .schemes import Scheme, Setting

Fix = Callable[[Setting], Scheme]
Scaled = Callable[[Setting, int, int], posenc.RopeFrequencies]
"""Frequencies for n bytes and heads of a width."""
Places = Callable[[int, int, int], tuple[Any, Any]]
"""Positions of queries and keys for n bytes, a window and a length of training."""


def _scaled(rope_type: str, times: float | None = None, **keys: Any) -> Scaled:
    """By `times`, else by how much longer than in training."""
    return lambda setting, n, width: posenc.rope_frequencies(
        width, rope_type=rope_type, factor=max(1.0, n / setting.length) if times is None else times, **keys
    )


def _of_length(rope_type: str, **keys: Any) -> Scaled:
    """The same for types that read the length of training."""
    return lambda setting, n, width: _scaled(rope_type, original_max_position_embeddings=setting.length, **keys)(
        setting, n, width
    )


def _plain(setting: Setting, n: int, width: int) -> posenc.RopeFrequencies:
    return posenc.rope_frequencies(width)


def _dynamic(setting: Setting, n: int, width: int) -> posenc.RopeFrequencies:
    return posenc.rope_frequencies(
        width, rope_type="dynamic", factor=1.0, seq_len=n, max_position_embeddings=setting.length
    )


def _grown(setting: Setting, q: Any) -> Any:
    """By log n, past the length of training."""
    return q * posenc.logn_scale(q.shape[-2], setting.length).astype(q.dtype)[:, None]


def _turned(scaled: Scaled, *, log_n: bool = False) -> Fix:
    def of(setting: Setting) -> Scheme:
        def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
            n, width = q.shape[-2:]
            w = scaled(setting, n, width)
            q, k = (posenc.rope(x, n, w, layout="half") for x in (q, k))
            return posenc.attention(_grown(setting, q) if log_n else q, k, v, **options)

        return Scheme(attention=attention)

    return of


def _in_two_parts(places: Places, *, log_n: bool = False) -> Fix:
    """Keys less than half the length of training away as always, all others at `places`."""

    def of(setting: Setting) -> Scheme:
        def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
            n, width = q.shape[-2:]
            window, w = setting.length // 2, posenc.rope_frequencies(width)
            q = _grown(setting, q) if log_n else q
            far = places(n, window, setting.length)
            (q_near, k_near), (q_far, k_far) = (
                [posenc.rope(x, at, w, layout="half") for x, at in zip((q, k), where, strict=True)]
                for where in ((n, n), far)
            )
            near = posenc.attention(q_near, k_near, v, window=(window - 1, None), return_lse=True, **options)
            rest = posenc.attention(q_far, k_far, v, window=(None, -window), return_lse=True, **options)
            return posenc.merge_attention(*zip(near, rest, strict=True))[0]

        return Scheme(attention=attention)

    return of


def _rerope(n: int, window: int, length: int) -> tuple[Any, Any]:
    return posenc.rerope_positions(n, window=window)


def _self_extend(n: int, window: int, length: int) -> tuple[Any, Any]:
    """In the smallest groups that leave no distance unseen in training."""
    group = next(g for g in count(1) if (n - 1) // g + window - window / g <= length - 1)
    return posenc.self_extend_positions(n, group=group, window=window)


FIXES: dict[str, Fix] = {
    "raw": _turned(_plain),
    "PI": _turned(_scaled("linear")),
    "dynamic NTK": _turned(_dynamic),
    "NTK 8": _turned(_scaled("ntk", 8)),
    "NTK 16": _turned(_scaled("ntk", 16)),
    "NTK 32": _turned(_scaled("ntk", 32)),
    "NTK-by-parts": _turned(_of_length("ntk_by_parts")),
    "YaRN": _turned(_of_length("yarn")),
    "YaRN, not cooled": _turned(_of_length("yarn", attention_factor=1.0)),
    "ReRoPE": _in_two_parts(_rerope),
    "Self-Extend": _in_two_parts(_self_extend),
    "raw, log n": _turned(_plain, log_n=True),
    "dynamic NTK, log n": _turned(_dynamic, log_n=True),
    "ReRoPE, log n": _in_two_parts(_rerope, log_n=True),
}
"""Attention for weights that were trained with plain RoPE. PI, YaRN and NTK-by-parts scale by how much longer a window
is than in training, NTK 8, 16 and 32 by that number whatever the length; windows of ReRoPE and Self-Extend are half the
length of training. NTK-by-parts is the ramp over turns that the paper of YaRN writes, YaRN the one over pairs that its
code has; "not cooled" is without its temperature."""
