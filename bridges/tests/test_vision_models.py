"""Agreement with models of images, documents, sound and proteins on the encodings in their classes.

No weights are downloaded. ``python benchmarks/accuracy/models.py`` prints a table of schemes and differences.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

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


def ladder(base: float, most: float) -> float:
    """The angle of the fastest pair at a position, times the error of a power in float32: its exponent is rounded."""
    return most * (1 + float(np.log(base)))


def layoutlmv3() -> Pair:
    """Two T5 biases, at the left and at the lower edge of each word's box."""
    peer = transformers("layoutlmv3")
    table_x, table_y = float32(2, 64, 4)
    encoder = peer.LayoutLMv3Encoder(peer.LayoutLMv3Config(num_attention_heads=4, num_hidden_layers=0))
    encoder.rel_pos_x_bias.weight.data = torch.from_numpy(table_x.T.copy())
    encoder.rel_pos_y_bias.weight.data = torch.from_numpy(table_y.T.copy())
    boxes = RNG.integers(0, 1000, (2, 30, 4))
    expected = encoder._cal_2d_pos_emb(torch.from_numpy(boxes)).detach()
    left, bottom = boxes[..., 0], boxes[..., 3]
    bias = sum(
        posenc.t5(table, max_distance=256, bidirectional=True).at(q_positions=at, k_positions=at)
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


def hunyuan_video() -> Pair:
    """Frames, rows and columns, each with a ladder of base 256."""
    peer = module("diffusers.models.transformers.transformer_hunyuan_video")
    embeddings = module("diffusers.models.embeddings")
    table = peer.HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56], 256.0)(torch.zeros(1, 1, 3, 8, 12))
    x = float32(1, 2, 72, 128)
    expected = embeddings.apply_rotary_emb(torch.from_numpy(x), table)
    w = posenc.axial_frequencies((16, 56, 56), base=256)
    places = np.indices((3, 4, 6)).reshape(3, -1)
    return posenc.rope_nd(x, places, w, layout="interleaved"), expected, rotated(ladder(256, 5), x)


def qwen_image() -> Pair:
    """Rows and columns from the centre; words after the image, at one place on all axes."""
    peer = module("diffusers.models.transformers.transformer_qwenimage")
    height, width, words = 5, 6, 10
    tables = peer.QwenEmbedRope(10000, [16, 56, 56], scale_rope=True)(
        [(1, height, width)], device=torch.device("cpu"), max_txt_seq_len=words
    )
    x = float32(1, height * width + words, 3, 128)
    expected = peer.apply_rotary_emb_qwen(torch.from_numpy(x), torch.cat(tables), use_real=False)
    y, across = np.indices((height, width)).reshape(2, -1)
    image = np.stack([0 * y, y - (height - height // 2), across - (width - width // 2)])
    text = np.tile(max(height // 2, width // 2) + np.arange(words), (3, 1))
    w = posenc.axial_frequencies((16, 56, 56))
    ours = posenc.rope_nd(x, np.concatenate([image, text], 1), w, layout="interleaved", seq_axis=1)
    return ours, expected, rotated(ladder(10000, 12), x)


def rope_mixed() -> Pair:
    """Learned frequencies of rows and columns, for each head."""
    peer = module("timm.layers.pos_embed_sincos")
    embedding = peer.RotaryEmbeddingMixed(64, 2, 4, feat_shape=[4, 6])
    x = float32(1, 4, 24, 16)
    with torch.no_grad():
        expected = peer.apply_rot_embed_cat(torch.from_numpy(x), embedding.get_embed()[1])
    w = embedding.freqs.detach().numpy()[:, 1]
    y, across = np.indices((4, 6)).reshape(2, -1)
    ours = posenc.rope_nd(x, np.stack([across, y]), w, layout="interleaved")
    return ours, expected, rotated(float(np.abs(w).max()) * 8, x)


def vjepa2() -> Pair:
    """Pairs side by side whose two channels have different angles: the even and the odd channels of two rotations."""
    peer = transformers("vjepa2")
    config = SimpleNamespace(
        qkv_bias=True, crop_size=64, patch_size=16, frames_per_clip=6, tubelet_size=2, attention_probs_dropout_prob=0.0
    )
    layer = peer.VJEPA2RopeAttention(config, 2 * 50, 2)
    x = float32(1, 2, 48, 50)  # three thirds of 16 channels, and two channels that are not rotated
    expected = layer.apply_rotary_embeddings(torch.from_numpy(x), layer.get_position_ids(torch.zeros(1, 48, 1)))
    w, places = posenc.sinusoidal_frequencies(16), np.indices((3, 4, 4)).reshape(3, -1)
    even, odd = (np.kron(np.eye(3), np.tile(w[start::2], 2)) for start in (0, 1))
    ours = posenc.rope_nd(x, places, even, layout="interleaved", rotary_dim=48)
    ours[..., 1:48:2] = posenc.rope_nd(x, places, odd, layout="interleaved", rotary_dim=48)[..., 1:48:2]
    return ours, expected, rotated(ladder(10000, 3), x)


def mvitv2() -> Pair:
    """Decomposed relative positions of a query grid and a coarser key grid."""
    peer = module("timm.models.mvitv2")
    (rows, columns), (key_rows, key_columns), channels = (8, 6), (4, 3), 8
    rel_h, rel_w = float32(2 * rows - 1, channels), float32(2 * columns - 1, channels)
    q, k = float32(2, 3, rows * columns, channels), float32(2, 3, key_rows * key_columns, channels)
    zeros = torch.zeros(2, 3, rows * columns, key_rows * key_columns)
    expected = peer.cal_rel_pos_type(
        zeros,
        torch.from_numpy(q),
        False,
        [rows, columns],
        [key_rows, key_columns],
        *map(torch.from_numpy, (rel_h, rel_w)),
    )
    parts = []
    for axis, table, cells, key_cells in ((0, rel_h, rows, key_rows), (1, rel_w, columns, key_columns)):
        at = np.indices((rows, columns))[axis].ravel()
        key_at = np.indices((key_rows, key_columns))[axis].ravel() * (cells // key_cells)
        middle = (key_cells - 1) * (cells // key_cells)  # the row of equal places
        bias = posenc.shaw(table[::-1], k_min=2 * cells - 2 - middle)
        parts.append(bias.at(q_positions=at, k_positions=key_at))
    ours = sum(parts).logits(q, k)
    return ours, expected, 4 * channels * EPS * float(np.abs(q).max() * max(np.abs(rel_h).max(), np.abs(rel_w).max()))


def conformer() -> Pair:
    """Sinusoids of both directions, from distance N - 1 down to 1 - N, in Transformer-XL's attention."""
    peer = transformers("parakeet")
    n, channels, heads = 40, 32, 4
    config = import_module("transformers.models.parakeet.configuration_parakeet").ParakeetEncoderConfig(
        hidden_size=channels,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    layer = peer.ParakeetEncoderAttention(config, 0).double().eval()
    hidden = torch.from_numpy(RNG.standard_normal((1, n, channels)))
    with torch.no_grad():
        layer.bias_u.copy_(torch.from_numpy(RNG.standard_normal((heads, 8))))
        layer.bias_v.copy_(torch.from_numpy(RNG.standard_normal((heads, 8))))
        places = torch.from_numpy(posenc.sinusoidal(np.arange(n - 1, -n, -1), channels, dtype=np.float64))
        theirs = peer.ParakeetEncoderRelPositionalEncoding(config)(hidden)[0]  # in float32
        assert (theirs - places).abs().max() <= EPS * ladder(10000, n) + EPS
        expected, _ = layer(hidden, places[None])
        q, k, v = (
            projection(hidden).unflatten(-1, (heads, 8)).transpose(1, 2).numpy()
            for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        rows = layer.relative_k_proj(places).unflatten(-1, (heads, 8)).transpose(0, 1).numpy()
        bias = posenc.transformer_xl(rows, layer.bias_u.numpy(), layer.bias_v.numpy())
        result = posenc.attention(q, k, v, bias=bias)
        ours = layer.o_proj(torch.from_numpy(result.swapaxes(1, 2).reshape(1, n, channels))).numpy()
        logits = float(np.abs(bias.logits(q, k) + q @ k.swapaxes(-1, -2)).max()) / 8**0.5
        size = float(np.abs(v).max() * layer.o_proj.weight.abs().sum(1).max())
    return ours, expected, EPS * (2 * logits + 8) * size  # the model's softmax is in float32


def timestep() -> Pair:
    """Timesteps of diffusion: sinusoids in halves, in either order, with either ladder."""
    peer = module("diffusers.models.embeddings")
    times, width = RNG.uniform(0, 1000, 50).astype(np.float32), 64
    ours, expected = [], []
    for is_flipped in (False, True):
        for shift in (0, 1):
            expected.append(peer.get_timestep_embedding(torch.from_numpy(times), width, is_flipped, shift, scale=2))
            ours.append(
                posenc.sinusoidal(
                    2 * times,
                    width,
                    layout="half",
                    order="cossin" if is_flipped else "sincos",
                    denominator="half-1" if shift else "dim",
                )
            )
    return np.stack(ours), torch.stack(expected), EPS * ladder(10000, 2000) + EPS


FAR = 4096.0
"""Further than any distance inside a chain, so that one distance tells chains apart and places inside them."""


def relative_bins(rel: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Rows of a table (heads, 2 r + 2) by i - j, clipped at r; the last for pairs in different chains."""
    most = table.shape[1] // 2 - 1
    return table[:, np.where(np.abs(rel) < FAR / 2, np.clip(-rel, -most, most) + most, 2 * most + 1).astype(int)]


def relative_chains(rel: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The same by copies of a chain; the last row for pairs in one chain."""
    most, chain = table.shape[1] // 2 - 1, np.round(rel / FAR)
    return table[:, np.where(chain == 0, 2 * most + 1, np.clip(FAR * chain - rel, -most, most) + most).astype(int)]


def same_entity(rel: np.ndarray, table: np.ndarray) -> np.ndarray:
    return table * (rel == 0)


def alphafold3() -> Pair:
    """AlphaFold 3's relative positions (algorithm 3): a sum of four functions of a distance."""
    peer = transformers("esmfold2").EsmFold2RelativePositionEncoding
    config = SimpleNamespace(num_relative_residx_bins=5, num_relative_chain_bins=2, pairwise_hidden_size=6)
    layer = peer(config).double()
    chain = np.repeat([0, 1, 2, 3], [20, 14, 9, 5])
    entity, copy = np.array([0, 0, 1, 0])[chain], np.array([0, 1, 0, 2])[chain]
    residue = np.concatenate([np.arange(20) // 2, *map(np.arange, (14, 9, 5))])  # two tokens for some residues
    token = np.arange(48)
    ids = (torch.from_numpy(one)[None] for one in (residue, chain, copy, entity, token))
    with torch.no_grad():
        expected = layer(*ids)[0].permute(2, 0, 1)
    tables = np.split(layer.embed.weight.detach().numpy(), np.cumsum([12, 12, 1]), axis=1)
    bias = sum(
        posenc.distance_function(function, 6, arrays=[table]).at(q_positions=at, k_positions=at)
        for function, table, at in (
            (relative_bins, tables[0], residue + FAR * chain),
            (relative_bins, tables[1], token + FAR * (100 * chain + residue)),
            (same_entity, tables[2], entity),
            (relative_chains, tables[3], copy + FAR * chain),
        )
    )
    size = sum(float(np.abs(table).max()) for table in tables)
    return bias.matrix(48, dtype=np.float64), expected, 8 * 2.0**-53 * size


def wavlm() -> Pair:
    """Gates are two sigmoids of sums of 4 products of the layer's input with a linear map; they multiply T5's bias."""
    layer = transformers("wavlm").WavLMAttention(24, 3)
    layer.torch_multi_head_self_attention = lambda hidden, mask, bias: (bias, None)
    x = float32(2, 40, 24)
    for parameter in layer.parameters():
        parameter.data = torch.from_numpy(float32(*parameter.shape))
    with torch.no_grad():
        expected = layer(torch.from_numpy(x))[0].unflatten(0, (2, 3))
    heads = x.reshape(2, 40, 3, 8).swapaxes(1, 2).astype(np.float64)
    project, const = layer.gru_rel_pos_linear, layer.gru_rel_pos_const.detach().numpy()[0, :, :, 0]
    weight, shift = project.weight.detach().numpy(), project.bias.detach().numpy()
    a, b = np.moveaxis(1 / (1 + np.exp(-(heads @ weight.T + shift).reshape(2, 3, 40, 2, 4).sum(-1))), -1, 0)
    table = layer.rel_attn_embed.weight.detach().numpy()
    gates = a * (b * const - 1) + 2
    bias = posenc.gated_distance(gates[..., None], table.T[..., None], rows="buckets", max_distance=800)
    size = float((abs(heads) @ abs(weight.T) + abs(shift)).reshape(2, 3, 40, 2, 4).sum(-1).max())
    error = (13 * size / 4 + 4) * EPS * float(1 + 2 * abs(const).max()) + 2 * EPS * float(abs(gates).max())
    return bias.matrix(40), expected, error * float(abs(table).max())  # a sigmoid has a slope of 1/4 at most


def inkling() -> Pair:
    """Each word mixes 16 profiles of the distances behind it."""
    layer = transformers("inkling").InklingRelativeLogits(16, 30)
    states, profiles = float32(2, 20, 4, 16), float32(16, 30)
    layer.proj.data = torch.from_numpy(profiles)
    with torch.no_grad():
        expected = layer(torch.from_numpy(states), torch.arange(20) + 35, torch.arange(55))
    bias = posenc.gated_distance(states.swapaxes(1, 2), profiles.T, rows="past")
    return bias.matrix(20, 55, align="end"), expected, 2 * 17 * EPS * float((abs(states) @ abs(profiles)).max())


class Scheme(NamedTuple):
    """An encoding in a class of a model, and the functions of posenc that compute it."""

    functions: str
    pair: Callable[[], Pair]


SCHEMES = {
    "transformers LayoutLMv3Encoder": Scheme("t5, at, +", layoutlmv3),
    "transformers SamVisionAttention": Scheme("shaw, at, +", sam),
    "timm MViTv2": Scheme("shaw(k_min), at, +", mvitv2),
    "transformers Swinv2SelfAttention": Scheme("swin", swinv2),
    "transformers LevitAttention": Scheme("swin", levit),
    "transformers DINOv3ViTRopePositionEmbedding": Scheme("rope_nd, axial_frequencies", dinov3),
    "transformers LightGluePositionalEncoder": Scheme("rope_nd", lightglue),
    "transformers VJEPA2RopeAttention": Scheme("rope_nd, twice", vjepa2),
    "timm RotaryEmbeddingMixed": Scheme("rope_nd, frequencies per head", rope_mixed),
    "diffusers FluxPosEmbed": Scheme("rope_nd, axial_frequencies", flux),
    "diffusers QwenEmbedRope": Scheme("rope_nd, axial_frequencies", qwen_image),
    "diffusers WanRotaryPosEmbed": Scheme("rope_nd, axial_frequencies", wan),
    "diffusers HunyuanVideoRotaryPosEmbed": Scheme("rope_nd, axial_frequencies", hunyuan_video),
    "diffusers get_timestep_embedding": Scheme("sinusoidal", timestep),
    "transformers ParakeetEncoderAttention": Scheme("sinusoidal, transformer_xl", conformer),
    "transformers WavLMAttention": Scheme("gated_distance", wavlm),
    "transformers InklingRelativeLogits": Scheme("gated_distance", inkling),
    "transformers EsmFold2RelativePositionEncoding": Scheme("distance_function, at, +", alphafold3),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_agrees_with_the_model(name: str) -> None:
    ours, peer, bound = SCHEMES[name].pair()
    assert ours.shape == tuple(peer.shape)
    assert np.abs(ours - peer.numpy()).max() <= bound


def test_the_manual_lists_every_scheme() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "models.md").read_text("utf-8")
    assert [name for name, scheme in SCHEMES.items() if f"\n| {name} | {scheme.functions} | " not in page] == []
