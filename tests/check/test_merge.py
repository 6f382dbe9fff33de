"""The check of merged attention: right implementations, and planted errors."""

from functools import partial

import numpy as np
import plain
import pytest

import posenc
from posenc import check


def merged(outs, lses, power=np.exp, shift=True, order=slice(None), returned=lambda lses, lse: lse):
    """Merge all parts at once."""
    top = lses.max(0) if shift else 0 * lses[0]
    with np.errstate(all="ignore"):
        weights = power(lses - top)
        total = weights.sum(0)
        out = (weights[order][..., None] * outs).sum(0) / total[..., None]
        return out, returned(lses, top + np.log(total))


def one_by_one(outs, lses, joint=np.logaddexp):
    """Merge part after part. Two empty parts are NaN, unless a branch keeps them."""
    out, lse = outs[0], lses[0]
    for new, of_new in zip(outs[1:], lses[1:], strict=True):
        both = np.logaddexp(lse, of_new)
        safe = np.where(np.isfinite(both), both, 0)
        out = np.exp(lse - safe)[..., None] * out + np.exp(of_new - safe)[..., None] * new
        lse = joint(lse, of_new)
    return out, lse


def by_sigmoid(outs, lses):
    """Merge part after part, as ring attention does: NaN if the first part is empty."""
    out, lse = outs[0], lses[0]
    with np.errstate(all="ignore"):
        for new, of_new in zip(outs[1:], lses[1:], strict=True):
            out = out - (out - new) / (1 + np.exp(lse - of_new))[..., None]
            lse = lse + np.log1p(np.exp(of_new - lse))
    return out, lse


RIGHT = {
    "posenc": posenc.merge_attention,
    "all at once": merged,
    "one by one": one_by_one,
    "without lse": lambda outs, lses: merged(outs, lses)[0],
    "None for lse": lambda outs, lses: (merged(outs, lses)[0], None),
    "an axis more": lambda outs, lses: [x[None] for x in merged(outs, lses)],
    "float16": lambda outs, lses: merged(outs, lses)[0].astype(np.float16),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(
    "sizes", [{}, {"parts": 2, "n": 3}, {"parts": 5, "heads": 1}, {"parts": 1}, {"parts": 64, "n": 40}]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_right_merge_is_not_accused(name, sizes, dtype):
    if name != "float16" or dtype == "float32":
        check.merge(RIGHT[name], dtype=dtype, **sizes).assert_right()


LSE = partial(partial, merged)
WRONG = {  # sentence: implementation
    "The weights of the parts are powers of 2, but lse is a natural": partial(merged, power=np.exp2),
    "exp(lse) overflows, or its sum is 0: subtract the maximum": partial(merged, shift=False),
    "Cause: weights. exp(lse) overflows": lambda outs, lses: merged(outs, lses, shift=False)[0],
    "the result is the plain mean": lambda outs, lses: outs.mean(0),
    "the result is the plain sum": lambda outs, lses: outs.sum(0),
    "They are exchanged: those of the parts (1, 0, 2).": partial(merged, order=[1, 0, 2]),
    "The log-sum-exp is the mean of the parts.": LSE(returned=lambda lses, lse: lses.mean(0)),
    "The log-sum-exp is the maximum of the parts.": LSE(returned=lambda lses, lse: lses.max(0)),
    "The log-sum-exp is that of the last part.": LSE(returned=lambda lses, lse: lses[-1]),
    "it is log2(e) times the right one": LSE(returned=lambda lses, lse: lse * np.log2(np.e)),
    "The log-sum-exp lacks the maximum": LSE(returned=lambda lses, lse: lse - lses.max(0)),
    "are exp(lse_p), not divided by their sum": lambda outs, lses: (np.exp(lses)[..., None] * outs).sum(0),
    "The weights of the parts are those of -lse.": lambda outs, lses: merged(outs, -lses)[0],
    "part 2 is merged with the lse of part 0": partial(one_by_one, joint=lambda old, new: old),
    "part 2 is merged with the lse of part 1": partial(one_by_one, joint=lambda old, new: new),
    "part 2 is merged with the larger lse of the two": partial(one_by_one, joint=np.maximum),
    "A part without a key has lse = -inf and weight 0": by_sigmoid,
    "The weights sum to 1 over the queries": lambda outs, lses: (plain.softmax(lses)[..., None] * outs).sum(0),
    "The parts 2 are not used.": lambda outs, lses: merged(outs[:2], lses[:2]),
    "the weighted sum of the outputs": lambda outs, lses: merged(outs, lses)[0][..., ::-1],
    "The result has shape (6, 2, 8); expected (2, 6, 8). Its numbers are right.": lambda outs, lses: merged(outs, lses)[
        0
    ].swapaxes(0, 1),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_an_error_of_a_merge_is_named(sentence):
    report = check.merge(WRONG[sentence])
    assert not report
    assert sentence in str(report)


def test_an_inexact_weight_is_no_overflow():
    """Log-sum-exps of 800 that are rounded to 16 bits are wrong, but finite."""
    report = check.merge(lambda outs, lses: merged(outs, np.where(abs(lses) > 700, np.rint(lses), lses))[0])
    assert not report
    assert "overflows" not in str(report)
    assert "the weights of parts with lse" in str(report)


def test_numbers_of_the_empty_part():
    report = check.merge(by_sigmoid)
    assert "the weights of parts with lse (-inf, -1.1999, -0.53741) are (NaN, NaN, NaN)" in report.causes[0].sentence
    assert "The implementation is wrong with parts without a key (lse = -inf) only." in report.where


def test_a_merge_that_returns_nothing():
    with pytest.raises(TypeError, match=r"check.merge: the result is None; expected one array of real numbers"):
        check.merge(lambda outs, lses: None)
