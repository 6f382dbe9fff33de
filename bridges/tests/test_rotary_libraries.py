"""Agreement with transformers, rotary-embedding-torch and x-transformers on rotary embeddings by several coordinates,
and on xPos. No weights."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from agreed import agree, angle_error

import posenc

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")

B, H, N, D = 2, 3, 40, 32
SIZE = 9
"""|x0| + |x1| of the numbers used here, by which an error of the angle is multiplied."""


def model(name: str) -> Any:
    pytest.importorskip("transformers", reason="transformers is not installed")
    try:
        return import_module(f"transformers.models.{name}.modeling_{name}")
    except ImportError:
        pytest.skip(f"this transformers has no {name}")


def config(rope_type: str, **keys: Any) -> Any:
    parameters = {"rope_type": rope_type, "rope_theta": 10000.0, **keys}
    return SimpleNamespace(rope_parameters=parameters, head_dim=D, max_position_embeddings=4096)


def values() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((B, H, N, D)).astype(np.float32)


def coordinates(count: int, most: int = 300) -> np.ndarray:
    """One set of positions for each row of the batch, (count, B, N)."""
    return np.random.default_rng(1).integers(0, most, (count, B, N))


def assert_close(ours: np.ndarray, peer: Any, positions: np.ndarray) -> None:
    """The peers compute angles in float32, so the error grows with the largest coordinate of a token."""
    tolerance = SIZE * np.stack([angle_error(np.abs(p).max(axis=0)) for p in positions.swapaxes(0, 1)])[:, None]
    assert (np.abs(ours - peer.numpy()) <= tolerance).all()


@pytest.mark.parametrize(
    ("name", "rotary", "layout", "sections"),
    [
        ("qwen2_vl", "Qwen2VLRotaryEmbedding", "half", [4, 6, 6]),
        ("qwen2_vl", "Qwen2VLRotaryEmbedding", "half", [16, 0, 0]),
        ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", "half", [6, 5, 5]),
        ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", "half", [8, 5, 3]),
        ("glm4v", "Glm4vTextRotaryEmbedding", "interleaved", [4, 6, 6]),
    ],
)
def test_multimodal(name: str, rotary: str, layout: str, sections: list[int]) -> None:
    """Qwen2-VL in sections, Qwen3-VL interleaved with the rest rotated by time, GLM-4V with pairs (2k, 2k+1)."""
    module = model(name)
    if not hasattr(module, rotary):
        pytest.skip(f"this transformers has no {rotary}")
    x, positions = values(), coordinates(3)
    tensor = torch.from_numpy(x)
    cos, sin = getattr(module, rotary)(config("default", mrope_section=sections))(tensor, torch.from_numpy(positions))
    peer = module.apply_rotary_pos_emb(tensor, tensor, cos, sin)[0]
    w = posenc.mrope_frequencies(posenc.rope_frequencies(D), sections, interleaved=name == "qwen3_vl")
    ours = posenc.rope_nd(x, positions[:, :, None], w, layout=layout)
    assert_close(ours, peer, positions)


def test_pixtral() -> None:
    module = model("pixtral")
    x, positions = values()[:1], coordinates(2)[:, :1]
    tensor = torch.from_numpy(x)
    rotary = module.PixtralVisionRotaryEmbedding(config("axial"))
    cos, sin = rotary(tensor, torch.from_numpy(positions[:, 0].T.copy()))
    peer = module.apply_rotary_pos_emb(tensor, tensor, cos[None], sin[None])[0]
    w = posenc.rope_frequencies(D).inv_freq
    w = posenc.mrope_frequencies(np.concatenate([w[0::2], w[1::2]]), (D // 4, D // 4))
    ours = posenc.rope_nd(x, positions[:, 0], w, layout="half")
    assert_close(ours, peer, positions)


def test_gemma4() -> None:
    module = model("gemma4")
    x, positions = values(), coordinates(2)
    tensor, where = torch.from_numpy(x), torch.from_numpy(np.moveaxis(positions, 0, -1).copy())
    cos, sin = module.Gemma4VisionRotaryEmbedding(config("axial"))(tensor, where)
    peer = module.apply_multidimensional_rope(tensor, cos, sin, where, unsqueeze_dim=1)
    w, options = posenc.rope_frequencies(D // 2), {"layout": "half", "rotary_dim": D // 2}
    ours = posenc.rope(x, positions[0, :, None], w, **options)
    ours = posenc.rope(ours, positions[1, :, None], w, rotary_offset=D // 2, **options)
    assert_close(ours, peer, positions)


@pytest.mark.parametrize("scale_base", [512, 700])
@pytest.mark.parametrize("library", ["rotary_embedding_torch", "x_transformers.x_transformers"])
def test_xpos(library: str, scale_base: int) -> None:
    """The center of the peers is half of the length. Their angles and scales are float32; a scale is a power of a
    rounded number, as an angle is a multiple of one, and zeta**(150 / 512) and its inverse are below 1.5."""
    peer = pytest.importorskip(library, reason=f"{library} is not installed")
    x = np.random.default_rng(0).standard_normal((2, 2, 3, 300, D)).astype(np.float32)
    q, k = map(torch.from_numpy, x)
    if library == "rotary_embedding_torch":
        module = peer.RotaryEmbedding(D, use_xpos=True, xpos_scale_base=scale_base, cache_if_possible=False)
        theirs = module.rotate_queries_and_keys(q, k)
    else:
        freqs, scale = peer.RotaryEmbedding(D, use_xpos=True, scale_base=scale_base).forward_from_seq_len(300)
        theirs = peer.apply_rotary_pos_emb(q, freqs, scale), peer.apply_rotary_pos_emb(k, freqs, scale**-1.0)
    options: dict[str, Any] = {"layout": "interleaved", "scale_base": scale_base, "center": 150}
    for one, other, downscale in zip(x, theirs, (False, True), strict=True):
        ours = posenc.xpos(one, 300, posenc.rope_frequencies(D), downscale=downscale, **options)
        agree("xpos", ours, other.detach().numpy(), 1.5 * SIZE * angle_error(np.arange(300)))
