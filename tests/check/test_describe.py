"""What an implementation computes, as a call of posenc: the call is run again, and equals it."""

import numpy as np
import pytest

import posenc
from posenc import check

LLAMA3 = {
    "base": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"base": 1e6, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
TABLE = np.random.default_rng(0).standard_normal((32, 4))
SINK = np.linspace(0, 1, 6)


@pytest.mark.parametrize("keys", [{}, {"base": 150000.0}, {"rope_type": "linear", "factor": 4.0}, LLAMA3, YARN])
@pytest.mark.parametrize(
    "options",
    [
        {"layout": "half"},
        {"layout": "interleaved", "out_layout": "half"},
        {"layout": "half", "rotary_dim": 32, "rotary_offset": 16},
        {"layout": "interleaved", "rotary_dim": 32},
        {"layout": "half", "inverse": True},
    ],
)
def test_a_rotation(keys, options):
    w = posenc.rope_frequencies(options.get("rotary_dim", 64), **keys)
    if "inverse" in options:  # the inverse divides by an attention factor
        w = posenc.RopeFrequencies(w.inv_freq)
    found = check.describe(lambda x, p: posenc.rope(x, p, w, **options), "rope")
    x, positions = np.random.default_rng(1).standard_normal((1, 40, 64)), np.arange(40)
    again = eval(found.call, {"posenc": posenc, "x": x, "positions": positions, **found.arrays})
    np.testing.assert_allclose(again, posenc.rope(x, positions, w, **options), atol=1e-3)
    assert found.unread == ""


@pytest.mark.parametrize("dim", [63, 64])
@pytest.mark.parametrize("options", [{}, {"order": "cossin", "base": 500.0, "denominator": "half-1"}])
def test_a_sinusoid(options, dim):
    options |= {"layout": "half"} if dim == 64 else {}
    found = check.describe(lambda p: posenc.sinusoidal(p, dim, **options), "sinusoid")
    again = eval(found.call, {"posenc": posenc, "positions": 50})
    np.testing.assert_array_equal(again, posenc.sinusoidal(50, dim, **options))


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (posenc.alibi(6), "posenc.alibi(6)"),
        (posenc.alibi(np.array([0.5, 0.3])), "posenc.alibi(slopes)"),
        (posenc.t5(TABLE, bidirectional=True), "posenc.t5(table, bidirectional=True, max_distance=128)"),
        (
            posenc.t5(TABLE, bidirectional=False, max_distance=64),
            "posenc.t5(table, bidirectional=False, max_distance=64)",
        ),
    ],
)
def test_a_bias(operator, text):
    found = check.describe(lambda n, m: operator.matrix(n, m, align="end"), "bias")
    assert found.call == text
    again = eval(found.call, {"posenc": posenc, **found.arrays})
    np.testing.assert_allclose(again.matrix(40), operator.matrix(40), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True, "align": "end"},
        {"causal": True, "align": "start"},
        {"causal": True, "align": "end", "window": (3, 0)},
        {"align": "end", "window": (2, 1)},
    ],
)
def test_a_mask(options):
    def mine(n, m):
        zeros = np.zeros((1, n, 4)), np.zeros((1, m, 4))
        return posenc.attention_weights(*zeros, **options)[0] > 0

    found = check.describe(mine, "mask", n=5, m=9)
    assert found.call == "posenc.attention(q, k, v" + "".join(f", {key}={x!r}" for key, x in options.items()) + ")"


@pytest.mark.parametrize(
    ("options", "kv_heads"),
    [
        ({}, None),
        ({"causal": True, "align": "end", "scale": 0.1, "softcap": 30.0}, 2),
        ({"causal": True, "align": "end", "window": (3, 0), "sink": SINK}, 3),
        ({"align": "end", "window": (3, 1), "scale": 1 / 13, "softcap": 50.0}, None),
        ({"causal": True, "align": "end", "bias": posenc.alibi(6)}, None),
    ],
)
def test_attention(options, kv_heads):
    found = check.describe(lambda *x: posenc.attention(*x, **options), "attention", kv_heads=kv_heads, n=9, m=12)
    rng = np.random.default_rng(2)
    given = {"q": rng.standard_normal((6, 9, 16))}
    given |= {name: rng.standard_normal((kv_heads or 6, 12, 16)) for name in "kv"}
    again = eval(found.call, {"posenc": posenc, **given, **found.arrays})
    np.testing.assert_allclose(again, posenc.attention(*given.values(), **options), atol=1e-4)


def test_what_no_call_gives_is_said():
    found = check.describe(lambda x, p: x**2, "rope")
    assert (found.call, found.arrays) == ("", {})
    assert str(found).startswith("No call of posenc was found that gives these numbers.\nNot read: ")
    with pytest.raises(ValueError, match=r'check.describe: kind is ropes; expected "rope" or "sinusoid"'):
        check.describe(np.sin, "ropes")


def test_a_window_that_does_not_show_is_said():
    found = check.describe(lambda *x: posenc.attention(*x, causal=True, align="end", window=(20, 0)), "attention")
    assert found.unread == "a window of 16 keys or more; a larger n shows it."
    found = check.describe(
        lambda *x: posenc.attention(*x, causal=True, align="end", window=(20, 0)), "attention", n=30, dim=32
    )
    assert "window=(20, 0)" in found.call


@pytest.mark.parametrize(("n", "m"), [(9, 12), (12, 9)])
def test_attention_in_the_form_that_its_check_takes(n, m):
    """A tuple with the weights, a mask from the start, and more queries than keys."""
    options = {"causal": True, "align": "start"}
    found = check.describe(lambda *x: (posenc.attention(*x, **options), None), "attention", n=n, m=m)
    assert found.call == "posenc.attention(q, k, v, causal=True, align='start')"
    found = check.describe(lambda *x: posenc.attention(*x, bias=posenc.alibi(6), align="end"), "attention", n=n, m=m)
    assert found.call == "posenc.attention(q, k, v, bias=posenc.alibi(6))"


def test_axes_of_length_one():
    alibi = posenc.alibi(1)
    assert check.describe(lambda n, m: alibi.matrix(n, m, align="end")[0], "bias").call == "posenc.alibi(1)"
    assert check.describe(lambda n, m: alibi.matrix(n, m, align="end")[None], "bias").call == "posenc.alibi(1)"
    found = check.describe(lambda n, m: np.where(np.tri(n, m, m - n), 0, -np.inf)[None, None], "mask")
    assert found.call == "posenc.attention(q, k, v, causal=True, align='end')"


def test_a_single_token_shows_nothing():
    with pytest.raises(ValueError, match=r"check.describe: n or m is 1; expected at least 2"):
        check.describe(posenc.attention, "attention", n=1)


def test_a_weak_cap_is_found():
    found = check.describe(lambda *x: posenc.attention(*x, scale=1 / 16, softcap=50.0), "attention")
    assert found.call == "posenc.attention(q, k, v, scale=0.0625, softcap=50.0)"
