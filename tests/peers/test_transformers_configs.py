"""Configs of checkpoints: each gives the rotation of the model, and defaults of missing keys are those of
transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posenc
from posenc.rotary._models import MODELS

pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from checkpoints import CHECKPOINTS, Checkpoint
from rotations import config_of, inv_freq, rotate
from test_transformers_scaling import RELATIVE
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

EPS = 2.0**-24


def assert_same_rotation(config: Any, x: np.ndarray, where: np.ndarray, w: posenc.RopeFrequencies, layout: str,
                         out_layout: str | None, layer_type: str | None, inverse: bool = False) -> None:  # fmt: skip
    """Within the error of float32 frequencies, angles, tables and sums of numbers below 6."""
    ours = posenc.rope(x, where, w, layout=layout, out_layout=out_layout, inverse=inverse)
    theirs = rotate(config, x, where, layer_type)
    angle = where[:, None] * w.inv_freq * (RELATIVE + EPS) + 4 * EPS
    allowed = 6 * max(w.attention_factor, 1.0) * angle
    by_channel = np.repeat(allowed, 2, -1) if (out_layout or layout) == "interleaved" else np.tile(allowed, 2)
    assert theirs.shape == ours.shape
    assert (np.abs(ours - theirs) <= by_channel).all()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint(name: str) -> None:
    checkpoint: Checkpoint = CHECKPOINTS[name]
    rng, where = np.random.default_rng(1), np.arange(32) + checkpoint.start
    config = config_of(checkpoint.config)
    for layer_type in checkpoint.layer_types:
        w = posenc.rope_from_config(checkpoint.config, seq_len=int(where.max()) + 1, layer_type=layer_type)
        assert w.attention_factor == pytest.approx(checkpoint.attention_factor, rel=1e-15)
        assert w.softmax_factor == pytest.approx(checkpoint.softmax_factor, rel=1e-15)
        if checkpoint.config["model_type"] != "gptj":  # it has a table only
            theirs, factor = inv_freq(config, where, layer_type)
            assert np.abs(theirs / w.inv_freq - 1).max() <= RELATIVE
            assert factor == pytest.approx(w.attention_factor, rel=1e-15)
        for heads in (4, 2):  # q, k
            x = np.clip(rng.standard_normal((1, heads, 32, 2 * len(w.inv_freq))), -3, 3).astype(np.float32)
            assert_same_rotation(config, x, where, w, checkpoint.layout, checkpoint.out_layout, layer_type)


@pytest.mark.parametrize("name", [n for n, c in CHECKPOINTS.items() if c.config["model_type"] != "gptj"])
def test_as_transformers_5_writes_it(name: str) -> None:
    """The to_dict of transformers' configuration object of the same checkpoint gives the same frequencies, bit for
    bit."""
    checkpoint = CHECKPOINTS[name]
    written = config_of(checkpoint.config).to_dict()
    assert "rope_parameters" in written
    for layer_type in checkpoint.layer_types:
        before = posenc.rope_from_config(checkpoint.config, layer_type=layer_type)
        after = posenc.rope_from_config(written, layer_type=layer_type)
        assert after.inv_freq.tobytes() == before.inv_freq.tobytes()
        assert after[1:] == before[1:]


SMALL = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 12}


def minimal(model_type: str) -> dict[str, Any]:
    """A config without all keys that may be missing."""
    sizes = {"n_embd": 256, "n_head": 4, "n_layer": 12} if MODELS[model_type].rotary_dim else SMALL
    config: dict[str, Any] = {"model_type": model_type, **sizes}
    if MODELS[model_type].requires_scaling:
        config["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    return config


LAYOUTS = {
    "half": ("half", None), "half, backwards": ("half", None), "interleaved": ("interleaved", None),
    "interleaved to half": ("interleaved", "half"),
}  # fmt: skip
"""Names of the documentation for layout and out_layout."""


@pytest.fixture(scope="module")
def documented() -> dict[str, tuple[str, str, str]]:
    """(layout, width, base) of each model_type in docs/rotary-checkpoints.md."""
    text = (Path(posenc.__file__).parent.parent / "docs/rotary-checkpoints.md").read_text()
    table = text.split("| model_type |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table]
    return {name: (layout, width, base) for names, layout, width, base in rows for name in names.split(", ")}


def layer_types(model_type: str) -> tuple[str | None, ...]:
    return ("full_attention", "sliding_attention") if MODELS[model_type].scaled else (None,)


@pytest.mark.parametrize("model_type", sorted(MODELS))
def test_what_a_config_leaves_out(model_type: str, documented: dict[str, tuple[str, str, str]]) -> None:
    """Base, rotated part and widths are those of the classes of transformers, and the layout is that of
    docs/rotary-checkpoints.md."""
    written = minimal(model_type)
    config, where = config_of(written), np.arange(32)
    layout, width, base = documented[model_type]
    for layer_type in layer_types(model_type):
        w = posenc.rope_from_config(written, layer_type=layer_type)
        x = np.random.default_rng(2).uniform(-3, 3, (1, 2, 32, 2 * len(w.inv_freq))).astype(np.float32)
        assert_same_rotation(config, x, where, w, *LAYOUTS[layout], layer_type, inverse=layout.endswith("backwards"))
        model = MODELS[model_type]
        known = model.rotary_dim or model.qk_rope_head_dim or model.head_dim
        head = known or 64
        part = float(width.split()[0]) if width[0].isdigit() else 1
        assert 2 * len(w.inv_freq) == int(part * head)
        assert (known is None) == ("," not in width)
        assert known is None or width.endswith(f", {known}")
        at_base = base.split(", sliding ")[-1 if layer_type == "sliding_attention" else 0]
        factor = 2.0 if model.requires_scaling else 1.0
        last = posenc.frequencies(2 * len(w.inv_freq), base=float(at_base))[-1] / factor
        assert w.inv_freq[-1] == pytest.approx(last, rel=1e-15)


def test_every_known_model_is_documented(documented: dict[str, tuple[str, str, str]]) -> None:
    assert set(documented) == set(MODELS)


DIFFERENT = {"minimax_m3_vl_text"}
"""Its class says rotary_dim 64 and turns 128, since it does not read its own default."""
TEXT = sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} & {*CONFIG_MAPPING_NAMES} - DIFFERENT)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TEXT)
def test_every_text_model_agrees_or_is_refused(model_type: str) -> None:
    """The config.json of every class gives the frequencies of transformers, or is refused."""
    try:
        config = CONFIG_MAPPING[model_type]()
        written = config.to_dict()
    except Exception as error:  # two classes cannot be made without arguments
        pytest.skip(f"no configuration of its own: {error}")
    parameters = written.get("rope_parameters") or {}
    layers = [name for name, value in parameters.items() if isinstance(value, dict)]
    for layer_type in layers or [None] * bool(parameters):
        try:
            theirs, factor = inv_freq(config, np.arange(4), layer_type)
        except (AssertionError, AttributeError, KeyError, ModuleNotFoundError) as error:
            pytest.skip(f"no module that can be used alone: {error}")
        try:
            ours = posenc.rope_from_config(written, layer_type=layer_type)
        except (TypeError, ValueError) as error:
            refusal = re.match("rope_from_config: ", str(error))
            assert refusal
            continue
        assert ours.inv_freq.shape == theirs.shape
        np.testing.assert_allclose(theirs, ours.inv_freq, rtol=RELATIVE, atol=0)
        assert factor == pytest.approx(ours.attention_factor, rel=1e-15)


@pytest.mark.parametrize("model_type", [name for name, model in MODELS.items() if model.requires_scaling])
def test_a_class_with_a_scaling_of_its_own_is_not_guessed(model_type: str) -> None:
    assert config_of({"model_type": model_type, **SMALL}).rope_parameters["rope_type"] != "default"
    with pytest.raises(ValueError, match=r"rope_parameters has no value; expected the scaling"):
        posenc.rope_from_config({"model_type": model_type, **SMALL, "rope_theta": 1e4})
