"""Refusals: a flag, a number or a name of the wrong kind, and what users confuse, each by the name of the option."""

import inspect
import re

import numpy as np
import pytest
from cases import CASES
from cases.calls import arguments_of, call_all
from cases.deviation import cotangents

import posenc

VAST = 10**5000
"""Python prints integers of at most 4300 digits."""
ARRAYS = (np.ones(3), np.array([1, 2]), np.ones((2, 2), int), [1, 2])
WRONG = {
    "bool": (*ARRAYS, "no", 1, None, np.array(1), np.array(True)),
    "int": (*ARRAYS, np.array([1]), VAST, -VAST, "2", 2.5, np.float64(2), np.array(2.0), True),
    "float": (*ARRAYS, np.ones(1), VAST, -VAST, "2", b"1", 1j, True, np.array(True), np.nan),
    "Literal": (*ARRAYS, np.array("half"), np.array(["half", "half"]), VAST, b"half", 3, "no such thing", ["half"]),
    "str": (*ARRAYS, VAST, b"half", 3, "no such thing", ["half"]),
}
"""Values that no option of these annotations takes."""
TOGETHER = {"num_buckets": "max_distance", "max_distance": "num_buckets"}
"""Arguments of deberta that are passed both or not at all."""
FIRST = {case.function: case for case in reversed(CASES)}


def options_of(function):
    """{name: kind} of the options with an annotation of WRONG, and another default than None."""
    if function is posenc.axial_frequencies:  # base may be an array; it has a test of its own
        return {}
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is not None]
    kinds = {p.name: re.match(r"\w*", str(p.annotation))[0].replace("Layout", "Literal") for p in parameters}
    return {name: kind for name, kind in kinds.items() if kind in WRONG}


def check_refused(name, call, value):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(**{name: value})
    message = str(caught.value)
    assert re.match(rf"[\w.]+: ({name}|{TOGETHER.get(name, name)}) (has|is) .+; expected ", message), message
    assert len(message) < 500


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")  # NumPy 1.25 to 2.3 convert it, with a warning
@pytest.mark.parametrize("function", sorted(FIRST))
def test_wrong_kinds(function):
    """Of a function, of the method of an operator, and of a gradient."""
    case = FIRST[function]
    arguments = arguments_of(case)
    names = {name: "str" for name, value in arguments.items() if isinstance(value, str)}
    for name, kind in (names | options_of(case.public) | options_of(case.target)).items():
        for value in WRONG[kind]:
            check_refused(name, lambda **given: call_all(case, {**arguments, **given}), value)
    gradient = getattr(posenc, f"{function}_vjp", None)
    if gradient and options_of(gradient):
        grads, given = cotangents(case, arguments), {a: x for a, x in arguments.items() if a != "return_lse"}
        if function == "complex_order":  # whose Case has pairs of reals for complex numbers
            grads = [grad[..., 0] for grad in grads]
        given["grad"] = grads[0] if len(grads) == 1 or function == "attention" else grads
        gradient(**given)
        for name, kind in options_of(gradient).items():
            for value in WRONG[kind]:
                check_refused(name, lambda **one: gradient(**{**given, **one}), value)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dims", [None, np.array(2), 2, "2", np.array(2.0)]),
        ("base", [None, np.array(None), np.array(1j), 1j, object(), [10.0], np.array("2")]),
    ],
)
def test_axial_frequencies_of_no_sequence_and_of_no_base(name, wrong):
    for value in wrong:
        check_refused(name, lambda **given: posenc.axial_frequencies(**{"dims": (2, 4), **given}), value)


Q = np.ones((2, 6, 8))
W = np.ones(2)
REFUSED = {
    "ValueError: attention: window ": lambda: posenc.attention(Q, Q, Q, window=(10**400, None)),
    "TypeError: quantize: axis ": lambda: posenc.quantize(Q, axis=2.5),
    "ValueError: rope: attention_factor ":
        lambda: posenc.rope(np.ones((1, 4)), 1, posenc.RopeFrequencies(W, 0.0, 1.0), layout="half"),
    "ValueError: sinusoidal: positions has 1180591620717411303424; ": lambda: posenc.sinusoidal([2**70], 4),
    "ValueError: deberta: terms ": lambda: posenc.deberta(*np.ones((2, 1, 4, 4)), terms=[np.ones(2), np.ones(2)]),
    "TypeError: mrope_frequencies: sections ": lambda: posenc.mrope_frequencies(W, np.array(2)),
    "ValueError: attention_weights: k ":
        lambda: posenc.attention_weights(np.zeros((1, 0, 2)), np.zeros((1, 2**40, 0))),
    "ValueError: attention: q_segments ":
        lambda: posenc.attention(*Q[None, None, 0, :1], *Q[None, None, 0, :1], *Q[None, None, 0, :1],
                                 q_segments=np.array([2**64 - 1], np.uint64), k_segments=[-1]),
    "TypeError: sinusoidal_frequencies: dim has type type; ": lambda: posenc.sinusoidal_frequencies(int),
    "TypeError: shift_matrix: offset has ": lambda: posenc.shift_matrix([1, [2]], 4),
    "ValueError: transformer_xl: r has shape (9,); expected (2 K + 1, D) or (H, 2 K + 1, D)":
        lambda: posenc.transformer_xl(np.ones(9), np.ones(9), np.ones(9)),
    "ValueError: deberta: rel_q has shape (8,); expected (2 K, D) or (H, 2 K, D)":
        lambda: posenc.deberta(np.ones(8), np.ones(8)),
    "ValueError: shaw: rel_k has shape (4,); expected (2 K + 1, D) or (H, 2 K + 1, D)":
        lambda: posenc.shaw(np.ones(4)),
    "ValueError: tupe: pos_q has shape (4, 4); expected (H, N, D)":
        lambda: posenc.tupe(np.ones((4, 4)), np.ones((4, 4))),
    "ValueError: integrate: times is 5; expected an array with 1 axis":
        lambda: posenc.integrate(lambda t, p: p, np.ones(2), 5),
    "ValueError: inner_product: frequencies is 128; expected an array (e,), one number per pair, "
    "such as sinusoidal_frequencies(dim)": lambda: posenc.analysis.inner_product(3, 5, 128),
    "ValueError: complex_order: positions has shape (5,); expected a shape that broadcasts to (3,), "
    "the leading axes of amplitude": lambda: posenc.complex_order(np.ones((3, 4)), np.ones(4), 5),
    "TypeError: rope_frequencies: keys has 'theta'; expected base, which is the name of theta here":
        lambda: posenc.rope_frequencies(8, theta=1e4),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy 1.23 makes one of objects, and warns
@pytest.mark.parametrize("message", REFUSED)
def test_refused_by_name(message):
    """Whole messages are those that readers did not understand before."""
    with pytest.raises((TypeError, ValueError)) as caught:
        REFUSED[message]()
    assert f"{type(caught.value).__name__}: {caught.value}".startswith(message)
    assert "; expected " in str(caught.value)


@pytest.mark.parametrize("flag", [np.True_, np.False_])
def test_flags_may_be_of_numpy(flag):
    """Comparisons of arrays return np.bool_."""
    x, y = (posenc.rope(Q, 6, np.ones(4), layout="half", inverse=one) for one in (flag, bool(flag)))
    assert np.array_equal(x, y)
    assert isinstance(posenc.attention(Q, Q, Q, return_lse=flag), tuple) == bool(flag)
