"""Errors across the package: each message names the function and the argument, and says the expected value."""

import numpy as np
import pytest

import posenc
from posenc._core_api.constants import MOST_WIDTH

W = np.ones(2)
REFUSED = {
    "position": (lambda: posenc.rope_matrix(np.nan, W, layout="half"), ValueError, "rope_matrix: position "),
    "odd": (lambda: posenc.shift_matrix(1, 3), ValueError, "shift_matrix: dim "),
    "v": (lambda: posenc.attention(*np.ones((2, 2, 1, 3, 4)), np.ones((3, 1, 3, 4))), ValueError, "attention: v "),
    "width": (lambda: posenc.convert_layout(W[:1], source="half", target="half"), ValueError, "convert_layout: x "),
    "window": (lambda: posenc.attention(*np.ones((3, 1, 2, 2)), window=(10**400, None)), ValueError, "attention: win"),
    "bytes": (lambda: posenc.attention(*np.ones((3, 1, 2, 2)), scale=b"1"), TypeError, "attention: scale "),
    "factor": (
        lambda: posenc.rope(np.ones((1, 4)), 1, posenc.RopeFrequencies(W, 0.0, 1.0), layout="half"),
        ValueError, "rope: attention_factor ",
    ),
    "batches": (
        lambda: posenc.alibi([1.0]).matrix(3, q_positions=np.ones((2, 3)), k_positions=np.ones((4, 3))),
        ValueError, "alibi.matrix: k_positions ",
    ),
    "huge": (lambda: posenc.sinusoidal([2**70], 4), ValueError, "sinusoidal: positions has 1180591620717411303424; "),
    "offset": (lambda: posenc.rope(np.ones((1, 4)), 1, W, layout="half", rotary_offset=None), TypeError, "rope: rota"),
    "power": (lambda: posenc.frequencies(4, schedule="power", base=-1), ValueError, "frequencies: base "),
    "terms": (
        lambda: posenc.deberta(*np.ones((2, 1, 4, 4)), terms=[np.ones(2), np.ones(2)]), ValueError, "deberta: terms "
    ),
    "sections": (
        lambda: posenc.mrope(np.ones((1, 4)), np.ones((3, 1)), W, layout="half", sections=np.array(2)),
        TypeError, "mrope: sections ",
    ),
    "cell": (
        lambda: posenc.recurrent_vjp([[1.0]], [0.0], [[0.5]], [0.0], 1, cell=np.zeros(1, "f4, f4")),
        ValueError, "recurrent_vjp: cell ",
    ),
    "keys": (
        lambda: posenc.attention_weights(np.zeros((1, 0, 2)), np.zeros((1, 2**40, 0))),
        ValueError, "attention_weights: k ",
    ),
    "segment": (
        lambda: posenc.attention(
            *np.ones((3, 1, 1, 2)), q_segments=np.array([2**64 - 1], np.uint64), k_segments=[-1]
        ),
        ValueError, "attention: q_segments ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_name(kind):
    call, exception, beginning = REFUSED[kind]
    with pytest.raises(exception) as caught:
        call()
    assert str(caught.value).startswith(beginning)
    assert "; expected " in str(caught.value)


STATES = (np.ones(3), np.ones((5, 4)), np.ones(5), np.ones((3, 6)), np.ones(3))
REFUSED_COUNTS = {
    "positions": (lambda n: posenc.sinusoidal(n, 4), "sinusoidal: positions "),
    "0-d positions": (lambda n: posenc.sinusoidal(np.array(n, np.uint64), 4), "sinusoidal: positions "),
    "dim": (lambda n: posenc.frequencies(n), "frequencies: dim "),
    "substeps": (lambda n: posenc.floater(*STATES, 3, substeps=n), "floater: substeps "),
    "n": (lambda n: posenc.recurrent(np.ones(1), np.ones((1, 1)), np.ones(1), n), "recurrent: n "),
}


@pytest.mark.parametrize("n", [2**53 + 1, 2**62, 2**63, 2**63 + 5, 2**64 - 1])
@pytest.mark.parametrize("kind", REFUSED_COUNTS)
def test_counts_that_numpy_would_make_empty(kind, n):
    """np.arange(2**63) is empty, so unchecked counts would give no positions and no steps."""
    call, beginning = REFUSED_COUNTS[kind]
    with pytest.raises(ValueError, match=rf"^{beginning}(has|is) {n}; expected at most (2\*\*\d\d|{MOST_WIDTH})"):
        call(n)


REFUSED_KINDS = {
    "a type": (lambda: posenc.frequencies(int), "frequencies: dim "),
    "0-d bool": (lambda: posenc.frequencies(np.array(True)), "frequencies: dim "),
    "ragged": (lambda: posenc.shift_matrix([1, [2]], 4), "shift_matrix: offset "),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy 1.23 makes one of objects, and warns
@pytest.mark.parametrize("kind", REFUSED_KINDS)
def test_kinds_refused_by_name(kind):
    call, beginning = REFUSED_KINDS[kind]
    with pytest.raises(TypeError, match=f"^{beginning}has .*; expected "):
        call()


WORDS = {
    "transformer_xl: r has shape (9,); expected (2 K + 1, D) or (H, 2 K + 1, D)":
        lambda: posenc.transformer_xl(np.ones(9), np.ones(9), np.ones(9)),
    "deberta: rel_q has shape (8,); expected (2 K, D) or (H, 2 K, D)": lambda: posenc.deberta(np.ones(8), np.ones(8)),
    "shaw: rel_k has shape (4,); expected (2 K + 1, D) or (H, 2 K + 1, D)": lambda: posenc.shaw(np.ones(4)),
    "tupe: pos_q has shape (4, 4); expected (H, N, D)": lambda: posenc.tupe(np.ones((4, 4)), np.ones((4, 4))),
    "integrate: times is 5; expected an array with 1 axis":
        lambda: posenc.integrate(lambda t, p: p, np.ones(2), 5),
    "inner_product: frequencies is 128; expected an array (e,), one number per pair, such as frequencies(dim)":
        lambda: posenc.analysis.inner_product(3, 5, 128),
    "complex_order: positions has shape (5,); expected a shape that broadcasts to (3,), the leading axes of amplitude":
        lambda: posenc.complex_order(np.ones((3, 4)), np.ones(4), 5),
    "rope_frequencies: keys has 'theta'; expected base, which is the name of theta here":
        lambda: posenc.rope_frequencies(8, theta=1e4),
}  # fmt: skip


@pytest.mark.parametrize("message", WORDS)
def test_words(message):
    """Messages that readers did not understand before."""
    with pytest.raises((TypeError, ValueError)) as caught:
        WORDS[message]()
    assert str(caught.value) == message
