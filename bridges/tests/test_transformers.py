"""Agreement with Hugging Face transformers: rotary layouts, ALiBi. Code only, no weights."""

# ruff: noqa: E402 -- the peer is imported after the check that it is here
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as glm_rotate
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_rotate
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotate
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotate
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

B, H, G, N, D = 2, 4, 2, 37, 32
BASES = (10000.0, 500000.0)
ROUNDING = 2e-15
"""Rotations in float64 from one table: three roundings of numbers below 6."""


def heads(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((B, count, N, D))


def table(rotary_dim: int, base: float, positions: np.ndarray) -> tuple[Any, Any, posenc.RopeFrequencies]:
    """cos and sin, (B, N, rotary_dim / 2) in float64, for peers in place of their float32 tables."""
    w = posenc.rope_frequencies(rotary_dim, base=base)
    angle = positions[..., None] * w.inv_freq
    return torch.from_numpy(np.cos(angle)), torch.from_numpy(np.sin(angle)), w


def positions_of_batch() -> np.ndarray:
    return np.stack([np.arange(N), np.arange(N) + 1000])


ROTATIONS = {"llama": (llama_rotate, "half"), "glm": (glm_rotate, "interleaved"), "gpt_neox": (neox_rotate, "half")}
WHOLE = [("llama", D, base) for base in BASES]
PARTS = [(name, rotary_dim, 10000.0) for name in ("glm", "gpt_neox") for rotary_dim in (8, 16, D)]


@pytest.mark.parametrize(("name", "rotary_dim", "base"), WHOLE + PARTS)
def test_rotates_pairs_of_a_part(name: str, rotary_dim: int, base: float) -> None:
    (rotate, layout), q, k, where = ROTATIONS[name], heads(H, 0), heads(G, 1), positions_of_batch()
    cos, sin, w = table(rotary_dim, base, where)
    twice = [torch.cat((part, part), dim=-1) for part in (cos, sin)]
    theirs = rotate(torch.from_numpy(q), torch.from_numpy(k), *twice)
    for ours, peer in zip((q, k), theirs, strict=True):
        result = posenc.rope(ours, where[:, None], w, layout=layout, rotary_dim=rotary_dim)
        # angles to 1e3 rounded in NumPy: 1e-13
        agree("rope", result, peer.numpy(), 2e-12, f"transformers: {name}")


@pytest.mark.parametrize("base", BASES)
def test_gptj_rotates_pairs(base: float) -> None:
    """GPT-J has the heads after the sequence axis."""
    x, where = heads(H, 3), positions_of_batch()
    cos, sin, w = table(D, base, where)
    peer = gptj_rotate(torch.from_numpy(x).transpose(1, 2), sin, cos).transpose(1, 2).numpy()
    result = posenc.rope(x, where[:, None], w, layout="interleaved")
    agree("rope", result, peer, 2e-12)
    swapped = np.ascontiguousarray(x.transpose(0, 2, 1, 3))
    result = posenc.rope(swapped, where[:, None], w, layout="interleaved", seq_axis=1)
    agree("rope", result, peer.transpose(0, 2, 1, 3), 2e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_llama_in_half_precision(dtype: str) -> None:
    """transformers rounds the table, both products and the sum; posenc rounds once."""
    x = torch.from_numpy(heads(H, 8)).to(getattr(torch, dtype))
    cos, sin, w = table(D, 10000.0, np.arange(N)[None])
    twice = [torch.cat((part, part), dim=-1).to(x.dtype) for part in (cos, sin)]
    peer = llama_rotate(x, x, *twice)[0].double().numpy()
    if dtype == "float16":
        stored = x.numpy()
    else:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without ml_dtypes")
        stored = x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    ours = posenc.rope(stored, N, w, layout="half").astype(np.float64)
    truth = posenc.rope(x.double().numpy(), N, w, layout="half")
    half_ulp = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    # one rounding, and float32 arithmetic of numbers below 6 before it
    assert (np.abs(ours - truth) <= half_ulp * np.abs(truth) + 6 * 2.0**-22).all()
    assert np.abs(ours - truth).max() <= np.abs(peer - truth).max()
    agree("rope", ours, peer, 4 * 6 * half_ulp)


SLOPE_ROUNDING = 1e-6
"""Relative: slopes are powers in float32 (7e-7 at worst)."""


@pytest.mark.parametrize("heads_", range(1, 129))
def test_bloom_and_mpt_slopes(heads_: int) -> None:
    ours = posenc.alibi_slopes(heads_)
    bloom = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads_, torch.float32)[:, 0, 1]
    mpt = build_mpt_alibi_tensor(heads_, 2)[:, 0, 0]
    agree("alibi_slopes", ours, bloom.numpy(), SLOPE_ROUNDING * ours, "transformers: bloom")
    agree("alibi_slopes", ours, -mpt.numpy(), SLOPE_ROUNDING * ours, "transformers: mpt")


@pytest.mark.parametrize("bias_max", [4, 8, 16])
def test_mpt_bias_max(bias_max: int) -> None:
    peer = -build_mpt_alibi_tensor(12, 2, alibi_bias_max=bias_max)[:, 0, 0].numpy()
    agree("alibi_slopes", posenc.alibi_slopes(12, bias_max=bias_max), peer, SLOPE_ROUNDING * peer)


@pytest.mark.parametrize("which", ["bloom", "mpt"])
def test_alibi_differs_by_a_constant_per_row(which: str) -> None:
    """transformers adds slope * key (BLOOM) or slope * (key - M + 1) (MPT), which changes no causal softmax."""
    n, heads_ = 65, 12
    if which == "bloom":
        peer = build_alibi_tensor(torch.ones(1, n, dtype=torch.long), heads_, torch.float32).numpy()
    else:
        peer = build_mpt_alibi_tensor(heads_, n).numpy()
    ours = posenc.alibi(posenc.alibi_slopes(heads_)).matrix(n)
    difference = np.where(np.tri(n, dtype=bool), ours - peer, np.nan)
    spread = np.nanmax(difference, axis=-1) - np.nanmin(difference, axis=-1)
    agree("alibi", spread, np.zeros(spread.shape), n * 2 * SLOPE_ROUNDING)
