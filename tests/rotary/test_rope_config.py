"""rope_from_config: keys of config.json that it reads, and configs that it refuses."""

import json
import re

import numpy as np
import pytest

import posenc
import posenc.check

SIZES = {"hidden_size": 512, "num_attention_heads": 8}
PLAIN = {**SIZES, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "truncate": False}
GEMMA = {"model_type": "gemma3_text", "head_dim": 64}


def same(config, wanted, **options):
    shown = repr(config)
    found = posenc.rope_from_config(config, **options)
    assert repr(config) == shown
    assert found.inv_freq.tobytes() == wanted.inv_freq.tobytes()
    assert (found.attention_factor, found.softmax_factor) == (wanted.attention_factor, wanted.softmax_factor)


def refused(kind, words, config, **options):
    with pytest.raises(kind) as caught:
        posenc.rope_from_config(config, **options)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert re.fullmatch(r"rope_from_config: \w+ (has|is) .+; expected .+", message), message
    assert all(word in message for word in words), message


# ---- shapes of configs ----


def test_transformers_4_and_5():
    wanted = posenc.rope_frequencies(
        64, base=500000.0, rope_type="yarn", factor=4.0, truncate=False, original_max_position_embeddings=4096
    )
    old = {key: value for key, value in YARN.items() if key != "rope_type"}
    for parts in (
        {"rope_theta": 5e5, "rope_scaling": YARN},
        {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", **old}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", **YARN}},
        {"rope_parameters": {"rope_theta": 5e5, **YARN}},
        {"rope_theta": 5e5, "rope_parameters": YARN, "rope_scaling": None},
        {"rope_theta": 5e5, "rope_parameters": YARN, "rope_scaling": dict(YARN)},
    ):
        same({**SIZES, **parts}, wanted)


def test_no_scaling():
    wanted = posenc.rope_frequencies(64)
    for part in (
        {},
        {"rope_scaling": None},
        {"rope_scaling": {}},
        {"rope_parameters": {"rope_type": "default"}},
        {"rope_scaling": {"type": "default", "factor": None}},
    ):
        same({**PLAIN, **part}, wanted)


def test_layer_types_inside():
    parts = {
        "full_attention": {"rope_theta": 1e6, **YARN},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        "no_rope": None,
    }
    config = {**SIZES, "rope_parameters": parts}
    yarn = {key: value for key, value in YARN.items() if key != "rope_type"}
    same(config, posenc.rope_frequencies(64, base=1e6, rope_type="yarn", **yarn), layer_type="full_attention")
    same(config, posenc.rope_frequencies(64), layer_type="sliding_attention")
    refused(ValueError, ["layer_type is None", "'full_attention', 'sliding_attention'"], config)
    refused(ValueError, ["layer_type", "'x'"], config, layer_type="x")
    refused(ValueError, ["layer_type", "with a rotation"], config, layer_type="no_rope")
    refused(TypeError, ["layer_type", "int"], config, layer_type=0)
    huge = {"rope_parameters": {10**5000: {"rope_type": "default"}}}  # Python prints no more than 4300 digits
    refused(ValueError, ["layer_type is None", "an integer of 16610 bits"], {**PLAIN, **huge})
    refused(
        TypeError,
        ["'factor' beside layer types"],
        {**SIZES, "rope_parameters": {**parts, "factor": 2.0}},
        layer_type="full_attention",
    )


def test_layer_types_of_old_configs():
    scaling = {"rope_type": "linear", "factor": 8.0}
    full = posenc.rope_frequencies(64, base=1e6, rope_type="linear", factor=8.0)
    sliding = posenc.rope_frequencies(64, base=1e4)
    for config in (
        {**GEMMA, "rope_scaling": scaling},
        {"head_dim": 64, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": scaling},
    ):
        same(config, full, layer_type="full_attention")
        same(config, sliding, layer_type="sliding_attention")
        refused(ValueError, ["layer_type"], config)
    modern = {"model_type": "modernbert", **SIZES, "global_rope_theta": 1e5, "local_rope_theta": 2e4}
    same(modern, posenc.rope_frequencies(64, base=1e5), layer_type="full_attention")
    same(modern, posenc.rope_frequencies(64, base=2e4), layer_type="sliding_attention")
    olmo = {"model_type": "olmo3", **SIZES, "rope_scaling": scaling}
    same(olmo, posenc.rope_frequencies(64, base=5e5, rope_type="linear", factor=8.0), layer_type="full_attention")
    same(olmo, posenc.rope_frequencies(64, base=5e5), layer_type="sliding_attention")


def test_one_rotation_for_all_layers():
    refused(ValueError, ["layer_type", "expected None"], PLAIN, layer_type="full_attention")
    config = {**PLAIN, "layer_types": ["full_attention", "sliding_attention"]}
    same(config, posenc.rope_frequencies(64), layer_type="sliding_attention")


# ---- names ----


def test_old_names_of_types():
    lists = {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    lengths = {"original_max_position_embeddings": 4096, "max_position_embeddings": 131072}
    wanted = posenc.rope_frequencies(64, rope_type="longrope", seq_len=5000, **lists, **lengths)
    for name in ("longrope", "su", "yarn"):
        same({**PLAIN, **lengths, "rope_scaling": {"type": name, **lists}}, wanted, seq_len=5000)
    sections = {"mrope_section": [8, 12, 12], "mrope_interleaved": True}
    for names in ({"type": "mrope"}, {"type": "mrope", "rope_type": "default"}, {"rope_type": "default"}, {}):
        same({**PLAIN, "rope_scaling": {**names, **sections}}, posenc.rope_frequencies(64))
    yarn = {"factor": 4.0, "original_max_position_embeddings": 4096, "mscale": 0.7}
    wanted = posenc.rope_frequencies(64, rope_type="yarn", **yarn)
    same({**PLAIN, "rope_scaling": {"type": "deepseek_yarn", **yarn}}, wanted)


def test_names_of_models():
    neox = {"model_type": "gpt_neox", **SIZES, "rotary_pct": 0.5, "rotary_emb_base": 5000}
    same(neox, posenc.rope_frequencies(32, base=5000))
    gptj = {"model_type": "gptj", "n_embd": 512, "n_head": 8, "n_positions": 2048, "rotary_dim": 32}
    same(gptj, posenc.rope_frequencies(32))
    dynamic = {"rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    wanted = posenc.rope_frequencies(32, rope_type="dynamic", factor=2.0, seq_len=4096, max_position_embeddings=2048)
    same({**gptj, **dynamic}, wanted, seq_len=4096)


def test_lengths():
    """One of the two length keys replaces the other, as in transformers. If both are present and differ, the outer one
    counts."""
    linear = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0}
    llama = {**PLAIN, "rope_scaling": {"rope_type": "llama3", **linear}}
    wanted = posenc.rope_frequencies(64, rope_type="llama3", original_max_position_embeddings=4096, **linear)
    same({**llama, "max_position_embeddings": 4096}, wanted)
    same({**llama, "original_max_position_embeddings": 4096, "max_position_embeddings": 32768}, wanted)
    refused(ValueError, ["original_max_position_embeddings", "llama3"], llama)
    lists = {"type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    phi3 = {"model_type": "phi3", **SIZES, "max_position_embeddings": 131072, "rope_scaling": lists}
    assert posenc.rope_from_config(phi3).attention_factor == np.sqrt(1 + np.log(32) / np.log(4096))


# ---- widths ----


@pytest.mark.parametrize(
    ("part", "width"),
    [
        ({}, 64),
        ({"head_dim": 128}, 128),
        ({"kv_channels": 128}, 128),
        ({"partial_rotary_factor": 0.5}, 32),
        ({"rotary_pct": 0.25}, 16),
        ({"rotary_emb_fraction": 0.75}, 48),
        ({"partial_rotary_factors": [0.5, 0.5]}, 32),
        ({"head_dim": 96, "partial_rotary_factor": 0.75}, 72),
        ({"rotary_dim": 24}, 24),
        ({"rotary_dim": 32, "partial_rotary_factor": 0.5}, 32),
        ({"qk_rope_head_dim": 32}, 32),
        ({"qk_rope_head_dim": 64, "head_dim": 512, "partial_rotary_factor": 0.125}, 64),
        ({"qk_rope_head_dim": 64, "head_dim": 64, "partial_rotary_factor": 0.5}, 32),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, 32),
        ({"model_type": "phi"}, 32),
        ({"model_type": "phi", "partial_rotary_factor": 1.0}, 64),
        ({"model_type": "gemma"}, 256),
        ({"model_type": "deepseek_v3"}, 64),
        ({"head_dim": 192, "partial_rotary_factor": 0.334}, 64),
    ],
)
def test_width(part, width):
    assert 2 * len(posenc.rope_from_config({**PLAIN, **part}).inv_freq) == width


def test_gemma_4():
    """Full-attention layers have wider heads, of which only some channels are rotated; version 5 writes their width per
    layer."""
    parts = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    wide = posenc.rope_frequencies(512, base=1e6, rope_type="proportional", partial_rotary_factor=0.25)
    kinds = ["sliding_attention", "full_attention"]
    for more in ({"global_head_dim": 512}, {"layer_types": kinds, "per_layer_config": {"01": {"head_dim": 512}}}):
        config = {"model_type": "gemma4_text", "head_dim": 256, "rope_parameters": parts, **more}
        same(config, wide, layer_type="full_attention")
        same(config, posenc.rope_frequencies(256), layer_type="sliding_attention")
    two = {"layer_types": kinds * 2, "per_layer_config": {"1": {"head_dim": 512}, "3": {"head_dim": 128}}}
    config = {"head_dim": 256, "rope_parameters": parts, **two}
    refused(ValueError, ["per_layer_config", "several widths"], config, layer_type="full_attention")
    for wrong in ([], 512, "wide"):
        config["per_layer_config"] = {"1": wrong}
        refused(TypeError, ["per_layer_config", type(wrong).__name__], config, layer_type="full_attention")


# ---- refused configs ----


REFUSED = [
    (TypeError, ["config", "a dict"], [("rope_theta", 1e4)]), (TypeError, ["config has type", "to_dict()"], None),
    (TypeError, ["rope_scaling", "list", "a dict"], {**PLAIN, "rope_scaling": [1]}),
    (TypeError, ["rope_parameters", "str"], {**PLAIN, "rope_parameters": "yarn"}),
    (TypeError, ["config", "key of type int"], {**PLAIN, 3: 4}),
    # missing keys
    (ValueError, ["rope_theta", "None"], SIZES),
    (ValueError, ["rope_theta", "'mine'"], {**SIZES, "model_type": "mine"}),
    (ValueError, ["head_dim", "hidden_size"], {"rope_theta": 1e4}),
    (ValueError, ["head_dim", "num_attention_heads"], {"rope_theta": 1e4, "hidden_size": 512}),
    (ValueError, ["factor", "'linear'"], {**PLAIN, "rope_scaling": {"type": "linear"}}),
    (ValueError, ["rope_type", "no value"], {**PLAIN, "rope_scaling": {"factor": 2.0}}),
    (ValueError, ["rope_parameters", "'gpt_oss'"], {**PLAIN, "model_type": "gpt_oss"}),
    # contradictions
    (ValueError, ["rope_theta", "10000.0", "500000.0"], {**PLAIN, "rope_parameters": {"rope_theta": 500000.0}}),
    (ValueError, ["rope_parameters and rope_scaling"],
     {**PLAIN, "rope_parameters": YARN, "rope_scaling": {**YARN, "factor": 2.0}}),
    (ValueError, ["rope_type", "'linear' and 'yarn'"],
     {**PLAIN, "rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2.0}}),
    (ValueError, ["partial_rotary_factor", "0.5", "0.25"], {**PLAIN, "partial_rotary_factor": 0.5, "rotary_pct": 0.25}),
    (ValueError, ["partial_rotary_factor", "0.5", "0.25"],
     {**PLAIN, "partial_rotary_factors": [0.5, 0.5], "rotary_emb_fraction": 0.25}),
    (ValueError, ["rope_theta has values 10000.0, 50000.0", "layer_type"],
     {**SIZES, "rope_parameters": {"rope_theta": [5e4, 1e4]}}),
    (ValueError, ["rotary_dim is 64", "partial_rotary_factor"], {"model_type": "minimax_m3_vl_text", "rotary_dim": 64}),
    (ValueError, ["rotary_dim", "24"], {**PLAIN, "rotary_dim": 24, "partial_rotary_factor": 0.5}),
    (ValueError, ["qk_rope_head_dim"],
     {**PLAIN, "qk_rope_head_dim": 64, "head_dim": 512, "partial_rotary_factor": 0.5}),
    # values
    (TypeError, ["rope_theta", "a number"], {**SIZES, "rope_theta": "1e4"}),
    (TypeError, ["rotary_emb_interleaved", "True or False"], {**PLAIN, "rotary_emb_interleaved": 1}),
    (TypeError, ["yarn_only_types", "a list"], {**PLAIN, "yarn_only_types": "full_attention"}),
    (ValueError, ["rope_theta", "positive"], {**SIZES, "rotary_emb_base": 0}),
    (ValueError, ["partial_rotary_factor", "at most 1"], {**PLAIN, "partial_rotary_factor": 0.0}),
    (ValueError, ["partial_rotary_factor", "at most 1"], {**PLAIN, "partial_rotary_factor": 1.5}),
    (TypeError, ["partial_rotary_factor"], {**PLAIN, "partial_rotary_factor": "0.5"}),
    (ValueError, ["partial_rotary_factor", "not 21"], {**PLAIN, "partial_rotary_factor": 0.334}),
    (ValueError, ["head_dim", "63", "even"], {**PLAIN, "head_dim": 63}),
    (TypeError, ["head_dim", "an integer"], {**PLAIN, "head_dim": 64.0}),
    (ValueError, ["hidden_size", "multiple"], {**PLAIN, "num_attention_heads": 7}),
    (TypeError, ["rope_type", "int"], {**PLAIN, "rope_scaling": {"rope_type": 3}}),
    (ValueError, ["rope_type", "'axial'"], {**PLAIN, "rope_scaling": {"rope_type": "axial"}}),
    (ValueError, ["factor", "0.5", "at least 1"], {**PLAIN, "rope_scaling": {"type": "linear", "factor": 0.5}}),
    (TypeError, ["max_position_embeddings", "str"],
     {**PLAIN, "rope_scaling": YARN, "max_position_embeddings": "any"}),
    (ValueError, ["rotary_dim", "null"], {"model_type": "gptj", "n_embd": 512, "n_head": 8, "rotary_dim": None}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "words", "config"), REFUSED)
def test_refused(kind, words, config):
    refused(kind, words, config)


def test_refused_options():
    refused(TypeError, ["seq_len"], PLAIN, seq_len=2.0)
    refused(ValueError, ["layer_type"], {**PLAIN, "layer_types": 5}, layer_type="full_attention")


@pytest.mark.parametrize("key", ["head_dim", "rotary_dim", "qk_rope_head_dim", "hidden_size"])
def test_widths_that_no_model_has(key):
    """2e6 channels took seconds, and 2e7 did not end."""
    widest = {"rope_theta": 1e4, "num_attention_heads": 1, key: 65536}
    assert len(posenc.rope_from_config(widest).inv_freq) == 32768
    for width in (65538, 10**12):
        words = [f"is {width}", f"at most 65536 rotated channels, not {width}"]
        refused(ValueError, words, {**widest, key: width})
    halved = {**widest, "head_dim": 10**6, "partial_rotary_factor": 0.5}
    if key == "head_dim":
        refused(ValueError, ["partial_rotary_factor is 0.5", "not 500000"], halved)


def test_configs_that_are_too_deep():
    deep = {"model_type": "llama", "head_dim": 64}
    for _ in range(10_000):
        deep = {"text_config": deep}
    refused(ValueError, ["config", "more nested dicts than"], deep)
    refused(ValueError, ["config", "more nested dicts than"], '{"text_config": ' * 100_000 + "{}" + "}" * 100_000)


@pytest.mark.parametrize(
    "key",
    [
        "rope_ratio",
        "rope_type",
        "rope_pct",
        "rotary_percentage",
        "use_dynamic_ntk",
        "rotary_scaling_factor",
        "rope_scaling_factor",
        "yarn_factor",
    ],
)
def test_unknown_keys_of_the_rope_part(key):
    refused(TypeError, ["config", repr(key)], {**PLAIN, key: 2.0})
    same({**PLAIN, key: None}, posenc.rope_frequencies(64))


def test_unknown_keys_of_a_scaling():
    for kind in ("default", "linear", "dynamic", "yarn"):
        scaling = {"type": kind, "alpha": 1000.0, **({} if kind == "default" else {"factor": 2.0})}
        config = {**PLAIN, "max_position_embeddings": 4096, "rope_scaling": scaling}
        refused(TypeError, ["config", "'alpha'", kind], config)


def test_the_rest_is_not_read():
    rest = {"vocab_size": "many", "no_rope_layers": [1, 0], "torch_dtype": object(), "rope_interleave": True, "x": 3,
            "max_position_embeddings": "any", "n_positions": -1, "layer_types": 5, "per_layer_config": 6}  # fmt: skip
    same({**PLAIN, **rest}, posenc.rope_frequencies(64))
    yarn = {key: value for key, value in YARN.items() if key != "rope_type"}
    scaling = {**YARN, "llama_4_scaling_beta": 0.1, "mrope_section": [8, 12, 12]}
    same({**PLAIN, "rope_scaling": scaling}, posenc.rope_frequencies(64, rope_type="yarn", **yarn))


# ---- paths, parts, layouts ----


def test_paths(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**PLAIN, "model_type": "llama"}), "utf-8")
    same(path, posenc.rope_frequencies(64))
    same(str(path), posenc.rope_frequencies(64))
    path.write_bytes(b"\xff\xfe not JSON")
    refused(ValueError, ["config", "no JSON", "config.json"], path)
    path.write_text("[1, 2]", "utf-8")
    refused(TypeError, ["config", "type list"], path)
    for name in (tmp_path / "other.json", "meta-llama/Llama-3.1-8B", str(tmp_path)):
        refused(FileNotFoundError, [f"config is {str(name)!r}, which is no file", "from_pretrained"], name)


def test_text_and_objects():
    llama = {**PLAIN, "model_type": "llama"}

    class Config:
        def to_dict(self):
            return llama

    for config in (json.dumps(llama), "\n" + json.dumps(llama, indent=2), Config()):
        same(config, posenc.rope_frequencies(64))
        assert posenc.rope_from_config(config).layout == "half"
    refused(ValueError, ["config", "no JSON at its text"], '{"rope_theta": 1e4')


def test_the_first_channels_are_rotated_unless_attention_is_latent():
    assert posenc.rope_from_config({**PLAIN, "model_type": "llama"}).rotary_dim == 64
    assert posenc.rope_from_config({**SIZES, "model_type": "gpt_neox"}).rotary_dim == 16
    latent = posenc.rope_from_config({"model_type": "deepseek_v3", "qk_rope_head_dim": 32, "head_dim": 96})
    assert (latent.rotary_dim, len(latent), latent.layout) == (None, 16, "interleaved")
    last = {"model_type": "deepseek_v4", "head_dim": 512, "partial_rotary_factor": 0.125, "rope_theta": 1e4}
    assert (posenc.rope_from_config(last).rotary_dim, len(posenc.rope_from_config(last))) == (None, 32)


def test_parts_for_text():
    wanted = posenc.rope_frequencies(64)
    text = {"model_type": "mine", **PLAIN}
    vision = {"model_type": "pixtral", "rope_theta": 1.0}
    same({"model_type": "vlm", "text_config": text, "vision_config": vision}, wanted)
    same({"thinker_config": {"text_config": text, "audio_config": {}}, "talker_config": text}, wanted)
    same({"rope_theta": 1200.0, "text_config": text}, wanted)  # a time embedding of the whole
    same({**text, "text_config": {}, "text_encoder": None, "vision_config": vision}, wanted)
    same({"encoder_config": {"model_type": "llama", **SIZES}, "sizes": [1]}, wanted)
    two = {name: {"model_type": "llama", **SIZES} for name in ("encoder", "decoder")}
    refused(ValueError, ["2 parts", "one of config['encoder'], config['decoder']"], two)
    other = {"encoder_config": {"model_type": "parakeet_encoder"}}
    refused(ValueError, ["'parakeet_encoder'", "transformer_xl"], other)
    refused(ValueError, ["rope_theta", "no known default"], {"text_config": SIZES})


def test_a_part_may_omit_its_sizes_and_its_name():
    qwen = {"model_type": "qwen2_vl", "vision_config": {"depth": 32}}
    wanted = posenc.rope_frequencies(128, base=1e6)
    same({**qwen, "text_config": {"num_hidden_layers": 80}}, wanted)
    same({**qwen, "hidden_size": 8192, "num_attention_heads": 64}, wanted)
    assert posenc.rope_from_config({"text_config": {"model_type": "llama"}}).layout == "half"
    refused(ValueError, ["head_dim", "hidden_size"], {"model_type": "llama"})


def test_layouts():
    layouts = {"llama": "half", "gptj": "interleaved", "deepseek_v3": "interleaved", "cohere": "interleaved"}
    for model_type, layout in layouts.items():
        assert posenc.rope_from_config({**PLAIN, "model_type": model_type}).layout == layout
    swapped = {**PLAIN, "model_type": "deepseek_v3", "rope_interleave": False}
    assert posenc.rope_from_config(swapped).layout == "half"
    for unknown in (PLAIN, {**PLAIN, "model_type": "mine"}, {**PLAIN, "model_type": 3}):
        w = posenc.rope_from_config(unknown)
        assert (w.layout, w.rotary_dim) == (None, 64)


def test_nanochat_rotates_backwards():
    w = posenc.rope_from_config({**PLAIN, "model_type": "nanochat"})
    assert (w.inv_freq == -posenc.rope_frequencies(64).inv_freq).all()
    x = np.random.default_rng(0).standard_normal((3, 64))
    backwards = posenc.rope(x, 3, posenc.rope_frequencies(64), layout="half", inverse=True)
    np.testing.assert_array_equal(posenc.rope(x, 3, w, layout="half"), backwards)


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("bloom", ["linear in the distance", "alibi"]),
        ("mamba", ["recurrence"]),
        ("dinov3_vit", ["patches", "rope_nd"]),
        ("clvp_encoder", ["rotates v"]),
        ("esmfold2", ["atoms"]),
        ("wav2vec2-bert", ["before their projection"]),
        ("mistral_large4_text", ["a factor that is a weight"]),
    ],
)
def test_models_without_such_a_rotation(model_type, words):
    refused(ValueError, [f"model_type is {model_type!r}", *words], {**PLAIN, "model_type": model_type})


def test_models_that_rotate_only_if_a_key_says_so():
    for model_type, key, wanted, other in (
        ("esm", "position_embedding_type", "rotary", "absolute"),
        ("zamba2", "use_mem_rope", True, False),
        ("granitemoehybrid", "position_embedding_type", "rope", "nope"),
        ("falcon", "alibi", False, True),
        ("roformer", "rotary_value", False, True),
    ):
        config = {**PLAIN, "model_type": model_type}
        same({**config, key: wanted}, posenc.rope_frequencies(64))
        refused(ValueError, [key, str(other), repr(wanted), model_type], {**config, key: other})
    refused(ValueError, ["position_embedding_type is None", "'rope'"], {**PLAIN, "model_type": "granitemoehybrid"})
    same({**PLAIN, "model_type": "falcon"}, posenc.rope_frequencies(64))


def test_bases_by_the_index_of_the_layer():
    config = {**PLAIN, "layer_types": ["sliding", "full", "none", "mixed", "mixed"]}
    config["layer_rope_theta"] = [1e4, 1e6, 0, 1e4, 0]
    same(config, posenc.rope_frequencies(64), layer_type="sliding")
    same(config, posenc.rope_frequencies(64, base=1e6), layer_type="full")
    same(config, posenc.rope_frequencies(64), layer_type="mixed")
    refused(ValueError, ["layer_rope_theta", "no value above 0"], config, layer_type="none")
    refused(ValueError, ["layer_rope_theta", "values 10000.0, 1000000.0", "layer_type"], config)
    refused(TypeError, ["layer_rope_theta", "list"], {**PLAIN, "layer_rope_theta": [[1e4]]})
    same({**PLAIN, "layer_rope_theta": [0, 5e5, 5e5]}, posenc.rope_frequencies(64, base=5e5))


def test_scaling_of_some_layers():
    layers = {**PLAIN, "rope_scaling_layers": [0, 2]}
    same(layers, posenc.rope_frequencies(64))
    scaled = {**layers, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    same(scaled, posenc.rope_frequencies(64, rope_type="linear", factor=2.0), layer_type="scaled")
    same(scaled, posenc.rope_frequencies(64), layer_type="unscaled")
    refused(ValueError, ["layer_type", "'scaled', 'unscaled'"], scaled)


def test_deepseek_v4():
    """Layers that compress keys have a base of their own, and YaRN without its attention factor."""
    config = {
        "model_type": "deepseek_v4",
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "rope_theta": 1e4,
        "compress_rope_theta": 1.6e5,
        "rope_scaling": {**YARN, "factor": 16.0},
    }
    keys = {key: value for key, value in YARN.items() if key != "rope_type"} | {"factor": 16.0}
    yarn = posenc.rope_frequencies(64, base=1.6e5, rope_type="yarn", attention_factor=1.0, **keys)
    same(config, yarn, layer_type="compress")
    same(config, posenc.rope_frequencies(64), layer_type="main")
    del config["rope_scaling"]
    same(config, posenc.rope_frequencies(64, base=1.6e5), layer_type="compress")


CONFIGS = json.loads("""{
    "MiMo-V2-Flash": {"model_type": "mimo_v2_flash", "head_dim": 192, "swa_head_dim": 192, "rope_theta": 5000000,
        "partial_rotary_factor": 0.334, "swa_rope_theta": 10000, "hybrid_layer_pattern": [0, 1, 1]},
    "Step-3.5-Flash": {"model_type": "step3p5", "head_dim": 128, "rope_theta": [5000000.0, 10000.0, 10000.0],
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "partial_rotary_factors": [0.5, 1.0, 1.0], "yarn_only_types": ["full_attention"],
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 32.0,
            "original_max_position_embeddings": 131072}},
    "nomic-embed-text-v1.5": {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false, "rotary_emb_scale_base": null,
        "rotary_scaling_factor": null},
    "HunyuanOCR": {"model_type": "hunyuan_vl", "attention_head_dim": 128, "rope_theta": 10000.0,
        "max_position_embeddings": 32768, "vision_config": {"hidden_size": 1152},
        "rope_scaling": {"type": "xdrope", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
            "mscale": 1.0, "mscale_all_dim": 1.0, "xdrope_section": [16, 16, 16, 16]}},
    "Kimi K2": {"model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rope_theta": 50000.0, "max_position_embeddings": 131072,
        "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}},
    "DeepSeek-R1-0528-Qwen3-8B": {"model_type": "qwen3", "rope_theta": 1000000, "rope_scaling": {"rope_type": "yarn",
        "factor": 4.0, "original_max_position_embeddings": 32768, "attn_factor": 0.8782488562869419}},
    "DeepSeek-V4.1-Flash": {"model_type": "deepseek_v41", "text_config": {"model_type": "deepseek_v41_text",
        "head_dim": 512, "qk_rope_head_dim": 64, "rope_theta": 10000, "compress_rope_theta": 160000,
        "rope_scaling": {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
            "beta_fast": 32, "beta_slow": 1}}}
}""")
"""The rotary keys of the config.json of published checkpoints, restated."""


def assert_powers(w, base, pairs):
    """The frequencies are base**(-k / pairs), the attention factor is 1."""
    assert w.inv_freq.tolist() == pytest.approx([base ** (-k / pairs) for k in range(pairs)], rel=1e-14)
    assert w.attention_factor == 1.0


def test_mimo_v2():
    """int(0.334 * 192) = 64 of 192 channels rotate, and sliding layers have a base and a head of their own."""
    config = CONFIGS["MiMo-V2-Flash"]
    inside = {key: config[key] for key in ("rope_theta", "partial_rotary_factor")}
    outside = {key: value for key, value in config.items() if key not in inside}
    for written in (config, {**config, "rope_parameters": inside}, {**outside, "rope_parameters": inside}):
        for layer_type, base in (("full_attention", 5e6), ("sliding_attention", 1e4)):
            w = posenc.rope_from_config(written, layer_type=layer_type)
            assert (w.rotary_dim, w.layout) == (64, "half")
            assert_powers(w, base, 32)
    refused(ValueError, ["layer_type is None", "'sliding_attention'"], config)
    narrow = posenc.rope_from_config({**config, "swa_head_dim": 128}, layer_type="sliding_attention")
    assert narrow.rotary_dim == 42  # int(0.334 * 128)
    latent = {"rope_theta": 8e7, "swa_rope_theta": 5e4, "qk_rope_head_dim": 64, "swa_qk_rope_head_dim": 32}
    assert_powers(posenc.rope_from_config(latent, layer_type="sliding_attention"), 5e4, 16)
    assert_powers(posenc.rope_from_config(latent, layer_type="full_attention"), 8e7, 32)


def test_step_3_5():
    """Lists by the layer's index, and a scaling of the types in yarn_only_types."""
    config = CONFIGS["Step-3.5-Flash"]
    full = posenc.rope_from_config(config, layer_type="full_attention")
    assert (full.rotary_dim, full.inv_freq[0]) == (64, 1.0)
    assert full.inv_freq[-1] == pytest.approx(5e6 ** (-31 / 32) / 2, rel=1e-14)
    assert_powers(posenc.rope_from_config(config, layer_type="sliding_attention"), 1e4, 64)
    one_base = {"rope_theta": 5e4, "rope_type": "linear", "factor": 2.0}
    one = {**SIZES, "rope_parameters": one_base, "yarn_only_types": ["full_attention"]}
    assert_powers(posenc.rope_from_config(one, layer_type="sliding_attention"), 5e4, 32)
    listed = {**SIZES, "rope_theta": [1e4, 10000]}
    assert posenc.check.frequencies([1e4 ** (-k / 32) for k in range(32)], listed)


def test_nomic():
    config = CONFIGS["nomic-embed-text-v1.5"]
    w = posenc.rope_from_config(config)
    assert (w.rotary_dim, w.layout) == (64, "half")
    assert_powers(w, 1000.0, 32)
    assert posenc.rope_from_config({**config, "rotary_emb_interleaved": True}).layout == "interleaved"
    refused(ValueError, ["partial_rotary_factor is 0.0"], {**config, "rotary_emb_fraction": 0.0})


def test_xdrope_of_hunyuan_ocr():
    """The base is 1e4 * 1000**(128/126) = 11158839.9 at any length: w_k = 10**(-k/16) * 10**(-k/21)."""
    config = CONFIGS["HunyuanOCR"]
    for seq_len in (None, 10**5):
        w = posenc.rope_from_config(config, seq_len=seq_len)
        assert w.inv_freq.tolist() == pytest.approx([10 ** (-k / 16 - k / 21) for k in range(64)], rel=1e-13)
        assert (w.attention_factor, w.softmax_factor, w.layout, w.rotary_dim) == (1.0, 1.0, "half", 128)
    assert w.inv_freq[1] ** -64 == pytest.approx(11158839.9, rel=1e-8)
    scaling = {**config["rope_scaling"], "alpha": None}
    refused(ValueError, ["rope_type is 'xdrope'"], {**config, "rope_scaling": scaling})


@pytest.mark.parametrize("truncate", [True, False])
def test_kimi_k2(truncate):
    """A step instead of a ramp: the 20 pairs with a whole rotation within 4096 positions are kept, 12 divided by 32.

    bridges/tests/checkpoints.py compares with transformers.
    """
    kimi = CONFIGS["Kimi K2"]
    config = {**kimi, "rope_scaling": {**kimi["rope_scaling"], "truncate": truncate}}
    plain = 5e4 ** (-np.arange(32) / 32)
    kept = 4096 * plain / (2 * np.pi) >= 1
    assert kept.tolist() == [True] * 20 + [False] * 12
    w = posenc.rope_from_config(config)
    np.testing.assert_allclose(w.inv_freq, np.where(kept, plain, plain / 32), rtol=1e-14)
    assert (w.attention_factor, w.layout, w.rotary_dim) == (1.0, "interleaved", None)
    assert w.softmax_factor == pytest.approx((0.1 * np.log(32) + 1) ** 2, rel=1e-14)
    assert posenc.check.frequencies((w.inv_freq, 1.0), config)
    assert posenc.check.frequencies((plain, 1.0), config).causes[0].name == "scaling ignored"


def test_attn_factor_of_deepseek_r1():
    """0.8782 is 1 / (0.1 ln 4 + 1): the factor is 0.8782 or the product, 1. The config does not say which."""
    config = {**SIZES, **CONFIGS["DeepSeek-R1-0528-Qwen3-8B"]}
    words = ["config has 'attn_factor'", "attention_factor", "replaces 0.1 ln(factor) + 1", "the product of both"]
    refused(TypeError, words, config)
    scaling = {key: value for key, value in config["rope_scaling"].items() if key != "attn_factor"}
    default = posenc.rope_from_config({**config, "rope_scaling": scaling}).attention_factor
    assert default * 0.8782488562869419 == pytest.approx(1.0, rel=1e-15)
    linear = {"rope_type": "linear", "factor": 2.0, "attn_factor": 1.0}
    refused(TypeError, ["only the keys of rope_type 'linear'"], {**config, "rope_scaling": linear})


@pytest.mark.parametrize(
    ("key", "values", "neutral"),
    [
        ("use_nope", [True, 1, 0], [False, None]),
        ("mla_use_nope", [True], [False, None]),
        ("nope_layer_interval", [4, 0], [None]),
        ("my_NoPE_layers", [[], [3], False, "all"], [None]),
        ("position_embedding_type", ["nope", "NoPE"], ["rope", "rotary", None]),
        ("no_rope_layers", [[0], [0, 0, 0], [False, False]], [[], [0, 1], [1], None]),
        ("no_rope_layer_interval", [1], [4, None]),
        ("use_rope_layers", [[False, False]], [[True, False], []]),
        ("use_rope", [False], [True, None]),
        ("use_rotary_embedding", [False], [True]),
        ("rotary", [False], [True]),
        ("qk_nope_head_dim", [], [128, None]),
    ],
)
def test_layers_without_a_rotation(key, values, neutral):
    for value in values:
        for config in (PLAIN, {**PLAIN, "model_type": "llama"}):
            refused(ValueError, [f"{key} is", "a model that rotates q and k", "NoPE"], {**config, key: value})
    for value in neutral:
        same({**PLAIN, key: value}, posenc.rope_frequencies(64))
    same({**PLAIN, "no_rope_layer_interval": 1, "no_rope_layers": [1, 0]}, posenc.rope_frequencies(64))


def test_kimi_linear():
    """huggingface/transformers#48250: its latent attention has no positions, whatever mla_use_nope is."""
    for more in ({}, {"mla_use_nope": True}, {"mla_use_nope": False}):
        config = {"model_type": "kimi_linear", "qk_rope_head_dim": 64, "rope_theta": 1e4, **more}
        refused(ValueError, ["model_type is 'kimi_linear'", "recurrence"], config)


def test_models_without_a_class_in_transformers():
    """The layouts are those of the code that models.json names."""
    kimi = CONFIGS["Kimi K2"]
    unnamed = {key: value for key, value in kimi.items() if key not in ("model_type", "qk_rope_head_dim")}
    for part in ({"text_config": kimi}, {"text_config": unnamed}, unnamed):
        w = posenc.rope_from_config({"model_type": "kimi_k25", **part})
        assert (w.layout, w.rotary_dim) == ("interleaved", None)
        assert w.inv_freq.tobytes() == posenc.rope_from_config(kimi).inv_freq.tobytes()
    ling = {"model_type": "bailing_moe_v2", "head_dim": 128, "partial_rotary_factor": 0.5, "rope_theta": 6e5}
    w = posenc.rope_from_config(ling)
    assert (w.layout, w.rotary_dim) == ("half", 64)
    assert_powers(w, 6e5, 32)
    mimo = {**CONFIGS["MiMo-V2-Flash"], "model_type": "mimo_v2"}
    assert posenc.rope_from_config(mimo, layer_type="sliding_attention").layout == "half"


@pytest.mark.parametrize("left_out", ["nothing", "model_type", "head_dim", "qk_rope_head_dim"])
def test_deepseek_v4_1(left_out):
    """As DeepSeek-V4: pairs side by side in the last 64 channels, two bases, and YaRN without an attention factor."""
    whole = CONFIGS["DeepSeek-V4.1-Flash"]
    text = {key: value for key, value in whole["text_config"].items() if key != left_out}
    main, compress = (
        posenc.rope_from_config({**whole, "text_config": text}, layer_type=t) for t in ("main", "compress")
    )
    assert_powers(main, 1e4, 32)
    assert compress.inv_freq[-1] == pytest.approx(1.6e5 ** (-31 / 32) / 16, rel=1e-14)
    assert (compress.attention_factor, compress.layout, compress.rotary_dim) == (1.0, "interleaved", None)


def test_alpha_of_hunyuan():
    """A base that is larger at any length; transformers reads no other key of the scaling."""
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "mscale": 1.0}
    config = {**PLAIN, "model_type": "hunyuan_v1_dense", "max_position_embeddings": 4096, "rope_scaling": scaling}
    same(config, posenc.rope_frequencies(64, rope_type="ntk", factor=1000.0), seq_len=10**5)
    dynamic = {"type": "dynamic", "factor": 2.0}
    same({**config, "rope_scaling": {**dynamic, "alpha": None}}, posenc.rope_frequencies(64))
    refused(TypeError, ["'alpha'", "dynamic"], {**config, "model_type": "llama"})
