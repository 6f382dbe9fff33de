"""What each layer of a config does: ten configs of 2026, wrong configs, and the table of the command."""

import json
import math
import re

import numpy as np
import pytest

import posenc
from posenc import __main__ as command
from posenc.typing import Layer

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
LATENT = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "num_hidden_layers": 61, "hidden_size": 7168}
DEEPSEEK_YARN = {
    "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
GPT_OSS_YARN = {
    "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": False, "rope_theta": 150000.0,
}  # fmt: skip
CONFIGS = {  # values of the classes of transformers 5.24; the scalings of DeepSeek-V3 and Kimi K2 as published
    "Qwen3.5": {"model_type": "qwen3_5", "text_config": {
        "model_type": "qwen3_5_text", "num_hidden_layers": 32, "full_attention_interval": 4, "head_dim": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
                            "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    }},
    "Gemma 4": {"model_type": "gemma4", "text_config": {
        "model_type": "gemma4_text", "num_hidden_layers": 30, "head_dim": 256, "global_head_dim": 512,
        "sliding_window": 512, "layer_types": ([SLIDING] * 5 + [FULL]) * 5,
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
            FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
        },
    }},
    "gpt-oss": {
        "model_type": "gpt_oss", "num_hidden_layers": 36, "head_dim": 64, "sliding_window": 128,
        "layer_types": [SLIDING, FULL] * 18, "max_position_embeddings": 131072, "rope_parameters": GPT_OSS_YARN,
    },
    "DeepSeek-V3": {
        "model_type": "deepseek_v3", **LATENT, "num_attention_heads": 128, "max_position_embeddings": 163840,
        "rope_theta": 10000, "rope_scaling": DEEPSEEK_YARN,
    },
    "GLM-5": {
        "model_type": "glm_moe_dsa", "num_hidden_layers": 78, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
        "index_topk": 2048, "layer_types": ["indexed_attention"] * 78, "rope_parameters": {"rope_theta": 10000.0},
    },
    "Kimi K2": {
        "model_type": "kimi_k2", **LATENT, "num_attention_heads": 64, "max_position_embeddings": 131072,
        "rope_theta": 50000.0,
        "rope_scaling": {**DEEPSEEK_YARN, "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0},
    },
    "Llama 4": {"model_type": "llama4", "text_config": {
        "model_type": "llama4_text", "num_hidden_layers": 48, "head_dim": 128, "no_rope_layer_interval": 4,
        "attention_chunk_size": 8192, "rope_theta": 500000.0,
    }},
    "MiMo-V2": {
        "model_type": "mimo_v2_flash", "num_hidden_layers": 48, "head_dim": 192, "sliding_window": 129,
        "layer_types": [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(48)],
        "rope_parameters": {
            FULL: {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.334},
            SLIDING: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.334},
        },
    },
    "MiniMax-M2": {
        "model_type": "minimax_m2", "num_hidden_layers": 62, "head_dim": 128, "rotary_dim": 64, "rope_theta": 5000000,
    },
    "SmolLM3": {
        "model_type": "smollm3", "num_hidden_layers": 36, "hidden_size": 2048, "num_attention_heads": 16,
        "no_rope_layer_interval": 4, "use_sliding_window": False, "rope_theta": 2000000.0,
    },
}  # fmt: skip
DOUBTS = {"Kimi K2": r"beta_fast and beta_slow are both 1: the ramp is a step"}
"""Sentences about configs that are published."""

DEEPSEEK_SCALE = 192**-0.5 * (0.1 * math.log(40) + 1) ** 2
KIMI_SCALE = 192**-0.5 * (0.1 * math.log(32) + 1) ** 2
EXPECTED = {  # the first layers that differ: attention, base, scaling, part, pairs, layout, window, chunk, sink, scale
    "Qwen3.5": {0: (LINEAR,) + (None,) * 7 + (False, None),
                3: (FULL, 1e4, "default", 0.25, 32, "half", None, None, False, 1 / 16)},
    "Gemma 4": {0: (SLIDING, 1e4, "default", 1, 128, "half", 512, None, False, 1),
                5: (FULL, 1e6, "proportional", 0.25, 64, "half", None, None, False, 1)},
    "gpt-oss": {0: (SLIDING, 150000, "yarn", 1, 32, "half", 128, None, True, 1 / 8),
                1: (FULL, 150000, "yarn", 1, 32, "half", None, None, True, 1 / 8)},
    "DeepSeek-V3": {0: (FULL, 1e4, "yarn", 1 / 3, 32, "interleaved", None, None, False, DEEPSEEK_SCALE)},
    "GLM-5": {0: ("indexed_attention", 1e4, "default", 1 / 4, 32, "interleaved", None, None, False, 1 / 16)},
    "Kimi K2": {0: (FULL, 5e4, "yarn", 1 / 3, 32, "interleaved", None, None, False, KIMI_SCALE)},
    "Llama 4": {0: ("chunked_attention", 5e5, "default", 1, 64, "interleaved", None, 8192, False, 128**-0.5),
                3: (FULL,) + (None,) * 7 + (False, 128**-0.5)},
    "MiMo-V2": {0: (FULL, 5e6, "default", 1 / 3, 32, "half", None, None, False, 192**-0.5),
                1: (SLIDING, 1e4, "default", 1 / 3, 32, "half", 129, None, True, 192**-0.5)},
    "MiniMax-M2": {0: (FULL, 5e6, "default", 1 / 2, 32, "half", None, None, False, 128**-0.5)},
    "SmolLM3": {0: (FULL, 2e6, "default", 1, 64, "half", None, None, False, 128**-0.5),
                3: (FULL,) + (None,) * 7 + (False, 128**-0.5)},
}  # fmt: skip


def read(config, doubts=()):
    """Return the layers of a config that gives these sentences, in this order."""
    if not doubts:
        return posenc.layers(config)
    with pytest.warns(UserWarning, match="^layers: ") as caught:
        found = posenc.layers(config)
    sentences = [str(warning.message) for warning in caught]
    assert len(sentences) == len(doubts), sentences
    for sentence, doubt in zip(sentences, doubts, strict=True):
        assert doubt in sentence
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_of_published_models(name):
    found = read(CONFIGS[name], [DOUBTS[name]] if name in DOUBTS else [])
    text = CONFIGS[name].get("text_config", CONFIGS[name])
    assert [layer.number for layer in found] == list(range(text["num_hidden_layers"]))
    for number, expected in EXPECTED[name].items():
        layer = found[number]
        fields = (layer.attention, layer.base, layer.scaling, layer.part, layer.pairs, layer.layout, layer.window)
        assert fields + (layer.chunk, layer.sink) == expected[:-1]
        assert layer.scale == expected[-1] or math.isclose(layer.scale, expected[-1])
        assert layer.softcap is None
        if layer.rotation is not None:
            by_type = len({layer.base for layer in found} - {None}) > 1
            w = posenc.rope_from_config(CONFIGS[name], layer_type=layer.attention if by_type else None)
            assert np.array_equal(layer.rotation.inv_freq, w.inv_freq)
    kinds = {layer._replace(number=0, rotation=None) for layer in found}
    assert len(kinds) == len(EXPECTED[name])


def test_formats_of_one_model_agree():
    """The config of MiMo-V2 on the hub has other keys than its class, and Cohere 2 an older one, a pattern."""
    hub = {key: CONFIGS["MiMo-V2"][key] for key in ("model_type", "num_hidden_layers", "head_dim")}
    hub |= {"rope_theta": 5000000, "swa_rope_theta": 10000, "partial_rotary_factor": 0.334, "sliding_window_size": 128}
    hub |= {"hybrid_layer_pattern": [int(i != 0 and (i + 1) % 6 != 0) for i in range(48)]}
    hub |= {"add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False}
    without = [layer._replace(rotation=None) for layer in posenc.layers(hub)]
    assert without == [layer._replace(rotation=None) for layer in posenc.layers(CONFIGS["MiMo-V2"])]
    cohere = {"model_type": "cohere2", "num_hidden_layers": 8, "hidden_size": 8192, "num_attention_heads": 64}
    cohere |= {"rope_theta": 5e4, "sliding_window": 4096}
    for pattern in ({}, {"sliding_window_pattern": 4}, {"layer_types": ([SLIDING] * 3 + [FULL]) * 2}):
        found = posenc.layers({**cohere, **pattern})
        assert [layer.rotation is None for layer in found] == [False, False, False, True] * 2
        assert [layer.window for layer in found] == [4096, 4096, 4096, None] * 2


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sliding_window": 4096}, [(SLIDING, 4096)] * 4),
        ({"sliding_window": 4096, "use_sliding_window": False}, [(FULL, None)] * 4),
        ({"sliding_window": 4096, "max_window_layers": 3, "use_sliding_window": True},
         [(FULL, None)] * 3 + [(SLIDING, 4096)]),
        ({"max_window_layers": 3, "sliding_window": None}, [(FULL, None)] * 4),
        ({"sliding_window": None, "max_position_embeddings": math.nan}, [(FULL, None)] * 4),
        ({"layer_types": ["mamba", "attention", "conv", "moe"]},
         [(LINEAR, None), (FULL, None), ("conv", None), ("moe", None)]),
    ],
)  # fmt: skip
def test_types_and_windows(more, expected):
    config = {"model_type": "mistral", "num_hidden_layers": 4, "head_dim": 64, "rope_theta": 1e4, **more}
    found = posenc.layers(config)
    assert [(layer.attention, layer.window) for layer in found] == expected
    assert [layer.scale for layer in found] == [1 / 8 if kind in (SLIDING, FULL) else None for kind, _ in expected]


def test_layers_without_a_rotation():
    config = {"model_type": "llama", "num_hidden_layers": 4, "head_dim": 64, "rope_theta": 1e4}
    for key, value in (("no_rope_layers", [1, 0, 1, 1]), ("layer_rope_theta", [1e4, 0, 1e4, 1e4])):
        found = posenc.layers({**config, key: value})
        assert [layer.pairs for layer in found] == [32, None, 32, 32]
        assert [layer.scale for layer in found] == [1 / 8] * 4
    parts = {SLIDING: {"rope_type": "default", "rope_theta": 1e4}, FULL: None}
    beam = {**config, "layer_types": [SLIDING, FULL] * 2, "sliding_window": 8, "rope_parameters": parts}
    del beam["rope_theta"]
    assert [layer.base for layer in posenc.layers(beam)] == [1e4, None, 1e4, None]


def test_scales_and_caps():
    config = {
        "model_type": "gemma2",
        "num_hidden_layers": 2,
        "head_dim": 256,
        "rope_theta": 1e4,
        "sliding_window": 4096,
    }
    found = posenc.layers({**config, "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0})
    assert [(layer.attention, layer.scale, layer.softcap) for layer in found] == [
        (SLIDING, 1 / 12, 50),
        (FULL, 1 / 12, 50),
    ]
    granite = {"model_type": "granite", "num_hidden_layers": 1, "head_dim": 64, "rope_theta": 1e4}
    assert posenc.layers({**granite, "attention_multiplier": 0.0078125})[0].scale == 0.0078125


LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 128, "rope_theta": 1e4}
YARN4 = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
EXCHANGED = {"beta_fast": 1.0, "beta_slow": 32.0}
BY_TYPE = {SLIDING: {"rope_type": "default", "rope_theta": 1e4}, FULL: {"rope_type": "default", "rope_theta": 1e6}}


@pytest.mark.parametrize(
    ("config", "doubts"),
    [
        (
            {**CONFIGS["gpt-oss"], "rope_parameters": {**GPT_OSS_YARN, **EXCHANGED, "factor": 8.0}},
            ["beta_fast is 1 and beta_slow is 32, exchanged",
             "factor 8 x original_max_position_embeddings 4096 = 32768; max_position_embeddings is 131072"],
        ),
        (
            {"model_type": "qwen3", "num_hidden_layers": 2, "max_position_embeddings": 131072,
             "rope_scaling": {**YARN4, "mscale": 1.0, "mscale_all_dim": 1.0}},
            ["rope_theta has no value; 10000 is the default of model_type 'qwen3'",
             "mscale and mscale_all_dim are both 1 and cancel"],
        ),
        (
            {**LLAMA, "rope_scaling": {**YARN4, "mscale": 0.7, "attention_factor": 1.1}, "attention_chunk_size": 8192,
             "no_rope_layers": [1, 1], "sliding_window": 4096, "layer_types": [FULL, FULL],
             "original_max_position_embeddings": 8192},
            ["mscale is ignored",
             "original_max_position_embeddings 32768 in rope_scaling is ignored, because the config has 8192 outside",
             "sliding_window is ignored", "attention_chunk_size is ignored"],
        ),
        (
            {**LLAMA, "layer_types": [SLIDING, FULL], "rope_parameters": BY_TYPE},
            ["rope_theta outside of rope_parameters is ignored"],
        ),
    ],
    ids=["gpt-oss", "qwen3", "ignored", "by type"],
)  # fmt: skip
def test_wrong_configs(config, doubts, tmp_path, capsys):
    """Each sign is one sentence, and the command prints it below the table."""
    found = read(config, doubts)
    assert all(layer.rotation is not None for layer in found)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert command.main(["config", str(path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.startswith("Probably wrong: ") for line in printed[-len(doubts) :]] == [True] * len(doubts)


def test_exchanged_betas_are_read_in_order():
    wrong = {**CONFIGS["gpt-oss"], "rope_parameters": {**GPT_OSS_YARN, **EXCHANGED}}
    found, right = read(wrong, ["exchanged"]), posenc.layers(CONFIGS["gpt-oss"])
    assert np.array_equal(found[0].rotation.inv_freq, right[0].rotation.inv_freq)
    assert wrong["rope_parameters"]["beta_fast"] == 1.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'; expected a model that rotates"),
        ({"model_type": "llama", "head_dim": 64}, "num_hidden_layers has no value; expected the number of layers"),
        ({**LLAMA, "num_hidden_layers": 2**40}, "num_hidden_layers is 1099511627776; expected at most 65536"),
        ({"model_type": "modernbert", "num_hidden_layers": 2, "head_dim": 64},
         "layer_types has no value; expected the type of each layer"),
        ({"model_type": "gpt_oss", "num_hidden_layers": 2}, "rope_parameters has no value; expected the scaling"),
    ],
)  # fmt: skip
def test_refused(config, message):
    with pytest.raises(ValueError, match=f"^layers: {message}"):
        posenc.layers(config)


def test_table(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIGS["Llama 4"]["text_config"], "num_hidden_layers": 8}))
    assert command.main(["config", str(path)]) == 0
    rows = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == list(Layer._fields)
    assert rows[1:] == [
        ["0-2, 4-6", "chunked_attention", "yes", "500000", "default", "1", "64", "interleaved", "-", "8192", "-", "-",
         "0.0883883"],
        ["3, 7", "full_attention", "none", *"--------", "-", "0.0883883"],
    ]  # fmt: skip
    for file, words in ((tmp_path / "none.json", "no file"), (tmp_path, "no file")):
        with pytest.raises(SystemExit) as stopped:
            command.main(["config", str(file)])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err
