"""The Python functions of posenc that a call enters, and their files: a reader of the call has to read as many.

A count that falls is lowered here; none rises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import posenc

PACKAGE = str(Path(posenc.__file__).parent)
HEADS, TOKENS, CHANNELS = 8, 512, 64


def route(call: Callable[[], object]) -> tuple[int, int]:
    """Return how many distinct functions of posenc the second call enters, without comprehensions, and their files."""
    entered = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            entered.add(code)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(entered), len({code.co_filename for code in entered})


def attention(rng):
    q, k, v = rng.standard_normal((3, HEADS, TOKENS, CHANNELS), np.float32)
    slopes = posenc.alibi_slopes(HEADS)
    return lambda: posenc.attention(q, k, v, bias=posenc.alibi(slopes), causal=True)


def attention_vjp(rng):
    q, k, v, grad = rng.standard_normal((4, HEADS, TOKENS, CHANNELS), np.float32)
    rel_k = rng.standard_normal((33, CHANNELS), np.float32)
    return lambda: posenc.attention_vjp(grad, q, k, v, bias=posenc.shaw(rel_k))


def matrix(rng):
    table = rng.standard_normal((32, HEADS))
    return lambda: posenc.t5(table).matrix(TOKENS)


def rope(rng):
    x, w = rng.standard_normal((HEADS, 4096, CHANNELS), np.float32), posenc.rope_frequencies(CHANNELS)
    return lambda: posenc.rope(x, 4096, w, layout="half")


def sinusoidal(_):
    return lambda: posenc.sinusoidal(TOKENS, CHANNELS)


@pytest.mark.parametrize(
    ("draw", "functions", "files"),
    [(attention, 30, 8), (attention_vjp, 39, 7), (matrix, 20, 5), (rope, 1, 1), (sinusoidal, 2, 2)],
)
def test_a_route_grows_no_longer(rng, draw, functions, files):
    assert route(draw(rng)) == (functions, files)
