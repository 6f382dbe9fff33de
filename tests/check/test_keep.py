"""Masks by `keep` and by positions, in check.mask and in check.attention."""

from functools import partial

import numpy as np
import plain
import pytest

from posenc import check

N = 20
KEYS = np.arange(N)
REL = KEYS - KEYS[:, None]
POSITIONS = np.concatenate([np.arange(8), np.arange(12)])
PLACED = {"q_positions": POSITIONS, "k_positions": POSITIONS}
W16 = plain.frequencies(16)


def streaming(first, left):
    """The mask of StreamingLLM: the first keys, and a window."""
    return (REL <= 0) & ((first > KEYS) | (-left <= REL))


def attends(mask, q_positions=None, k_positions=None):
    def mine(q, k, v):
        if q_positions is not None:
            q, k = plain.rope(q, q_positions, W16), plain.rope(k, k_positions, W16)
        return plain.attention(q, k, v, mask=mask)

    return mine


MASK = partial(check.mask, n=N, causal=True)
ATTENTION = partial(check.attention, causal=True, n=N)
SINKS = {"keep": streaming(4, 7)}
ROTATED = {"frequencies": W16, "layout": "half", **PLACED}
SEEN = POSITIONS[:, None] >= POSITIONS
PADDED = KEYS > 2


@pytest.mark.parametrize(
    "run",
    [
        partial(MASK, streaming(4, 7), **SINKS),
        partial(MASK, np.where(streaming(4, 7), 0.0, -np.inf), **SINKS),
        partial(ATTENTION, attends(streaming(4, 7)), **SINKS),
        partial(MASK, (REL <= 0) & PADDED, keep=PADDED),
        partial(ATTENTION, attends((REL <= 0) & PADDED), keep=PADDED),
        partial(MASK, SEEN, **PLACED),
        partial(ATTENTION, attends(SEEN, POSITIONS, POSITIONS), **ROTATED),
        partial(check.mask, np.array([3, 11])[:, None] >= KEYS, 2, N, causal=True, q_positions=[3, 11]),
    ],
)
def test_a_right_mask_is_not_accused(run):
    run().assert_right()


WRONG = {  # sentence: mask of StreamingLLM
    "Query 8 reads the keys 1-8; expected 0-8. The first 4 keys are hidden; expected": streaming(0, 7),
    "The first 1 keys are always seen; expected the first 4 for each query.": streaming(1, 7),
    "The window reaches 6 keys back; expected 7.": streaming(4, 6),
    "The window reaches 3 keys back; expected 7. Its size counts the first 4 keys.": streaming(4, 3),
    "The window reaches 11 keys back; expected 7. Its size does not count the first 4": streaming(4, 11),
    "The first 4 keys are hidden; expected the first 4 for each query. The window reaches 9": streaming(0, 9),
    "keep is not applied.": REL <= 0,
    "keep is read as if True hid a pair.": (REL <= 0) & ~streaming(4, 7),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_an_error_of_attention_sinks_is_named(sentence):
    assert sentence in str(MASK(WRONG[sentence], **SINKS))
    if "keep" not in sentence:  # inverted, some queries see no key
        assert sentence in str(ATTENTION(attends(WRONG[sentence]), **SINKS))


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (partial(MASK, (REL <= 0) & PADDED[:, None], keep=PADDED), "keep is read at (key, query)."),
        (partial(ATTENTION, attends(REL <= 0), keep=PADDED), "keep is not applied."),
        (partial(MASK, REL <= 0, **PLACED), "The mask compares the indices of queries and keys"),
        (partial(ATTENTION, attends(SEEN, KEYS, KEYS), **ROTATED), "Queries and keys are rotated by their indices"),
        (partial(ATTENTION, attends(SEEN, POSITIONS + 1, POSITIONS), **ROTATED), "The distance d is taken for d + 1."),
    ],
)
def test_an_error_of_keep_or_positions_is_named(run, sentence):
    assert sentence in str(run())


def test_queries_without_a_key():
    keep = (REL <= 0) & (KEYS[:, None] > 2)
    assert ATTENTION(attends(keep), keep=keep)
    nan = np.where(KEYS > 2, 1, np.nan)[:, None]
    report = ATTENTION(lambda q, k, v: plain.attention(q, k, v, mask=keep) * nan, keep=keep)
    (cause,) = report.causes
    assert cause.sentence == "The queries 0-2 see no key, and their output is NaN; expected 0."
    report = ATTENTION(lambda q, k, v: plain.attention(q, k, v, bias=np.where(keep, 0, -1e9)), keep=keep)
    (cause,) = report.causes
    assert cause.sentence.startswith("The queries 0-2 see no key, but the softmax gives all keys the same weight")


def test_a_causal_mask_in_place_of_a_window_and_a_wrong_scale():
    report = check.attention(lambda q, k, v: plain.attention(q, k, v, mask=REL <= 0, scale=1.0), n=N, **SINKS)
    assert "All keys up to the query are seen, without a window; expected the first 4, and 7 keys back." in str(report)
    assert "Logits are 4 (1 / the scale) times the right ones." in str(report)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"keep": np.ones((3, 4), bool)}, ValueError, r"keep has shape \(3, 4\); expected \(20, 20\)"),
        ({"keep": np.ones((N, N))}, TypeError, "keep has dtype float64; expected bool, True = may be seen"),
        ({"q_positions": np.arange(5)}, ValueError, r"q_positions has shape \(5,\); expected \(20,\)"),
    ],
)
def test_keep_and_positions_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=f"check.mask: {message}"):
        MASK(REL <= 0, **options)
    with pytest.raises(error, match=f"check.attention: {message}"):
        ATTENTION(attends(REL <= 0), **options)


def test_more_queries_than_keys_in_segments():
    q, k = np.repeat([0, 1], 4), np.repeat([0, 1], 3)
    assert check.mask(lambda n, m: q[:, None] == k, 8, 6, segments=(q, k))
