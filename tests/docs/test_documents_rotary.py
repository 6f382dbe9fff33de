"""docs/explanations/rotary-embeddings.md: the numbers in its sentences."""

import ml_dtypes
import numpy as np
import pytest

import posenc


def test_bfloat16_holds_every_32nd_integer():
    between = np.arange(4096, 8193)
    stored = between.astype(ml_dtypes.bfloat16).astype(np.int64)
    assert set(np.diff(np.unique(stored))) == {32}
    assert np.float64(ml_dtypes.bfloat16(5000)) == 4992


def test_the_rotation_error_of_bfloat16_positions(rng):
    """8 radians in the fastest pair, and 76 % of the length of a vector: sqrt(mean of |1 - exp(8iw)|**2)."""
    w = posenc.rope_frequencies(128)
    assert w.inv_freq[0] * (5000 - 4992) == 8
    x = rng.standard_normal((4096, 128))
    true, wrong = (posenc.rope(x, np.full(4096, p), w, layout="half") for p in (5000, 4992))
    error = np.linalg.norm(wrong - true) / np.linalg.norm(true)
    expected = np.sqrt(np.mean(np.abs(1 - np.exp(8j * w.inv_freq)) ** 2))
    assert error == pytest.approx(expected, rel=0.02)  # 262144 pairs of random length
    assert f"{expected:.2f}" == "0.76"
    rounded = w.inv_freq.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert round(np.abs(5000 * (rounded - w.inv_freq)).max()) == 6


def test_turns_of_the_bands():
    """YaRN keeps pairs that turn 32 times within the training length, and divides pairs that turn less than once, to a
    whole pair."""
    w = posenc.rope_frequencies(128).inv_freq
    scaled = posenc.rope_frequencies(128, rope_type="yarn", factor=8, original_max_position_embeddings=4096).inv_freq
    turns = 4096 * w / (2 * np.pi)
    kept, divided = turns >= 32 * (w[0] / w[1]), turns <= w[1] / w[0]
    assert np.array_equal(scaled[kept], w[kept])
    assert np.allclose(scaled[divided], w[divided] / 8, rtol=1e-15)
    ramp = ~kept & ~divided
    assert ((scaled < w) & (scaled > w / 8))[ramp][1:-1].all()
