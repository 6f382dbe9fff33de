"""Configs of checkpoints: each gives the rotation of the model, and defaults of missing keys are those of
transformers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posenc
from posenc.rotary.config import HEADS, HIDDEN
from posenc.rotary.models import ELSEWHERE, MODELS

pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from checkpoints import CHECKPOINTS, Checkpoint
from rotations import (
    STATED,
    allowed,
    config_of,
    configs,
    directories,
    inv_freq,
    known,
    layer_types,
    of_directory,
    rotate,
    survey,
)
from test_transformers_scaling import RELATIVE
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

ROOT = Path(__file__).parents[2]


def assert_same_rotation(
    config: Any,
    x: np.ndarray,
    where: np.ndarray,
    w: posenc.RopeFrequencies,
    layout: str,
    out_layout: str | None,
    layer_type: str | None,
) -> None:
    """Within the error of float32."""
    ours = posenc.rope(x, where, w, layout=layout, out_layout=out_layout)
    theirs = rotate(config, x, where, layer_type)
    bound = allowed(w, where, RELATIVE)
    by_channel = np.repeat(bound, 2, -1) if (out_layout or layout) == "interleaved" else np.tile(bound, 2)
    assert theirs.shape == ours.shape
    assert (np.abs(ours - theirs) <= by_channel).all()


IN_THIS_VERSION = [name for name, one in CHECKPOINTS.items() if one.config["model_type"] in CONFIG_MAPPING_NAMES]


@pytest.mark.parametrize("name", IN_THIS_VERSION)
def test_checkpoint(name: str) -> None:
    checkpoint: Checkpoint = CHECKPOINTS[name]
    rng, where = np.random.default_rng(1), np.arange(32) + checkpoint.start
    config = config_of(checkpoint.config)
    for layer_type in checkpoint.layer_types:
        w = posenc.rope_from_config(checkpoint.config, seq_len=int(where.max()) + 1, layer_type=layer_type)
        assert w.layout == checkpoint.layout
        assert w.rotary_dim == (None if "qk_rope_head_dim" in checkpoint.config else 2 * len(w))
        assert w.attention_factor == pytest.approx(checkpoint.attention_factor, rel=1e-15)
        assert w.softmax_factor == pytest.approx(checkpoint.softmax_factor, rel=1e-15)
        if checkpoint.config["model_type"] != "gptj":  # it has a table only
            theirs, factor = inv_freq(config, where, layer_type)
            assert np.abs(theirs / w.inv_freq - 1).max() <= RELATIVE
            assert factor == pytest.approx(w.attention_factor, rel=1e-15)
        for heads in (4, 2):  # q, k
            x = np.clip(rng.standard_normal((1, heads, 32, 2 * len(w.inv_freq))), -3, 3).astype(np.float32)
            assert_same_rotation(config, x, where, w, checkpoint.layout, checkpoint.out_layout, layer_type)


# ---- every directory ----


for_this_version = pytest.mark.skipif(
    not transformers.__version__.startswith("5.24."),
    reason=f"the table is that of transformers 5.24, and {transformers.__version__} is installed",
)


@for_this_version
@pytest.mark.slow
@pytest.mark.parametrize("directory", directories())
def test_every_directory_with_rotary_code(directory: str) -> None:
    """Every class gives the rotation of its model, or is refused and says why."""
    rows = survey(directory, RELATIVE)
    assert [row for row in rows if row.outcome == "missing"] == []
    assert of_directory(rows).outcome in ("agreed", "refused")


FEW = (
    "blt", "cohere_compass", "deepseek_v4", "dinov3_vit", "glm_ocr", "granite_swa", "llama4", "molmo2", "nanochat",
    "qwen2_5_omni", "xlnet",
)  # fmt: skip
"""Parts, coordinates, two bases, patches, pairs side by side, bases by layer, complex numbers, backwards, none."""


@for_this_version
@pytest.mark.parametrize("directory", FEW)
def test_few_directories(directory: str) -> None:
    test_every_directory_with_rotary_code(directory)


@for_this_version
@pytest.mark.slow
def test_the_manual_is_made_from_the_models() -> None:
    """The command that counts directories prints no missing one, and its page is the manual's."""
    command = [sys.executable, str(ROOT / "benchmarks" / "accuracy" / "checkpoints.py"), "--check"]
    environment = {**os.environ, "POSENC_BENCHMARK_TREE": str(Path(posenc.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("missing: 0")


# ---- defaults ----


@pytest.fixture(scope="module")
def documented() -> dict[str, tuple[str, str, str]]:
    """(layout, width, base) of each model_type in docs/guides/rotary-checkpoints.md."""
    text = (ROOT / "docs" / "guides" / "rotary-checkpoints.md").read_text("utf-8")
    lists = re.findall(r"^- ([^;:]+); ([^;:]+); ([^;:]+): ((?:.+\n)(?:  .+\n)*)", text, re.MULTILINE)
    return {
        name: (layout, width, base) for layout, width, base, names in lists for name in re.findall(r"[\w-]+", names)
    }


@for_this_version
@pytest.mark.parametrize("model_type", sorted(set(MODELS) - set(ELSEWHERE)))
def test_what_a_part_leaves_out(model_type: str, documented: dict[str, tuple[str, str, str]]) -> None:
    """A part of a config without keys has the rotation of the class of transformers and that of the manual."""
    model = MODELS[model_type]
    layout, width, base = documented[model_type]
    config = defaults(model_type)
    if model.requires_scaling:
        parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": config["rope_parameters"]["rope_theta"]}
        config = {**config, "rope_parameters": parameters}
    omitted: dict[str, Any] = {"model_type": model_type}
    if model.sizes is None:
        omitted |= {
            key: config[key]
            for key in (*HIDDEN, *HEADS, "head_dim", "attention_head_dim", "kv_channels")
            if config.get(key) and not (key == "head_dim" and model.head_dim)
        }
    omitted |= {key: config[key] for key in ("layer_types", "per_layer_config") if key in config}
    omitted |= STATED.get(model_type, {})
    if model.requires_scaling:
        omitted["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    if model.base is None:
        assert base == "stated"
        omitted["rope_parameters"] = config["rope_parameters"]
    for layer_type in layer_types(config):
        stated = posenc.rope_from_config(config, layer_type=layer_type)
        w = posenc.rope_from_config({"text_config": omitted}, layer_type=layer_type)
        assert w.inv_freq.tobytes() == stated.inv_freq.tobytes()
        assert known(w) == known(stated)
        assert layout.startswith(w.layout or "?")
        assert layout.endswith("backwards") == (w.inv_freq[0] < 0)
        if model.base is not None:
            at_base = float(base.split(", sliding ")[-1 if layer_type == "sliding_attention" else 0])
            last = posenc.sinusoidal_frequencies(2 * len(w), base=at_base)[-1] / (
                2.0 if model.requires_scaling else 1.0
            )
            assert abs(w.inv_freq[-1]) == pytest.approx(last, rel=1e-15)
            part = float(width.split()[0]) if width[0].isdigit() else 1
            if "," in width and model_type not in STATED:
                assert 2 * len(w) == int(part * int(width.split(", ")[1]))


def defaults(model_type: str) -> dict[str, Any]:
    """The config.json of a class without arguments, or with those that checkpoints state."""
    if model_type in CONFIG_MAPPING_NAMES:
        return dict(CONFIG_MAPPING[model_type](**STATED.get(model_type, {})).to_dict())
    for directory in directories():
        for config in configs(directory) if model_type.startswith(directory[:5]) else ():
            if config.model_type == model_type:
                return dict(config.to_dict())
    raise AssertionError(f"transformers has no class for {model_type!r}")


def test_every_known_model_is_documented(documented: dict[str, tuple[str, str, str]]) -> None:
    assert set(documented) == set(MODELS)


@pytest.mark.parametrize("model_type", [name for name, model in MODELS.items() if model.requires_scaling])
def test_a_class_with_a_scaling_of_its_own_is_not_guessed(model_type: str) -> None:
    sizes = {"hidden_size": 256, "num_attention_heads": 4}
    assert config_of({"model_type": model_type, **sizes}).rope_parameters["rope_type"] != "default"
    with pytest.raises(ValueError, match=r"rope_parameters has no value; expected the scaling"):
        posenc.rope_from_config({"model_type": model_type, **sizes, "rope_theta": 1e4})
