"""Agreement with transformers' ROPE_INIT_FUNCTIONS on drawn configurations. They compute in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import posenc

pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding

DRAWS = 200
RELATIVE = 2e-6
"""Frequencies in float32: a power whose exponent is rounded, so 2**-24 ln base, a ramp rounded to 2**-24 and, where it
is nearly 1, that of w beside w / factor: 2**-24 factor. Factors are drawn up to 32, of llama3, whose ramp is rounded
more often, up to 16 (3.5e-6 with 32)."""

Keys = dict[str, Any]


def length(rng: np.random.Generator) -> int:
    return int(2 ** rng.integers(11, 16) + rng.integers(0, 2) * rng.integers(0, 999))


def draw_default(rng: np.random.Generator, dim: int) -> Keys:
    return {}


def draw_linear(rng: np.random.Generator, dim: int) -> Keys:
    return {"factor": float(rng.uniform(1, 32))}


def draw_dynamic(rng: np.random.Generator, dim: int) -> Keys:
    seq_len = None if rng.random() < 0.2 else int(rng.integers(1, 10**6))
    return {"factor": float(rng.uniform(1, 32)), "max_position_embeddings": length(rng), "seq_len": seq_len}


def draw_yarn(rng: np.random.Generator, dim: int) -> Keys:
    keys: Keys = {"factor": float(rng.uniform(1, 32)), "original_max_position_embeddings": length(rng)}
    optional = {
        "beta_fast": float(rng.uniform(8, 64)),
        "beta_slow": float(rng.uniform(0.5, 4)),
        "mscale": float(rng.uniform(0.1, 2)),
        "mscale_all_dim": float(rng.uniform(0.1, 2)),
        "truncate": bool(rng.integers(2)),
        "attention_factor": float(rng.uniform(0.5, 2)),
    }
    return keys | {key: value for key, value in optional.items() if rng.random() < 0.4}


def draw_longrope(rng: np.random.Generator, dim: int) -> Keys:
    lists = {key: np.sort(rng.uniform(1, 60, dim // 2)).tolist() for key in ("short_factor", "long_factor")}
    trained = length(rng)
    seq_len = [None, trained, trained + 1, 10**6][int(rng.integers(4))]
    keys: Keys = {**lists, "original_max_position_embeddings": trained, "seq_len": seq_len}
    choice = rng.integers(3)
    if choice == 0:
        return {**keys, "factor": float(rng.uniform(1, 32))}
    if choice == 1:
        return {**keys, "max_position_embeddings": trained * int(rng.integers(1, 33))}
    return {**keys, "attention_factor": float(rng.uniform(0.5, 2))}


def draw_llama3(rng: np.random.Generator, dim: int) -> Keys:
    low = float(rng.uniform(0.5, 2))
    bands = {"low_freq_factor": low, "high_freq_factor": low * float(rng.uniform(3, 6))}
    return {"factor": float(rng.uniform(1, 16)), "original_max_position_embeddings": length(rng), **bands}


def draw_proportional(rng: np.random.Generator, dim: int) -> Keys:
    keys = {"partial_rotary_factor": float(rng.uniform(0.05, 1)), "factor": float(rng.uniform(1, 8))}
    return {key: value for key, value in keys.items() if rng.random() < 0.8}


DRAWN: dict[str, Callable[[np.random.Generator, int], Keys]] = {
    "default": draw_default,
    "linear": draw_linear,
    "dynamic": draw_dynamic,
    "yarn": draw_yarn,
    "longrope": draw_longrope,
    "llama3": draw_llama3,
    "proportional": draw_proportional,
}


def peer(dim: int, base: float, rope_type: str, keys: Keys) -> tuple[np.ndarray, float]:
    keys = dict(keys)
    seq_len, longest = keys.pop("seq_len", None), keys.pop("max_position_embeddings", 131072)
    config = LlamaConfig(
        head_dim=dim,
        hidden_size=4 * dim,
        num_attention_heads=4,
        max_position_embeddings=longest,
        rope_parameters={"rope_type": rope_type, "rope_theta": base, **keys},
    )
    if rope_type == "default":
        inv_freq, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inv_freq, factor = ROPE_INIT_FUNCTIONS[rope_type](config, None, seq_len=seq_len)
    return inv_freq.double().numpy(), factor


def test_every_type_of_theirs_is_drawn() -> None:
    assert set(ROPE_INIT_FUNCTIONS) <= set(DRAWN)


@pytest.mark.parametrize("rope_type", DRAWN)
def test_frequencies_and_factors(rope_type: str) -> None:
    rng = np.random.default_rng(20260801)
    worst, worst_factor = 0.0, 0.0
    for _ in range(DRAWS):
        dim, base = 2 * int(rng.integers(2, 129)), float(np.exp(rng.uniform(np.log(1e3), np.log(1e7))))
        keys = DRAWN[rope_type](rng, dim)
        theirs, factor = peer(dim, base, rope_type, keys)
        ours = posenc.rope_frequencies(dim, base=base, rope_type=rope_type, **keys)
        assert ours.inv_freq.shape == theirs.shape
        assert ((ours.inv_freq == 0) == (theirs == 0)).all()
        with np.errstate(invalid="ignore"):
            worst = max(worst, float(np.nanmax(np.abs(theirs / ours.inv_freq - 1), initial=0)))
        worst_factor = max(worst_factor, abs(factor / ours.attention_factor - 1))
    assert worst <= RELATIVE
    assert worst_factor <= 4e-16  # the same float64 formula
