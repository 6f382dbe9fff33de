"""Attention dropout: the mask bit for bit, its distribution, equal bits, and memory."""

import tracemalloc

import numpy as np
import pytest
from cases import F16, F32, F64
from cases.attention import qkv
from cases.layouts import same_bits

import posenc
from posenc import reference
from posenc.reference.dropout import philox

SEED = 0xA409382203707344
DRAWS = {"dropout": 0.3, "seed": SEED}


@pytest.mark.parametrize(
    ("counter", "seed", "of_seven", "of_ten"),
    [
        ([0] * 4, 0, "5f6fb709 0d893f64 4f121f81 4f730a48", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, 2**64 - 1, "5207ddc2 45165e59 4d8ee751 8c52f662", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            "4dfccaba 190a87f0 c47362ba b6b5242a",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_philox(counter, seed, of_seven, of_ten):
    """Those of the authors' library Random123, tests/kat_vectors, for philox4x32."""
    for rounds, words in ((7, of_seven), (10, of_ten)):
        assert " ".join(f"{int(word):08x}" for word in philox(counter, seed, rounds)) == words


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 1), F64), ((3, 203), F16), ((16, 97), F32), ((130, 101), F64), ((2, 16500), F32)],
    ids=["one", "few queries", "vector", "blocks", "parts"],
)
def test_the_mask_is_that_of_the_reference(shape, dtype, rng, isa):
    """Also in panels of one vector, for keys in parts, and where heads share keys. Each of the last 20 keys has
    a value in a channel of its own, which shows the weights."""
    n, m = shape
    shown = min(m, 20)
    given = {name: x.astype(dtype) for name, x in qkv(rng, n, m, heads=4, batch=(2, 2)).items()}
    given["v"] = np.zeros((2, 2, 2, m, shown), dtype)
    given["v"][..., m - shown :, :] = np.eye(shown) * 100
    weights, found = posenc.attention(**given), posenc.attention(**given, **DRAWS)
    factors = reference.dropout_factors((2, 2, 4, n, m), **DRAWS)[..., m - shown :]
    assert np.all(weights > 0)
    assert np.array_equal(found > 0, factors > 0)
    error = 8 * np.finfo(dtype).eps if dtype == F16 else 1e3 * np.finfo(dtype).eps  # of float32 and of storage
    assert np.allclose(found, weights * factors, rtol=error, atol=0)


@pytest.mark.parametrize("start", [1, 95, 200])
def test_the_mask_depends_on_the_indices_of_keys(start, rng, isa):
    """Masked keys before the first visible one draw numbers, too: nothing depends on what is visible."""
    given = qkv(rng, 5, 230)
    given["v"] = np.broadcast_to(np.eye(230), (2, 230, 230))
    found = posenc.attention(**given, **DRAWS, keep=np.arange(230) >= start, invariant=True)
    factors = reference.dropout_factors((2, 5, 230), **DRAWS)
    assert np.array_equal(found > 0, (factors > 0) & (np.arange(230) >= start))


# ---- distribution ----


@pytest.mark.parametrize("chance", [1e-4, 0.1, 0.9])
def test_mean_and_variance(chance):
    """10^6 numbers and their sums over rows and columns, within five standard deviations of binomial numbers. The
    variance of a sum of 1000 is estimated from 1000 sums, with a relative standard deviation of sqrt(2 / 999) and, for
    rare events, 1 / sqrt(1000 * variance)."""
    one = np.ones((1, 1000, 1), F32)
    dropped = posenc.attention_weights(one, one, dropout=chance, seed=SEED)[0] == 0
    rounded = round(chance * 2**16) / 2**16
    variance = rounded * (1 - rounded)
    assert abs(dropped.mean() - rounded) <= 5 * np.sqrt(variance / 1e6)
    assert abs(rounded - chance) <= 2.0**-17
    for sums in (dropped.sum(0), dropped.sum(1)):
        spread = np.sqrt(2 / 999 + 1 / (1000 * 1000 * variance))
        assert abs(sums.var(ddof=1) / (1000 * variance) - 1) <= 5 * spread


def test_numbers_are_independent():
    """Of neighbouring keys, queries, heads, rows of the batch and seeds: the correlation of 10^6 pairs has a standard
    deviation of 1e-3."""
    shape = (8, 8, 128, 128)
    kept = reference.dropout_factors(shape, 0.5, SEED) - 1
    for axis in range(4):
        one, other = (np.delete(kept, at, axis) for at in (0, -1))
        assert abs((one * other).mean()) <= 5 / np.sqrt(one.size)
    assert abs((kept * (reference.dropout_factors(shape, 0.5, SEED + 1) - 1)).mean()) <= 5e-3


# ---- the same bits ----


def test_zero_is_no_dropout(rng):
    given = qkv(rng, 40, 90)
    assert same_bits(posenc.attention(**given, dropout=0.0, seed=5), posenc.attention(**given))


def test_lse_is_without_dropout(rng):
    given = {**qkv(rng, 40, 90), "return_lse": True, "sink": np.zeros(2)}
    assert same_bits(posenc.attention(**given, **DRAWS)[1], posenc.attention(**given)[1])


def test_codes_and_invariance(rng):
    given = {name: x.astype(F32) for name, x in qkv(rng, 40, 90).items()}
    codes = {"q": given["q"], "k": posenc.quantize(given["k"]), "v": posenc.quantize(given["v"])}
    numbers = {name: x if name == "q" else x.dequantize() for name, x in codes.items()}
    expected = posenc.attention(**numbers, **DRAWS)
    assert np.abs(posenc.attention(**codes, **DRAWS) - expected).max() <= 1e-5
    assert same_bits(posenc.attention(**numbers, **DRAWS, invariant=True), expected)
    few = posenc.attention(numbers["q"][:, :3], numbers["k"], numbers["v"], **DRAWS)
    assert same_bits(few, expected[:, :3])


# ---- gradients and memory ----


def test_gradient_of_nearly_all_dropped_is_finite(rng):
    given, grad = qkv(rng, 30, 40), rng.standard_normal((2, 30, 8))
    found = posenc.attention_vjp(grad, **given, dropout=1 - 2.0**-20, seed=0)
    assert all(np.isfinite(one).all() for one in found[:3])


def test_no_mask_is_stored():
    """16 times the pairs take no more memory than 4 times the results."""
    peaks = []
    for n in (1000, 4000):
        q = np.ones((1, n, 8), F32)
        tracemalloc.start()
        posenc.attention_vjp(q, q, q, q, **DRAWS)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] <= 4.5 * peaks[0] + 10**5


def test_weights_keep_their_sum_where_the_probability_is_rounded():
    """The other weights are divided by one minus the rounded probability."""
    result = posenc.attention(np.zeros((1, 1)), np.zeros((2**16, 1)), np.ones((2**16, 1)), dropout=0.9999, seed=1)
    kept = posenc.reference.dropout_factors((1, 1, 2**16), 0.9999, 1)
    assert set(np.unique(kept)) == {0.0, 65536 / 7}  # 0.9999 is 65529.4 / 65536
    assert result[0, 0] == pytest.approx(kept.mean(), rel=1e-12)
