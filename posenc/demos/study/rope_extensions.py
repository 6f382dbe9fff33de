"""Methods that extend the context of a model trained with RoPE, without further training."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

import posenc

from .schemes import Array, Scheme, Setting

Extension = Callable[[Setting], Scheme]
Positions = npt.NDArray[Any]
FarPositions = Callable[[int, int, int], tuple[Positions, Positions]]
"""Positions of queries and keys at or beyond a window, for (n, window, training length)."""
Options = Callable[[int, int], dict[str, Any]]
"""Options of `posenc.rope_frequencies` for (n, training length)."""


def _unscaled(n: int, length: int) -> dict[str, Any]:
    return {}


def _extension(
    options: Options = _unscaled, far_positions: FarPositions | None = None, log_n: bool = False
) -> Extension:
    """Rotate by other frequencies, or by other positions at distances from half the training length on.

    With `log_n` each query is multiplied by log(its position) / log(training length) beyond that length.
    """

    def of(setting: Setting) -> Scheme:
        length = setting.length

        def attention(q: Array, k: Array, v: Array, **given: Any) -> Array:
            n, width = q.shape[-2:]
            frequencies = posenc.rope_frequencies(width, **options(n, length))

            def attend(q_positions: int | Positions, k_positions: int | Positions, **more: Any) -> Any:
                rotated = posenc.rope(q, q_positions, frequencies, layout="half")
                if log_n:
                    rotated = rotated * posenc.logn_scale(n, length).astype(q.dtype)[:, None]
                return posenc.attention(
                    rotated, posenc.rope(k, k_positions, frequencies, layout="half"), v, **given, **more
                )

            if far_positions is None:
                return np.asarray(attend(n, n))
            window = length // 2
            near = attend(n, n, window=(window - 1, None), return_lse=True)
            far = attend(*far_positions(n, window, length), window=(None, -window), return_lse=True)
            merged: Array = posenc.merge_attention(*zip(near, far, strict=True))[0]
            return merged

        return Scheme(attention=attention)

    return of


def _scaled(**options: Any) -> Extension:
    """Scale by the length of the window over the training length, by a type that also reads the latter."""
    return _extension(
        lambda n, length: {"factor": max(1.0, n / length), "original_max_position_embeddings": length, **options}
    )


def _ntk(factor: float) -> Extension:
    return _extension(lambda n, length: {"rope_type": "ntk", "factor": factor})


def _dynamic_ntk(n: int, length: int) -> dict[str, Any]:
    return {"rope_type": "dynamic", "factor": 1.0, "seq_len": n, "max_position_embeddings": length}


def _rerope(n: int, window: int, length: int) -> tuple[Positions, Positions]:
    return posenc.rerope_positions(n, window=window)


def _self_extend(n: int, window: int, length: int) -> tuple[Positions, Positions]:
    """Positions in the smallest groups that keep every distance below the training length."""
    group = next(g for g in count(1) if (n - 1) // g + window - window / g <= length - 1)
    return posenc.self_extend_positions(n, group=group, window=window)


EXTENSIONS: dict[str, Extension] = {
    "raw": _extension(),
    "PI": _extension(lambda n, length: {"rope_type": "linear", "factor": max(1.0, n / length)}),
    "dynamic NTK": _extension(_dynamic_ntk),
    "NTK 8": _ntk(8),
    "NTK 16": _ntk(16),
    "NTK 32": _ntk(32),
    "NTK-by-parts": _scaled(rope_type="ntk_by_parts"),
    "YaRN": _scaled(rope_type="yarn"),
    "YaRN, temperature 1": _scaled(rope_type="yarn", attention_factor=1.0),
    "ReRoPE": _extension(far_positions=_rerope),
    "Self-Extend": _extension(far_positions=_self_extend),
    "raw, log n": _extension(log_n=True),
    "dynamic NTK, log n": _extension(_dynamic_ntk, log_n=True),
    "ReRoPE, log n": _extension(far_positions=_rerope, log_n=True),
}
"""Replacements of attention for weights that were trained with plain RoPE.

"raw" is RoPE unchanged. PI, YaRN and NTK-by-parts scale by the length of the window over the training length. NTK 8, 16
and 32 scale by that number at every length. The window of ReRoPE and Self-Extend is half the training length.
NTK-by-parts is the ramp over turns of YaRN's paper. YaRN is the ramp over pairs of its code, with the temperature of
the paper unless the name says 1."""
