"""Methods that extend the context of a model that was trained with RoPE. They do not train the model further."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import posenc
from arrays import Array, Traced

from .schemes import Scheme, Setting

Extension = Callable[[Setting], Scheme]
Frequencies = Callable[[int, int, int], posenc.RopeFrequencies]
"""Returns frequencies for (width of a head, number of tested positions, training length)."""
FarPositions = Callable[[int, int, int], tuple[Array, Array]]
"""Returns positions for queries and keys at least `window` apart, for (n, window, training length)."""


def unscaled(width: int, n: int, length: int) -> posenc.RopeFrequencies:
    return posenc.rope_frequencies(width)


def dynamic_ntk(width: int, n: int, length: int) -> posenc.RopeFrequencies:
    return posenc.rope_frequencies(width, rope_type="dynamic", factor=1.0, seq_len=n, max_position_embeddings=length)


def extension(
    frequencies: Frequencies = unscaled, far_positions: FarPositions | None = None, log_n: bool = False
) -> Extension:
    """Return schemes that rotate by `frequencies`, and by `far_positions` if a query and a key are far apart.

    Far is at least half the training length L. With `log_n` the query at position p is multiplied by
    ``max(1, log(p + 1) / log(L))``.
    """

    def of(setting: Setting) -> Scheme:
        length = setting.length

        def attention(q: Array, k: Array, v: Array, *, bias: Traced = (), causal: bool) -> Traced:
            n, width = q.shape[-2:]
            rotate = partial(posenc.rope, frequencies=frequencies(width, n, length), layout="half")
            attend = partial(posenc.attention, v=v, bias=bias, causal=causal)
            factor = posenc.logn_scale(n, length).astype(q.dtype)[:, None] if log_n else q.dtype.type(1)
            if far_positions is None:
                return attend(rotate(q, n) * factor, rotate(k, n))
            window = length // 2
            far_q, far_k = far_positions(n, window, length)
            near = attend(rotate(q, n) * factor, rotate(k, n), window=(window - 1, None), return_lse=True)
            far = attend(rotate(q, far_q) * factor, rotate(k, far_k), window=(None, -window), return_lse=True)
            return posenc.merge_attention(*zip(near, far, strict=True))[0]

        return Scheme(attention=attention)

    return of


def by_length(scaled: Callable[..., posenc.RopeFrequencies]) -> Extension:
    """Scale by n / (training length), but by at least 1, with a `rope_type` that also reads the training length."""
    return extension(lambda d, n, length: scaled(d, factor=max(n / length, 1), original_max_position_embeddings=length))


def ntk(factor: float) -> Extension:
    return extension(lambda width, n, length: posenc.rope_frequencies(width, rope_type="ntk", factor=factor))


def rerope(n: int, window: int, length: int) -> tuple[Array, Array]:
    return posenc.rerope_positions(n, window=window)


def self_extend(n: int, window: int, length: int) -> tuple[Array, Array]:
    """Return the positions of Self-Extend, with the smallest group that keeps each distance below `length`."""
    group = next(g for g in count(1) if (n - 1) // g + window - window / g <= length - 1)
    return posenc.self_extend_positions(n, group=group, window=window)


EXTENSIONS: dict[str, Extension] = {
    "raw": extension(),
    "PI": extension(lambda d, n, length: posenc.rope_frequencies(d, rope_type="linear", factor=max(1.0, n / length))),
    "dynamic NTK": extension(dynamic_ntk),
    "NTK 8": ntk(8),
    "NTK 16": ntk(16),
    "NTK 32": ntk(32),
    "NTK-by-parts": by_length(partial(posenc.rope_frequencies, rope_type="ntk_by_parts")),
    "YaRN": by_length(partial(posenc.rope_frequencies, rope_type="yarn")),
    "YaRN, temperature 1": by_length(partial(posenc.rope_frequencies, rope_type="yarn", attention_factor=1.0)),
    "ReRoPE": extension(far_positions=rerope),
    "Self-Extend": extension(far_positions=self_extend),
    "raw, log n": extension(log_n=True),
    "dynamic NTK, log n": extension(dynamic_ntk, log_n=True),
    "ReRoPE, log n": extension(far_positions=rerope, log_n=True),
}
"""Replacements of attention for weights that were trained with plain RoPE.

"raw" is RoPE unchanged. PI, dynamic NTK, NTK-by-parts and YaRN scale by n / L if n, the number of tested positions, is
above the training length L. NTK 8, 16 and 32 have the factors 8, 16 and 32 for each n. Between scaled and unscaled
frequencies NTK-by-parts has a ramp that is linear in the number of turns, as in the paper of YaRN; YaRN has a ramp that
is linear in the number of the pair, as in the code of YaRN, with the temperature of the paper unless the name says 1.
ReRoPE and Self-Extend have other positions for queries and keys that are at least L / 2 apart. "log n" multiplies
queries by `logn_scale`."""
