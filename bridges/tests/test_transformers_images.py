"""Models of images and sound with attention of posenc: results, gradients, and every call."""

# ruff: noqa: E402 -- transformers is imported after the check that it is here
from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from small_models import shrink

import posenc_bridges.transformers

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' models, about themselves
posenc_bridges.transformers.register()

ROUNDING = 2e-6
"""As in test_transformers_attention.py."""
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IMAGES = {**SMALL, "image_size": 32, "patch_size": 8}


def numbers(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def words(length: int = 9) -> dict[str, Any]:
    ids = torch.randint(4, 99, (2, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def of_layoutlm(**changes: Any) -> Any:
    sizes = {"coordinate_size": 5, "shape_size": 6, "input_size": 32, "patch_size": 8, "max_position_embeddings": 64}
    config = transformers.LayoutLMv3Config(vocab_size=99, **{**SMALL, **NO_DROPOUT, **sizes, **changes})
    corners = torch.randint(0, 500, (2, 9, 2), generator=torch.Generator().manual_seed(1))
    boxes = torch.cat([corners, corners + 100], -1)
    return transformers.LayoutLMv3Model, config, {**words(), "bbox": boxes, "pixel_values": numbers(2, 3, 32, 32)}


def of_sam() -> Any:
    vision = {**IMAGES, "mlp_dim": 32, "output_channels": 16, "num_pos_feats": 8, "global_attn_indexes": [0]}
    vision["window_size"] = 3
    decoder = {"hidden_size": 16, "mlp_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    prompts = {"hidden_size": 16, "image_embedding_size": 4, "image_size": 32, "patch_size": 8}
    parts = {"vision_config": vision, "mask_decoder_config": decoder, "prompt_encoder_config": prompts}
    config = transformers.SamConfig(**parts)
    given = {"pixel_values": numbers(2, 3, 32, 32), "input_points": numbers(2, 1, 1, 2)}
    return transformers.SamModel, config, given


def of_swin() -> Any:
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}
    config = transformers.Swinv2Config(window_size=4, drop_path_rate=0.0, **sizes, **NO_DROPOUT)
    return transformers.Swinv2Model, config, {"pixel_values": numbers(2, 3, 32, 32)}


def of_wavlm() -> Any:
    sizes = {"conv_dim": [16, 16], "conv_kernel": [10, 4], "conv_stride": [5, 4], "num_conv_pos_embeddings": 8}
    sizes |= {"num_conv_pos_embedding_groups": 4, "num_buckets": 16, "max_bucket_distance": 20}
    parts = ("hidden", "attention", "activation", "feat_proj", "final")
    without = {"layerdrop": 0.0, "mask_time_prob": 0.0, **{f"{part}_dropout": 0.0 for part in parts}}
    config = transformers.WavLMConfig(**SMALL, **sizes, **without)
    mask = torch.ones(2, 1000, dtype=torch.long)
    mask[1, -300:] = 0
    return transformers.WavLMModel, config, {"input_values": numbers(2, 1000), "attention_mask": mask}


INPUTS = {
    "ASTModel": (2, 1024, 128), "VideoMAEModel": (1, 4, 3, 32, 32), "VivitModel": (1, 4, 3, 32, 32),
    "WhisperModel": (2, 80, 3000), "pixel_values": (2, 3, 32, 32), "pixel_values_videos": (1, 4, 3, 32, 32),
    "input_values": (2, 1000), "input_features": (2, 60, 80),
}  # fmt: skip
"""Shapes of inputs, by class or by the name of the input."""
PAGE = (Path(__file__).parents[1] / "docs" / "transformers.md").read_text("utf-8").split("### Images and sound\n")[1]
SAME, OWN = (re.findall(r"`(\w+)`", part.rpartition("\n\n")[2]) for part in PAGE.split("\n\n### ")[:2])


def of_class(name: str) -> Any:
    cls = getattr(transformers, name)
    config = cls.config_class(**shrink(cls.config_class()))
    given = {cls.main_input_name: numbers(*INPUTS.get(name, INPUTS[cls.main_input_name]))}
    return cls, config, {**given, **({"decoder_input_ids": words()["input_ids"]} if config.is_encoder_decoder else {})}


CASES: dict[str, tuple[Callable[[], Any], int | None]] = {
    **{name: (partial(of_class, name), None) for name in SAME},
    "SAM": (of_sam, 2 + 4),
    "Swin V2": (of_swin, 4),
    "WavLM": (of_wavlm, 2),
}
"""For each model its class, config and inputs, and its number of attention modules that run; None is any number."""


if transformers.__version__.startswith("5.24."):  # LayoutLMv3 does not use the interface before
    CASES["LayoutLMv3"] = (of_layoutlm, 2)
    CASES["LayoutLMv3, one bias"] = (lambda: of_layoutlm(has_spatial_attention_bias=False), 2)


def build(name: str, implementation: str) -> tuple[Any, dict[str, Any]]:
    cls, config, given = CASES[name][0]()
    torch.manual_seed(0)
    model = cls._from_config(config, attn_implementation=implementation).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in model.parameters():
            if one.ndim >= 2 and one.numel():
                one.normal_(0, one[0].numel() ** -0.5, generator=generator)
    return model, given


def outputs(model: Any, given: dict[str, Any]) -> Any:
    """Return the outputs of tokens that are not padding, as one tensor."""
    made = model(**given)
    result = made.pred_masks if "pred_masks" in made else made[0]
    mask = given.get("attention_mask")
    if mask is not None and "bbox" in given:  # images follow the words
        result = result[:, : mask.shape[1]] * mask[..., None]
    elif mask is not None:
        result = result[:, : int(mask.sum(1).min()) // 20 - 1]
    return result


def run(model: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    model.zero_grad()
    result = outputs(model, given)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(2))
    (result * weights.to(result.dtype)).sum().backward()
    return result.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def difference(a: tuple[Any, Any], b: tuple[Any, Any]) -> float:
    """Return the largest difference of outputs or gradients, of the largest of b."""
    assert a[1].keys() == b[1].keys()
    size = max(float(one.abs().max()) for one in b[1].values())
    of_gradients = max(float((a[1][name] - b[1][name]).abs().max()) for name in b[1]) / size
    return max(float((a[0] - b[0]).abs().max() / b[0].abs().max()), of_gradients)


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.sweep if one in SAME else ()) for one in CASES])
def test_results_and_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where float32 differs more, posenc is at most twice as far from float64 as eager attention is."""
    calls = []
    for owner, name_of in ((posenc_bridges.torch, "attention"), (posenc_bridges.torch.PreparedAttention, "__call__")):
        ours = getattr(owner, name_of)
        counted = lambda *args, ours=ours, **options: calls.append(1) or ours(*args, **options)  # noqa: E731
        monkeypatch.setattr(owner, name_of, counted)
    model, given = build(name, "posenc")
    found, expected = run(model, given), run(*build(name, "eager"))
    assert len(calls) == (CASES[name][1] or len(calls)) > 0
    if difference(found, expected) > ROUNDING:
        exact, given = build(name, "eager")
        wide = {key: one.double() if one.is_floating_point() else one for key, one in given.items()}
        reference = run(exact.double(), wide)
        assert difference(found, reference) <= 2 * difference(expected, reference)


@pytest.mark.skipif(not transformers.__version__.startswith("5.24."), reason="the page is about transformers 5.24")
def test_models_with_attention_of_their_own_are_refused() -> None:
    for name in OWN:
        cls = getattr(transformers, name)
        with torch.device("meta"), pytest.raises(NotImplementedError, match="computes attention itself; expec"):
            cls._from_config(cls.config_class(), attn_implementation="posenc")


@pytest.mark.parametrize("name", sorted({"LayoutLMv3", "SAM", "Swin V2", "WavLM"} & CASES.keys()))
def test_models_from_before_change(name: str) -> None:
    """A model computes its attention by posenc when it is told so, and refuses to return weights then."""
    model, given = build(name, "eager")
    eager = run(model, given)
    model.set_attn_implementation("posenc")
    assert 0 < difference(run(model, given), eager) <= 1e-4
    with pytest.raises(NotImplementedError, match=r"output_attentions of \w+ is True; expected False"):
        model(**given, output_attentions=True)
