"""Scaled rotary frequencies: refused keys, properties of each type, and far positions."""

import copy
import dataclasses
import pickle
import re

import numpy as np
import pytest

import posenc

L = {"original_max_position_embeddings": 8192}
TYPES = {
    "default": {}, "linear": {"factor": 4.0}, "ntk": {"factor": 4.0},
    "dynamic": {"factor": 4.0, "max_position_embeddings": 8192},
    "ntk_by_parts": {"factor": 4.0, **L}, "yarn": {"factor": 4.0, **L},
    "longrope": {"factor": 4.0, "short_factor": [1.0 + i / 64 for i in range(64)],
                 "long_factor": [1.0 + i for i in range(64)], **L},
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **L},
    "proportional": {"partial_rotary_factor": 0.5}, "ntk_mixed": {"factor": 4.0},
}  # fmt: skip
"""The keys that each type needs."""
OPTIONAL = {
    "ntk_by_parts": {"beta_fast", "beta_slow"},
    "longrope": {"attention_factor"},
    "ntk_mixed": {"b"},
    "yarn": {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"},
    "proportional": {"partial_rotary_factor", "factor"},
}
"""The keys that it knows beside them."""
LENGTHS = {"max_position_embeddings", "original_max_position_embeddings"}


def factors(w):
    return w.attention_factor, w.softmax_factor


def scaled(rope_type, dim=128, **options):
    return posenc.rope_frequencies(dim, rope_type=rope_type, **{**TYPES[rope_type], **options})


# ---- refused keys and values ----


def refused(kind, words, call, *arguments, **options):
    """Assert that `kind` is raised with a message of the common form that contains all of `words`."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert re.fullmatch(r"rope_\w+: \w+ (has|is) .+; expected .+", message), message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("rope_type", TYPES)
def test_a_key_that_the_type_does_not_know(rope_type):
    every = {key for keys in (*TYPES.values(), *OPTIONAL.values()) for key in keys} | {"alpha", "type"}
    for key in every - LENGTHS - set(TYPES[rope_type]) - OPTIONAL.get(rope_type, set()):
        for value in (1.0, None):
            refused(TypeError, ["keys", repr(key), repr(rope_type)], scaled, rope_type, **{key: value})
    assert scaled(rope_type, max_position_embeddings=8192, original_max_position_embeddings=8192)


@pytest.mark.parametrize("rope_type", TYPES)
def test_a_missing_key(rope_type):
    for key in TYPES[rope_type]:
        if key not in OPTIONAL.get(rope_type, ()):
            refused(ValueError, [key, "no value", rope_type], scaled, rope_type, **{key: None})


@pytest.mark.parametrize("rope_type", [name for name, keys in TYPES.items() if "factor" in keys])
def test_a_factor_that_is_none(rope_type):
    refused(ValueError, ["factor", "at least 1"], scaled, rope_type, factor=0.9999999)
    refused(ValueError, ["factor", "finite number"], scaled, rope_type, factor=np.nan)
    refused(TypeError, ["factor", "number"], scaled, rope_type, factor="4")
    assert scaled(rope_type, factor=1)
    assert scaled(rope_type, factor=np.int64(4)).inv_freq.tolist() == scaled(rope_type).inv_freq.tolist()


def test_widths_and_names():
    for bad in (63, 1):
        refused(ValueError, ["dim", str(bad), "even" if bad > 1 else "at least 2"], posenc.rope_frequencies, bad)
    refused(TypeError, ["dim", "an integer"], posenc.rope_frequencies, 64.0)
    refused(ValueError, ["dim", "at least 4"], scaled, "ntk", 2)
    refused(ValueError, ["dim", "at least 4"], scaled, "dynamic", 2)
    for bad in ("su", None, ["yarn"]):
        refused(ValueError, ["rope_type", "'yarn'"], posenc.rope_frequencies, 64, rope_type=bad)
    refused(ValueError, ["base"], posenc.rope_frequencies, 64, base=0)
    refused(ValueError, ["base", "more than 1"], scaled, "yarn", base=1.0)
    refused(TypeError, ["seq_len"], scaled, "dynamic", seq_len=1.5)
    refused(ValueError, ["seq_len"], scaled, "dynamic", seq_len=-1)


@pytest.mark.parametrize("key", ["short_factor", "long_factor"])
def test_factor_lists(key):
    for bad in ([1.0] * 63, [1.0] * 65, [[1.0] * 64], 2.0):
        refused(ValueError, [key, "each of the 64 pairs"], scaled, "longrope", **{key: bad})
    for bad in (0.0, np.nan):
        refused(ValueError, [key, "positive"], scaled, "longrope", **{key: [1.0] * 63 + [bad]})
    for bad in (["1"] * 64, [True] * 64, "ab", [None] * 64):
        refused(TypeError, [key], scaled, "longrope", **{key: bad})
    assert scaled("longrope", **{key: np.ones(64, np.float32)})


def test_other_values():
    refused(ValueError, ["beta_fast", "at least beta_slow"], scaled, "yarn", beta_fast=1, beta_slow=2)
    refused(ValueError, ["beta_fast", "more than beta_slow"], scaled, "ntk_by_parts", beta_fast=1, beta_slow=1)
    refused(TypeError, ["attn_factor", "attention_factor", "product"], scaled, "yarn", attn_factor=0.9)
    refused(ValueError, ["beta_slow", "above 0"], scaled, "yarn", beta_slow=0)
    refused(ValueError, ["high_freq_factor", "more than low"], scaled, "llama3", high_freq_factor=1.0)
    refused(ValueError, ["low_freq_factor"], scaled, "llama3", low_freq_factor=0)
    refused(TypeError, ["truncate", "True or False"], scaled, "yarn", truncate=1)
    refused(ValueError, ["attention_factor", "above 0"], scaled, "yarn", attention_factor=0.0)
    refused(ValueError, ["attention_factor"], scaled, "longrope", attention_factor=-1.0)
    refused(ValueError, ["mscale"], scaled, "yarn", mscale=-1.0)
    refused(ValueError, ["mscale_all_dim", "finite"], scaled, "yarn", mscale_all_dim=1e308)
    refused(ValueError, ["partial_rotary_factor", "0 to 1"], scaled, "proportional", partial_rotary_factor=1.5)
    refused(ValueError, ["partial_rotary_factor"], scaled, "proportional", partial_rotary_factor=-0.5)
    refused(ValueError, ["b is"], scaled, "ntk_mixed", b=-1)
    for rope_type in TYPES:
        for key in LENGTHS:
            refused(ValueError, [key, "at least 1"], scaled, rope_type, **{key: 0})
            refused(TypeError, [key, "an integer"], scaled, rope_type, **{key: 4096.0})
    shorter = {"factor": None, "max_position_embeddings": 4096}
    refused(ValueError, ["max_position_embeddings", "at least original"], scaled, "yarn", **shorter)
    refused(
        ValueError,
        ["original_max_position_embeddings", "rotations"],
        scaled,
        "yarn",
        original_max_position_embeddings=4,
    )


# ---- properties of the types ----


@pytest.mark.parametrize("rope_type", TYPES)
def test_which_types_read_the_length(rope_type):
    """Up to the trained length, 8192, and without one, the frequencies are the same."""
    found = [scaled(rope_type, seq_len=n).inv_freq.tolist() for n in (None, 8192, 8193, 10**6, 100)]
    reads = rope_type in ("dynamic", "longrope")
    assert [w == found[0] for w in found] == [True, True, not reads, not reads, True]


def test_the_two_factors_are_never_folded():
    """An explicit attention factor is used as it is; the softmax factor depends on mscale_all_dim alone."""
    m = 0.1 * np.log(40) + 1
    both = scaled("yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0)
    assert factors(both) == (1.0, pytest.approx(m**2, rel=1e-15))
    given = scaled("yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0, attention_factor=0.7)
    assert factors(given) == (0.7, both.softmax_factor)
    assert factors(scaled("yarn", factor=40.0, mscale=0.7)) == (pytest.approx(m, rel=1e-15), 1.0)


def test_rope_theta_is_base():
    with pytest.raises(TypeError, match=r"^rope_frequencies: keys has 'rope_theta'; expected base, which is"):
        posenc.rope_frequencies(64, rope_theta=1e6)


# ---- RopeFrequencies ----


def test_frequencies_are_an_array_and_no_tuple():
    w = posenc.RopeFrequencies(np.array([1.0, 0.1]), 1.25)
    assert (len(w), w.attention_factor, w.softmax_factor, w.layout, w.rotary_dim) == (2, 1.25, 1.0, None, None)
    np.testing.assert_array_equal(w, [1.0, 0.1])
    assert np.asarray(w, np.float32).dtype == np.float32
    assert not np.shares_memory(np.array(w, copy=True), w.inv_freq)
    fields = "w.inv_freq, w.attention_factor, w.softmax_factor, w.layout or w.rotary_dim"
    with pytest.raises(TypeError, match=f"^RopeFrequencies: w is unpacked; expected {fields}"):
        _, _, _ = w
    for operation in (lambda: w * 2, lambda: np.ones(2) * w, lambda: np.sin(w)):
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(dataclasses.FrozenInstanceError):
        w.layout = "half"
    for copied in (pickle.loads(pickle.dumps(w)), copy.deepcopy(w), dataclasses.replace(w)):
        assert (copied.inv_freq.tolist(), *factors(copied)) == ([1.0, 0.1], 1.25, 1.0)


def test_representations_are_one_line():
    shown = {
        "64 pairs, base 10000": posenc.rope_frequencies(128),
        "64 pairs, base 500000": posenc.rope_frequencies(128, base=5e5),
        "64 pairs, base 10000, dynamic, factor 2": scaled("dynamic", factor=2.0),
        "64 pairs, base 10000, yarn, factor 4, attention_factor 0.7": scaled("yarn", attention_factor=0.7),
        "2 pairs": posenc.RopeFrequencies(np.ones(2)),
        "2 pairs, softmax_factor 1.5, half": posenc.RopeFrequencies(np.ones(2), 1.0, 1.5, "half"),
        "32 pairs, base 10000, half": posenc.rope_from_config({"model_type": "llama", "head_dim": 64}),
    }
    for text, w in shown.items():
        assert repr(w) == f"<RopeFrequencies: {text}>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 64, "base": 5e-324}, "base is 5e-324; expected a number whose powers"),
        (
            {
                "rope_type": "longrope",
                "short_factor": [5e-324] * 4,
                "long_factor": [1.0] * 4,
                "factor": 2.0,
                "original_max_position_embeddings": 8,
            },
            "keys is .*; expected numbers that give finite",
        ),
        (
            {
                "rope_type": "yarn",
                "factor": 1e9,
                "mscale": 1e308,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 2048,
            },
            "keys is .*; expected numbers that give finite",
        ),
    ],
)
def test_results_that_are_not_finite_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^rope_frequencies: {message}"):
        posenc.rope_frequencies(**{"dim": 8, **options})
