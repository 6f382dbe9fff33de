"""Agreement with vision and document models of transformers and diffusers on the encodings in their classes.

No weights are downloaded. ``python tests/peers/test_vision_models.py`` prints a table of schemes and differences.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import posenc

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")

RNG = np.random.default_rng(0)
EPS = float(np.finfo(np.float32).eps)
Pair = tuple[np.ndarray, Any, float]
"""Our numbers, those of the model, and the largest difference that float32 arithmetic of the model explains."""


def module(name: str) -> Any:
    pytest.importorskip(name.split(".")[0], reason=f"{name.split('.')[0]} is not installed")
    return import_module(name)


def transformers(name: str) -> Any:
    return module(f"transformers.models.{name}.modeling_{name}")


def float32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def rotated(most_angle: float, x: np.ndarray) -> float:
    """The error of an angle in float32, rounded twice, times the size of a pair; and the three roundings after it."""
    return float((2 * EPS * most_angle + 3 * EPS) * 2 * np.abs(x).max())


def layoutlmv3() -> Pair:
    """Two T5 biases, at the left and at the lower edge of each word's box."""
    peer = transformers("layoutlmv3")
    table_x, table_y = float32(2, 64, 4)
    encoder = SimpleNamespace(
        rel_2d_pos_bins=64, max_rel_2d_pos=256,
        relative_position_bucket=lambda *a, **o: peer.LayoutLMv3Encoder.relative_position_bucket(None, *a, **o),
        rel_pos_x_bias=SimpleNamespace(weight=torch.from_numpy(table_x.T.copy())),
        rel_pos_y_bias=SimpleNamespace(weight=torch.from_numpy(table_y.T.copy())),
    )  # fmt: skip
    boxes = RNG.integers(0, 1000, (2, 30, 4))
    expected = peer.LayoutLMv3Encoder._cal_2d_pos_emb(encoder, torch.from_numpy(boxes))
    left, bottom = boxes[..., 0], boxes[..., 3]
    bias = sum(
        posenc.t5(table, max_distance=256).at(q_positions=at, k_positions=at)
        for table, at in ((table_x, left), (table_y, bottom))
    )
    return bias.matrix(30), expected, EPS * float(expected.abs().max())


def sam() -> Pair:
    """MViTv2's decomposed relative positions, as in SAM and ViTDet: tables by query minus key."""
    peer = transformers("sam").SamVisionAttention
    height, width, channels = 5, 7, 8
    rel_h, rel_w, q = float32(2 * height - 1, channels), float32(2 * width - 1, channels), float32(3, 35, channels)
    size = (height, width)
    own = SimpleNamespace(get_rel_pos=lambda *a: peer.get_rel_pos(None, *a))
    expected = peer.get_decomposed_rel_pos(own, *map(torch.from_numpy, (q, rel_h, rel_w)), size, size)
    y, x = np.indices(size).reshape(2, -1)
    bias = posenc.shaw(rel_h[::-1]).at(q_positions=y, k_positions=y)
    bias = bias + posenc.shaw(rel_w[::-1]).at(q_positions=x, k_positions=x)
    ours = bias.logits(q[:, None], q[:, None])[:, 0].reshape(3, *size, *size)
    return ours, expected, 2 * channels * EPS * float(np.abs(q).max() * np.abs(rel_h).max() * channels)


def swinv2() -> Pair:
    """Swin v2's log-spaced coordinates, a small network, and Swin's table."""
    peer = transformers("swinv2")
    config = SimpleNamespace(qkv_bias=False, attention_probs_dropout_prob=0.0)
    layer = peer.Swinv2SelfAttention(config, 32, 4, (4, 6)).double()
    coordinates = layer.relative_coords_table
    with torch.no_grad():
        table = 16 * torch.sigmoid(layer.continuous_position_bias_mlp(coordinates)).reshape(-1, 4)
        index = layer.relative_position_index.reshape(-1)
        expected = table[index].reshape(24, 24, 4).permute(2, 0, 1)
    dy, dx = (np.arange(1 - n, n) * 8 / (n - 1) for n in (4, 6))
    grid = np.stack(np.meshgrid(dy, dx, indexing="ij"), -1)
    ours = np.sign(grid) * np.log2(1 + np.abs(grid)) / np.log2(8)
    assert np.abs(ours - coordinates[0].numpy()).max() <= 4 * EPS  # the model computes them in float32
    return posenc.swin(table.numpy(), 4, 6).matrix(24, dtype=np.float64), expected, 0.0


def levit() -> Pair:
    """LeViT's biases by the absolute offset of rows and columns: a table of Swin with equal rows."""
    layer = transformers("levit").LevitAttention(32, 8, 4, 2, 5)
    with torch.no_grad():
        layer.attention_biases.copy_(torch.from_numpy(float32(4, 25)))
        expected = layer.attention_biases[:, layer.attention_bias_idxs]
    offsets = list(dict.fromkeys((abs(dy), abs(dx)) for dy in range(5) for dx in range(5)))
    first = {offset: number for number, offset in enumerate(offsets)}
    biases = layer.attention_biases.detach().numpy()
    table = np.stack([biases[:, first[abs(dy), abs(dx)]] for dy in range(-4, 5) for dx in range(-4, 5)])
    return posenc.swin(table, 5, 5).matrix(25), expected, 0.0


def dinov3() -> Pair:
    """DINOv3: coordinates of patch centres from -1 to 1, times 2 pi; rows rotate the first quarter of channels."""
    peer = transformers("dinov3_vit")
    config = SimpleNamespace(rope_theta=100.0, hidden_size=64, num_attention_heads=2, image_size=64, patch_size=16)
    embedding = peer.DINOv3ViTRopePositionEmbedding(config).eval()
    cos, sin = embedding(torch.zeros(1, 3, 64, 96))
    x = float32(1, 2, 24, 32)
    expected, _ = peer.apply_rotary_pos_emb(torch.from_numpy(x), torch.from_numpy(x), cos, sin)
    y, across = np.indices((4, 6)).reshape(2, -1)
    places = 2 * np.pi * np.stack([2 * (y + 0.5) / 4 - 1, 2 * (across + 0.5) / 6 - 1])
    w = posenc.axial_frequencies((16, 16), base=100)
    return posenc.rope_nd(x, places, w, layout="half"), expected, rotated(2 * np.pi, x)


def lightglue() -> Pair:
    """LightGlue: learned frequencies of both coordinates of a keypoint."""
    peer = transformers("lightglue")
    encoder = peer.LightGluePositionalEncoder(SimpleNamespace(descriptor_dim=64, num_attention_heads=2))
    keypoints, x = RNG.uniform(-1, 1, (2, 30, 2)).astype(np.float32), float32(2, 2, 30, 32)
    with torch.no_grad():
        ((cos, sin),) = encoder(torch.from_numpy(keypoints))
        expected, _ = peer.apply_rotary_pos_emb(torch.from_numpy(x), torch.from_numpy(x), cos, sin)
    w = encoder.projector.weight.detach().numpy().T
    ours = posenc.rope_nd(x, np.moveaxis(keypoints, -1, 0)[:, :, None], w, layout="interleaved")
    return ours, expected, rotated(float(np.abs(w).sum(0).max()), x)


def flux() -> Pair:
    """FLUX: three ladders, over the index of a text or image, rows and columns."""
    peer = module("diffusers.models.transformers.transformer_flux")
    embeddings = module("diffusers.models.embeddings")
    places = np.stack([np.zeros(24), *np.indices((4, 6)).reshape(2, -1)], -1)
    table = peer.FluxPosEmbed(10000, [16, 56, 56])(torch.from_numpy(places))
    x = float32(1, 3, 24, 128)
    expected = embeddings.apply_rotary_emb(torch.from_numpy(x), table)
    w = posenc.axial_frequencies((16, 56, 56))
    return posenc.rope_nd(x, places.T, w, layout="interleaved"), expected, rotated(0, x)


def wan() -> Pair:
    """Wan and HunyuanVideo: frames, rows and columns, the frames with the channels that are left."""
    peer = module("diffusers.models.transformers.transformer_wan").WanRotaryPosEmbed(128, (1, 2, 2), 64)
    cos, sin = peer(torch.zeros(1, 1, 3, 8, 12))
    x = float32(1, 72, 2, 128)
    tensor = torch.from_numpy(x)
    first, second, cosine, sine = tensor[..., 0::2], tensor[..., 1::2], cos[..., 0::2], sin[..., 1::2]
    expected = torch.stack([first * cosine - second * sine, first * sine + second * cosine], -1).flatten(-2)
    w = posenc.axial_frequencies((44, 42, 42))
    places = np.indices((3, 4, 6)).reshape(3, -1)
    return posenc.rope_nd(x, places, w, layout="interleaved", seq_axis=1), expected, rotated(0, x)


SCHEMES: dict[str, Callable[[], Pair]] = {
    "LayoutLMv3Encoder": layoutlmv3, "SamVisionAttention": sam, "Swinv2SelfAttention": swinv2, "LevitAttention": levit,
    "DINOv3ViTRopePositionEmbedding": dinov3, "LightGluePositionalEncoder": lightglue, "FluxPosEmbed": flux,
    "WanRotaryPosEmbed": wan,
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMES)
def test_agrees_with_the_model(name: str) -> None:
    ours, peer, bound = SCHEMES[name]()
    assert ours.shape == tuple(peer.shape)
    assert np.abs(ours - peer.numpy()).max() <= bound


if __name__ == "__main__":
    for name, scheme in SCHEMES.items():
        ours, peer, bound = scheme()
        print(f"{name:32} {np.abs(ours - peer.numpy()).max():8.1e} {bound:8.1e}  {scheme.__doc__}")
