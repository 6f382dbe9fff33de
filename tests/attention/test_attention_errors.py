"""Errors of attention: each names the argument and says what is expected."""

import re

import numpy as np
import pytest
from cases.attention import TWO_SLOPES, check, qkv
from cases.layouts import same_bits

import posenc

N, M = 4, 6
SHAW = posenc.shaw(np.ones((3, 8)))
ERRORS = {
    "align_missing_causal": ({"causal": True}, ValueError, "align"),
    "align_missing_bias": ({"bias": posenc.alibi([1.0, 1.0])}, ValueError, "align"),
    "align_with_positions": ({"align": "end", "q_positions": np.arange(N)}, ValueError, "align"),
    "one_segment": ({"q_segments": np.zeros(N, int)}, ValueError, "k_segments"),
    "other_segment": ({"k_segments": np.zeros(M, int)}, ValueError, "q_segments"),
    "float_segments": ({"q_segments": np.zeros(N), "k_segments": np.zeros(M)}, TypeError, "q_segments"),
    "positions_per_head": ({"q_positions": np.zeros((2, N))}, ValueError, "q_positions"),
    "window_number": ({"window": 3}, ValueError, "window"),
    "window_nan": ({"window": (np.nan, 1), "align": "end"}, ValueError, "window"),
    "bias_array": ({"bias": np.zeros((N, M))}, TypeError, "bias"),
    "bias_dense_shape": ({"bias": posenc.dense(np.zeros((N, M + 1)))}, ValueError, "array"),
    "bias_toeplitz_length": ({"bias": posenc.toeplitz(np.zeros((2, N + M)))}, ValueError, "diagonals"),
    "k_heads": ({"k": np.zeros((3, M, 8)), "v": np.zeros((3, M, 8))}, ValueError, "k"),
    "scale_heads": ({"scale": np.ones(3)}, ValueError, "scale"),
    "scale_shaw": ({"scale": np.ones(2), "bias": SHAW, "align": "end"}, TypeError, "scale"),
    "scale_nan": ({"scale": np.array([1.0, np.nan])}, ValueError, "scale"),
    "v_batch": ({"v": np.zeros((3, 2, M, 8)), "k": np.zeros((2, 2, M, 8))}, ValueError, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind, rng):
    options, exception, argument = ERRORS[kind]
    with pytest.raises(exception, match=rf"^attention: {argument or r'[a-z]+'} (has|is) .+; expected "):
        posenc.attention(**{**qkv(rng, N, M), **options})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda q: posenc.attention(q, q, q, keep=np.ones((2, 4), bool)), "keep[..., None, None, :]"),
        (lambda q: posenc.attention(q, q, q, bias=np.zeros((4, 4))), "dense(array)"),
        (
            lambda q: posenc.attention(q, q, q, scale=np.ones(2)),
            "has shape (2,); expected a number, or (3,), one for each",
        ),
        (
            lambda q: posenc.attention(q, q, q, scale=np.ones(3), bias=SHAW),
            "expected a number, because shaw reads queries",
        ),
        (lambda q: posenc.attention(q, q, q, scale=np.full(3, np.nan)), "scale is nan; expected a finite number"),
    ],
)
def test_what_is_meant_is_named(call, hint):
    """The message names the argument of posenc for habits from other libraries: a mask, a matrix, a number of heads."""
    with pytest.raises((TypeError, ValueError), match=re.escape(hint)):
        call(np.zeros((2, 3, 4, 8)))


def test_what_needs_no_align(rng):
    """align is not needed if N = M, if nothing depends on positions, or if positions are explicit."""
    arguments = qkv(rng, N, M)
    assert posenc.attention(**arguments).shape == (2, N, 8)
    assert posenc.attention(**arguments, align="end").shape == (2, N, 8)
    assert posenc.attention(**arguments, causal=True, q_positions=np.arange(N)).shape == (2, N, 8)
    assert posenc.attention(**arguments, window=(None, None)).shape == (2, N, 8)
    same = qkv(rng, N, N)
    both = [posenc.attention(**same, causal=True, align=align) for align in (None, "start", "end")]
    assert same_bits(both[0], both[1])
    assert same_bits(both[0], both[2])


def test_more_operators_than_a_call_takes_are_refused():
    """The limit of the docstring; the parts of a sum count."""
    q, alibi = np.ones((1, 2, 2)), posenc.alibi([0.5])
    assert check(qkv(np.random.default_rng(0), 5, 5), bias=TWO_SLOPES * 16)[0].shape == (2, 5, 8)
    for bias in ([alibi] * 17, [alibi] * 15 + [alibi + alibi]):
        with pytest.raises(ValueError, match=r"^attention: bias has 17 operators; expected at most 16$"):
            posenc.attention(q, q, q, bias=bias, scale=1.0)
