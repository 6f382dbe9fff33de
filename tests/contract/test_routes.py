"""How many functions of posenc a call enters: an argument is read once, so a route stays short.

The limits are those of the second call, with arrays; the first one may fill caches.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import posenc

PACKAGE = str(Path(posenc.__file__).parent)


def rows(*shape):
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


X, Q, W = rows(2, 4, 8, 32), rows(8, 16, 64), posenc.rope_frequencies(32)
ALIBI, SHAW, T5 = (
    posenc.alibi(posenc.alibi_slopes(8)),
    posenc.shaw(rows(33, 64)),
    posenc.t5(rows(32, 8), bidirectional=True),
)
OUT, LSE = posenc.attention(Q, Q, Q, bias=SHAW, return_lse=True)
PLACES = np.arange(16).reshape(2, 8)
GRID, AXIAL, TABLE = np.indices((2, 4)).reshape(2, 8), posenc.axial_frequencies((16, 16)), posenc.rope_table(8, W)

ROUTES = {
    "rope": (3, lambda: posenc.rope(X, np.arange(8), W, layout="half")),
    "rope, positions of each batch": (3, lambda: posenc.rope(X, PLACES, W, layout="half")),
    "rope_vjp": (18, lambda: posenc.rope_vjp(X, X, np.arange(8), W, layout="half")),
    "rope_nd": (10, lambda: posenc.rope_nd(X, GRID, AXIAL, layout="half")),
    "rope_by_table": (4, lambda: posenc.rope_by_table(X, *TABLE, layout="half")),
    "rope_by_table_vjp": (10, lambda: posenc.rope_by_table_vjp(X, X, *TABLE, layout="half")),
    "rerotate": (9, lambda: posenc.rerotate(X, np.arange(8), np.arange(8) + 3, W, layout="half")),
    "sinusoidal_vjp": (11, lambda: posenc.sinusoidal_vjp(rows(8, 32), np.arange(8), 32)),
    "attention": (4, lambda: posenc.attention(Q, Q, Q)),
    "attention, masks and cap": (
        4,
        lambda: posenc.attention(Q, Q, Q, causal=True, keep=np.ones(16, bool), softcap=9.0),
    ),
    "attention with ALiBi": (14, lambda: posenc.attention(Q, Q, Q, bias=ALIBI, causal=True)),
    "attention_vjp with Shaw": (30, lambda: posenc.attention_vjp(Q, Q, Q, Q, out=OUT, lse=LSE, bias=SHAW)),
    "t5.matrix": (10, lambda: T5.matrix(64)),
    "shaw.logits": (14, lambda: SHAW.logits(Q, Q)),
}


def functions_of(call):
    """The functions of posenc that a call enters."""
    entered = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            entered.add((code.co_filename, code.co_name, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.parametrize("name", ROUTES)
def test_a_call_enters_few_functions(name):
    limit, call = ROUTES[name]
    call()
    entered = functions_of(call)
    assert 0 < len(entered) <= limit, "\n".join(sorted(f"{file}:{line} {function}" for file, function, line in entered))
