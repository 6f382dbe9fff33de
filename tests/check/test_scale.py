"""A scale of each head, in check.attention, check.softmax and check.cache."""

from functools import partial

import numpy as np
import plain
import pytest

import posenc
from posenc import check

SCALES = np.array([0.2, 0.3, 0.25, 0.4, 0.35, 0.5])
W16 = plain.frequencies(16)
ROTATED = {"frequencies": W16, "layout": "half"}


def attends(scales, cap=None, is_rotated=False):
    def mine(q, k, v):
        if is_rotated:
            q, k = (plain.rope(x, np.arange(x.shape[-2]), W16) for x in (q, k))
        return plain.attention(q, k, v, scale=np.reshape(scales, (-1, 1, 1)), cap=cap)

    return mine


def decodes(scales):
    stored = {}

    def step(q, k, v, start):
        for name, new in (("k", k), ("v", v)):
            stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
        mask = plain.causal(q.shape[-2], stored["k"].shape[-2])
        return plain.attention(q, **stored, scale=np.reshape(scales, (-1, 1, 1)), mask=mask)

    return step


def weights(scales):
    return lambda q, k: plain.softmax(np.reshape(scales, (-1, 1, 1)) * (q @ k.swapaxes(-1, -2)))


KINDS = {
    "attention": lambda scales: check.attention(attends(scales), scale=SCALES),
    "capped": lambda scales: check.attention(attends(scales, cap=2.0), scale=SCALES, softcap=2.0),
    "rotated": lambda scales: check.attention(attends(scales, is_rotated=True), scale=SCALES, **ROTATED),
    "softmax": lambda scales: check.softmax(weights(scales), heads=6, scale=SCALES),
    "cache": lambda scales: check.cache(decodes(scales), scale=SCALES),
}
WRONG = {  # sentence: scales
    "Wrong are heads 2. They are 1.2 times the right ones.": np.where(np.arange(6) == 2, 0.3, SCALES),
    "Wrong are heads 3-5. They are 2 times the right ones.": np.where(np.arange(6) > 2, 2 * SCALES, SCALES),
    "Head h has the scale of head 5 - h.": SCALES[::-1],
    "All heads have one scale.": 0.25 + 0 * SCALES,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_scale_of_each_head_is_not_accused(kind):
    KINDS[kind](SCALES).assert_right()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_scale_of_a_head_is_named(kind, sentence):
    report = KINDS[kind](WRONG[sentence])
    assert sentence in str(report)
    assert "expected (0.2, 0.3, 0.25, 0.4, 0.35, 0.5)" in str(report)


def test_known_errors_of_a_scale_of_each_head():
    for scales, name in ((1.0, "no scale"), (SCALES**2, "scale squared")):
        assert [cause.name for cause in KINDS["attention"](scales).causes] == [name]
    assert "They are the reciprocals of the right ones." in str(KINDS["attention"](1 / SCALES))
    early = partial(plain.attention, cap=2.0)
    report = check.attention(lambda q, k, v: early(q, k, v, scale=1.0), scale=SCALES, softcap=2.0)
    assert [cause.name for cause in report.causes] == ["no scale"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": np.ones(3)}, r"scale has shape \(3,\); expected a number, or \(6,\), one for each head"),
        ({"scale": SCALES, "bias": posenc.shaw(np.ones((9, 16)))}, "because the bias reads queries and keys"),
    ],
)
def test_a_scale_that_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        check.attention(attends(SCALES), **options)
