"""Positions of images and videos, against transformers' get_rope_index and the rotations of diffusers' video models."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import posenc

IMAGE, VIDEO, BEGIN, AUDIO, AUDIO_BEGIN, WORD = 1, 2, 3, 4, 5, 9
"""Ids of tokens: of an image, of a video, before either, of sound, before it, and of text."""
CLASSES = {
    "qwen2_vl": ("qwen2_vl", "Qwen2VLModel"),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen2_5_VLModel"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLModel"),
    "qwen2_5_omni": ("qwen2_5_omni", "Qwen2_5OmniPreTrainedModelForConditionalGeneration"),
    "qwen3_omni": ("qwen3_omni_moe", "Qwen3OmniMoePreTrainedModelForConditionalGeneration"),
}
OMNI = ("qwen2_5_omni", "qwen3_omni")


def transformers_positions(style, parts, tokens_per_second=None):
    """Return positions and rope_deltas of transformers for a sequence that begins and ends with text."""
    folder, name = CLASSES[style]
    model = getattr(import_module(f"transformers.models.{folder}.modeling_{folder}"), name)
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=tokens_per_second)
    config = SimpleNamespace(
        vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=AUDIO,
        vision_start_token_id=BEGIN, audio_start_token_id=AUDIO_BEGIN, position_id_per_seconds=tokens_per_second,
        seconds_per_chunk=2,
    )  # fmt: skip
    fake = SimpleNamespace(config=config, spatial_merge_size=2)
    for method in ("get_vision_position_ids", "get_llm_pos_ids_for_vision", "get_chunked_index"):
        if hasattr(model, method):
            setattr(fake, method, getattr(model, method).__get__(fake))
    tokens, images, videos = [], [], []
    for part in parts:
        if np.ndim(part) == 0:
            tokens += [WORD] * part
            continue
        is_video = len(part) == 4
        (videos if is_video else images).append(part)
        tokens[-1] = BEGIN
        tokens += [VIDEO if is_video else IMAGE] * (part[0] * part[1] * part[2] // 4)
    ids = torch.tensor([tokens])
    grids = {"image_grid_thw": images, "video_grid_thw": [video[:3] for video in videos]}
    given = {key: torch.tensor(value) for key, value in grids.items() if value}
    seconds = torch.tensor([video[3] for video in videos], dtype=torch.float32)
    if style in OMNI:
        given |= {"second_per_grids": seconds, "attention_mask": torch.ones_like(ids)}
        return model.get_rope_index(fake, ids, **given)
    kinds = torch.where(ids > VIDEO, 0, ids)
    if style == "qwen2_5_vl" and videos:
        given["second_per_grid_ts"] = seconds
    return model.get_rope_index(fake, input_ids=ids, mm_token_type_ids=kinds, **given)


def drawn(rng, style, tokens_per_second):
    """Draw text, images and videos. Where transformers advances by height and width alone, time does not pass them."""
    parts = [int(rng.integers(1, 9))]
    for _ in range(rng.integers(1, 5)):
        h, w = (2 * rng.integers(1, 9, 2)).tolist()
        step = float(rng.choice([0.125, 0.25, 0.5, 1.0, 1.5]))
        steps = int(rng.integers(1, 9))
        if rng.random() < 0.5:
            parts.append((1, h, w))
        elif style == "qwen3_vl":  # a timestamp precedes each step
            parts += [part for _ in range(steps) for part in ((1, h, w, step), int(rng.integers(2, 9)))][:-1]
        else:
            scale = {"qwen2_vl": 1, "qwen2_5_vl": step * tokens_per_second}.get(style, 0)
            while scale and int((steps - 1) * scale) >= max(h, w) // 2:
                steps -= 1
            parts.append((steps, h, w, step))
        parts.append(int(rng.integers(2, 9)))
    return parts


def ours(style, parts, tokens_per_second, **options):
    reads = style not in ("qwen2_vl", "qwen3_vl")
    given = [part if np.ndim(part) == 0 or reads else part[:3] for part in parts]
    return posenc.mrope_positions(given, style=style, tokens_per_second=tokens_per_second if reads else None, **options)


@pytest.mark.parametrize("style", CLASSES)
def test_drawn_sequences(style):
    """200 sequences: positions and offset equal transformers', and parts and decoding continue them."""
    rng, of_time = np.random.default_rng(67), 0
    for _ in range(200):
        tokens_per_second = int(rng.choice([2, 4, 25])) if style in OMNI else 2
        parts = drawn(rng, style, tokens_per_second)
        expected, deltas = transformers_positions(style, parts, tokens_per_second)
        found = ours(style, parts, tokens_per_second)
        assert np.array_equal(found.positions, expected[:, 0].numpy()), parts
        assert found.offset == deltas.item(), parts
        of_time += any(np.ndim(part) == 1 and part[0] > 1 for part in parts)
        cut = int(rng.integers(len(parts)))
        first = ours(style, parts[:cut], tokens_per_second)
        rest = ours(style, [*parts[cut:], 3], tokens_per_second, start=first.end)
        n = found.positions.shape[1]
        decoded = np.arange(n, n + 3) + deltas.item()  # as compute_3d_position_ids of transformers
        joined = np.concatenate([first.positions, rest.positions], 1)
        assert np.array_equal(joined, np.concatenate([found.positions, np.tile(decoded, (3, 1))], 1))
    assert style == "qwen3_vl" or of_time > 50


def test_text_after_a_long_video():
    """transformers 5.24 advances by height and width alone, so that text gets positions that the video has. The
    authors' code advances to the largest coordinate, as transformers did before, and as both Omni do."""
    parts = [2, (6, 4, 4, 1.0), 3]
    for style in ("qwen2_vl", "qwen2_5_vl"):
        found, (expected, deltas) = ours(style, parts, 1), transformers_positions(style, parts, 1)
        assert np.array_equal(found.positions[:, :-3], expected[:, 0, :-3].numpy())
        assert found.positions[0, -4:].tolist() == [7, 8, 9, 10]
        assert expected[0, 0, -4:].tolist() == [7, 4, 5, 6]
        assert deltas.item() + len(expected[0, 0]) == 8 != found.end  # decoding continues elsewhere, too
        given = parts if style == "qwen2_5_vl" else [2, parts[1][:3], 3]
        options = {"style": style, "tokens_per_second": 1 if style == "qwen2_5_vl" else None}
        report = posenc.check.positions(expected[:, 0], given, **options)
        assert report.causes[0].name == "advance without time"  # a square grid advances by its height, too
    found, (expected, _) = ours("qwen2_5_omni", parts, 1), transformers_positions("qwen2_5_omni", parts, 1)
    assert np.array_equal(found.positions, expected[:, 0].numpy())


# ---- grids ----


def peer(name):
    return import_module(f"diffusers.models.transformers.transformer_{name}")


def test_wan_and_hunyuan_video():
    places, latent = posenc.grid_positions((3, 4, 6)), torch.zeros(1, 1, 3, 8, 12)
    cos, sin = peer("wan").WanRotaryPosEmbed(128, (1, 2, 2), 64)(latent)
    angles = places.T @ posenc.axial_frequencies((44, 42, 42))
    np.testing.assert_allclose(cos[0, :, 0, ::2], np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(sin[0, :, 0, ::2], np.sin(angles), atol=1e-6)
    cos, sin = peer("hunyuan_video").HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56], 256.0)(latent)
    angles = places.T @ posenc.axial_frequencies((16, 56, 56), base=256)
    np.testing.assert_allclose(cos[:, ::2], np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(sin[:, ::2], np.sin(angles), atol=1e-6)


@pytest.mark.parametrize("fps", [None, 16, 30])
def test_cosmos(fps):
    """Time in frames of 24 a second; the bases are enlarged by NTK."""
    embedding = peer("cosmos").CosmosRotaryPosEmbed(128, rope_scale=(2.0, 1.0, 1.0))
    cos, sin = embedding(torch.zeros(1, 1, 3, 8, 12), fps=fps)
    w = posenc.axial_frequencies((44, 42, 42), base=(10000 * 2 ** (44 / 42), 10000, 10000))
    options = {} if fps is None else {"fps": fps, "unit": (1 / 24, 1, 1)}
    angles = posenc.grid_positions((3, 4, 6), **options).T @ w
    np.testing.assert_allclose(cos[:, :64], np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(sin[:, :64], np.sin(angles), atol=1e-6)


UNIT, SIDES = (20, 2048, 2048), (8, 32, 32)


def check_ltx(cos, sin, positions):
    """The ladder of LTX: pi / 2 theta**(k / (n - 1)) for each axis, time, row and column of a pair in turn."""
    w = np.pi / 2 * 10000.0 ** np.linspace(0, 1, 128 // 6)
    angles = ((2 * positions - 1)[:, :, None] * w).transpose(1, 2, 0).reshape(positions.shape[1], -1)
    padded = np.concatenate([np.zeros((len(angles), 1)), angles], 1)  # 128 channels are 63 pairs and two channels
    np.testing.assert_allclose(cos[0, :, ::2], np.cos(padded), atol=4e-3)  # angles up to 1.6e4, in float32
    np.testing.assert_allclose(sin[0, :, ::2], np.sin(padded), atol=4e-3)


def test_ltx():
    embedding = peer("ltx").LTXVideoRotaryPosEmbed(128)
    table = embedding(torch.zeros(1, 72, 128), 3, 4, 6, rope_interpolation_scale=(8 / 25, 32, 32))
    check_ltx(*table, posenc.grid_positions((3, 4, 6), fps=25, compression=SIDES, unit=UNIT))
    pipeline = import_module("diffusers.pipelines.ltx.pipeline_ltx_condition").LTXConditionPipeline
    ids = pipeline._scale_video_ids(pipeline._prepare_video_ids(1, 3, 4, 6)).float()
    ids[:, 0] /= 25
    table = embedding(torch.zeros(1, 72, 128), video_coords=ids)
    check_ltx(*table, posenc.grid_positions((3, 4, 6), fps=25, compression=SIDES, unit=UNIT, causal=True))


def test_ltx_2():
    embedding = peer("ltx2").LTX2AudioVideoRotaryPosEmbed(128, modality="video")
    coordinates = embedding.prepare_video_coords(1, 3, 4, 6, torch.device("cpu"), fps=24.0)
    options = {"fps": 24, "compression": SIDES, "causal": True}
    assert np.allclose(coordinates[0, :, :, 0], posenc.grid_positions((3, 4, 6), **options))
    check_ltx(*embedding(coordinates), posenc.grid_positions((3, 4, 6), unit=UNIT, centre=True, **options))
