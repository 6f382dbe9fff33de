"""Agreement with Hugging Face transformers: rotary layouts, sinusoidal presets, ALiBi. Code only, no weights."""

# ruff: noqa: E402 -- the peer is imported after the check that it is here
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float32 import angle_error

import posenc

torch = pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings as distilbert_table
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as glm_rotate
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_rotate
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotate
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotate
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding
from transformers.models.roformer.modeling_roformer import RoFormerSinusoidalPositionalEmbedding
from transformers.models.whisper.modeling_whisper import sinusoids
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings as xlm_table

B, H, G, N, D = 2, 4, 2, 37, 32
BASES = (10000.0, 500000.0)
ROUNDING = 2e-15
"""Rotations in float64 from one table: three roundings of numbers below 6."""


def heads(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((B, count, N, D))


def table(rotary_dim: int, base: float, positions: np.ndarray) -> tuple[Any, Any, posenc.RopeFrequencies]:
    """cos and sin, (B, N, rotary_dim / 2) in float64: what peers are handed in place of their float32 ones."""
    w = posenc.rope_frequencies(rotary_dim, base=base)
    angle = positions[..., None] * w.inv_freq
    return torch.from_numpy(np.cos(angle)), torch.from_numpy(np.sin(angle)), w


def positions_of_batch() -> np.ndarray:
    return np.stack([np.arange(N), np.arange(N) + 1000])


@pytest.mark.parametrize("base", BASES)
def test_llama_rotates_halves(base: float) -> None:
    q, k, where = heads(H, 0), heads(G, 1), positions_of_batch()
    cos, sin, w = table(D, base, where)
    twice = [torch.cat((part, part), dim=-1) for part in (cos, sin)]
    theirs = llama_rotate(torch.from_numpy(q), torch.from_numpy(k), *twice)
    for ours, peer in zip((q, k), theirs, strict=True):
        result = posenc.rope(ours, where[:, None], w, layout="half")
        np.testing.assert_allclose(result, peer.numpy(), rtol=0, atol=2e-12)  # angles to 1e3 rounded in NumPy: 1e-13


@pytest.mark.parametrize("position", [0, 4095, 131071])
def test_llama_rotary_embedding_module(position: int) -> None:
    """Its own float32 table, as a model runs it: the error grows with the position."""
    config = LlamaConfig(hidden_size=4 * D, num_attention_heads=4, max_position_embeddings=position + N)
    x = torch.from_numpy(heads(H, 2)).float()
    where = np.arange(N) + position
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.from_numpy(where)[None].expand(B, N))
    peer = llama_rotate(x, x, cos, sin)[0].numpy()
    ours = posenc.rope(x.numpy(), where, posenc.rope_frequencies(D), layout="half")
    assert (np.abs(ours - peer) <= 6 * angle_error(where)).all()  # |x0| + |x1| < 6


@pytest.mark.parametrize("base", BASES)
def test_gptj_rotates_pairs(base: float) -> None:
    """GPT-J keeps the heads after the sequence."""
    x, where = heads(H, 3), positions_of_batch()
    cos, sin, w = table(D, base, where)
    peer = gptj_rotate(torch.from_numpy(x).transpose(1, 2), sin, cos).transpose(1, 2).numpy()
    result = posenc.rope(x, where[:, None], w, layout="interleaved")
    np.testing.assert_allclose(result, peer, rtol=0, atol=2e-12)
    swapped = np.ascontiguousarray(x.transpose(0, 2, 1, 3))
    result = posenc.rope(swapped, where[:, None], w, layout="interleaved", seq_axis=1)
    np.testing.assert_allclose(result, peer.transpose(0, 2, 1, 3), rtol=0, atol=2e-12)


def test_gptj_table() -> None:
    sines_cosines = create_sinusoidal_positions(512, D).numpy()
    cos, sin = posenc.rope_table(512, posenc.rope_frequencies(D))
    assert (np.abs(np.concatenate([sin, cos], axis=1) - sines_cosines) <= angle_error(np.arange(512))).all()


@pytest.mark.parametrize("rotary_dim", [8, 16, D])
def test_glm_rotates_pairs_of_a_part(rotary_dim: int) -> None:
    q, k, where = heads(H, 4), heads(G, 5), positions_of_batch()
    cos, sin, w = table(rotary_dim, 10000.0, where)
    twice = [torch.cat((part, part), dim=-1) for part in (cos, sin)]
    theirs = glm_rotate(torch.from_numpy(q), torch.from_numpy(k), *twice)
    for ours, peer in zip((q, k), theirs, strict=True):
        result = posenc.rope(ours, where[:, None], w, layout="interleaved", rotary_dim=rotary_dim)
        np.testing.assert_allclose(result, peer.numpy(), rtol=0, atol=2e-12)


@pytest.mark.parametrize("rotary_dim", [8, 16, D])
def test_gpt_neox_rotates_halves_of_a_part(rotary_dim: int) -> None:
    q, k, where = heads(H, 6), heads(G, 7), positions_of_batch()
    cos, sin, w = table(rotary_dim, 10000.0, where)
    twice = [torch.cat((part, part), dim=-1) for part in (cos, sin)]
    theirs = neox_rotate(torch.from_numpy(q), torch.from_numpy(k), *twice)
    for ours, peer in zip((q, k), theirs, strict=True):
        result = posenc.rope(ours, where[:, None], w, layout="half", rotary_dim=rotary_dim)
        np.testing.assert_allclose(result, peer.numpy(), rtol=0, atol=2e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_llama_in_half_precision(dtype: str) -> None:
    """They round the table, both products and the sum; we round once."""
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
    assert np.abs(ours - peer).max() <= 4 * 6 * half_ulp


def marian(n: int, d: int) -> Any:
    return MarianSinusoidalPositionalEmbedding(n, d).create_weight()


def roformer(n: int, d: int) -> Any:
    return RoFormerSinusoidalPositionalEmbedding(n, d).create_weight()


def filled(create: Any) -> Any:
    """XLM and DistilBERT fill a given tensor."""

    def make(n: int, d: int) -> Any:
        out = torch.empty(n, d)
        create(n, d, out)
        return out

    return make


HALF_1 = {"layout": "halves", "denominator": "half-1"}
PRESETS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    # name: (their table, our options, whether they compute in float64)
    "marian": (marian, {"layout": "halves"}, True),
    "roformer": (roformer, {"layout": "halves"}, True),
    "xlm": (filled(xlm_table), {}, True),
    "distilbert": (filled(distilbert_table), {}, True),
    "whisper": (sinusoids, HALF_1, False),
    "musicgen": (MusicgenSinusoidalPositionalEmbedding.get_embedding, {**HALF_1, "order": "cossin"}, False),
    "m2m_100": (M2M100SinusoidalPositionalEmbedding.get_embedding, HALF_1, False),
}
ODD = ("marian", "roformer", "musicgen", "m2m_100")


@pytest.mark.parametrize(
    ("name", "dim"), [(name, 64) for name in PRESETS] + [(name, 6) for name in PRESETS] + [(name, 15) for name in ODD]
)
def test_sinusoid_preset(name: str, dim: int) -> None:
    n = 600
    theirs, options, in_float64 = PRESETS[name]
    peer = theirs(n, dim).detach().numpy()
    # float64 formulas differ by their two roundings to float32
    tolerance = 2.0**-24 + 1e-13 if in_float64 else angle_error(np.arange(n))
    assert (np.abs(posenc.sinusoidal(n, dim, **options) - peer) <= tolerance).all()


def test_fairseq_positions() -> None:
    """m2m_100 counts real tokens from padding_idx + 1; padding gets the zero row."""
    pad, dim = 1, 16
    tokens = torch.tensor([[5, 6, 7, pad, pad], [pad, 8, 9, 10, 11]])
    peer = M2M100SinusoidalPositionalEmbedding(32, dim, padding_idx=pad)(tokens).numpy()
    real = tokens.numpy() != pad
    where = np.cumsum(real, axis=1) * real + pad
    ours = np.where(real[..., None], posenc.sinusoidal(where, dim, layout="halves", denominator="half-1"), 0.0)
    np.testing.assert_allclose(ours, peer, rtol=0, atol=float(angle_error([where.max()]).max()))


SLOPE_ROUNDING = 1e-6
"""Relative: slopes are powers in float32 (7e-7 at worst)."""


@pytest.mark.parametrize("heads_", range(1, 129))
def test_bloom_and_mpt_slopes(heads_: int) -> None:
    ours = posenc.alibi_slopes(heads_)
    bloom = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads_, torch.float32)[:, 0, 1]
    mpt = build_mpt_alibi_tensor(heads_, 2)[:, 0, 0]
    np.testing.assert_allclose(bloom.numpy(), ours, rtol=SLOPE_ROUNDING)
    np.testing.assert_allclose(-mpt.numpy(), ours, rtol=SLOPE_ROUNDING)


@pytest.mark.parametrize("bias_max", [4, 8, 16])
def test_mpt_bias_max(bias_max: int) -> None:
    peer = -build_mpt_alibi_tensor(12, 2, alibi_bias_max=bias_max)[:, 0, 0].numpy()
    np.testing.assert_allclose(posenc.alibi_slopes(12, bias_max=bias_max), peer, rtol=SLOPE_ROUNDING)


@pytest.mark.parametrize("which", ["bloom", "mpt"])
def test_alibi_differs_by_a_constant_per_row(which: str) -> None:
    """They add slope * key (BLOOM) or slope * (key - M + 1) (MPT): a causal softmax sees no difference."""
    n, heads_ = 65, 12
    if which == "bloom":
        peer = build_alibi_tensor(torch.ones(1, n, dtype=torch.long), heads_, torch.float32).numpy()
    else:
        peer = build_mpt_alibi_tensor(heads_, n).numpy()
    ours = posenc.alibi(posenc.alibi_slopes(heads_)).matrix(n)
    difference = np.where(np.tri(n, dtype=bool), ours - peer, np.nan)
    spread = np.nanmax(difference, axis=-1) - np.nanmin(difference, axis=-1)
    assert spread.max() <= n * 2 * SLOPE_ROUNDING
