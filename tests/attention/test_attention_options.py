"""The options of attention: signatures show them, and each refuses what its check refuses."""

import inspect

import numpy as np
import pytest

import posenc
from posenc.attention.options import DEFAULTS

X = np.ones((1, 2, 3))
ARRAYS = {"attention": (X,) * 3, "attention_vjp": (X,) * 4, "attention_weights": (X,) * 2}
OWN = {"attention": {"return_lse", "out"}, "attention_vjp": {"out", "lse", "grad_lse"}, "attention_weights": set()}
"""Keywords of a function besides the options."""
EACH = pytest.mark.parametrize("function", ARRAYS)


def keywords(function):
    parameters = inspect.signature(getattr(posenc, function)).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}


@EACH
def test_signatures_show_the_options(function):
    found = keywords(function)
    assert set(found) == DEFAULTS.keys() | OWN[function]
    assert [(name, p.default) for name, p in found.items() if name in DEFAULTS] == list(DEFAULTS.items())
    assert found["causal"].annotation == "bool"


@EACH
def test_defaults_may_be_passed(function):
    results = [getattr(posenc, function)(*ARRAYS[function], **options) for options in ({}, DEFAULTS)]
    assert repr(results[0]) == repr(results[1])


NO_FLAG = [(value, TypeError) for value in ("no", 0, np.array(True), [1, 2])]
NO_NUMBER = [(value, TypeError) for value in ("no", True, 1j, np.ones(3))]
NOT_FINITE = [(value, ValueError) for value in (np.nan, np.inf, -np.inf, 10**400)]
REFUSED = {
    "causal": NO_FLAG,
    "invariant": NO_FLAG,
    "align": [(value, ValueError) for value in ("no", 1, "START", b"start", [1, 2])],
    "precision": [(value, ValueError) for value in ("no", 1, "HIGH", b"high", [1, 2])],
    "softcap": [*NO_NUMBER, *NOT_FINITE, (0, ValueError), (-1.0, ValueError)],
    "dropout": [*NO_NUMBER, *NOT_FINITE, (np.nextafter(0, -1), ValueError), (1, ValueError), (1.5, ValueError)],
    "seed": [
        *((value, TypeError) for value in ("no", True, 1.0, [1, 2])),
        *((value, ValueError) for value in (-1, 2**64, 10**5000)),
    ],
}
ACCEPTED = {
    "causal": (True, np.False_),
    "invariant": (False, np.True_),
    "align": ("start", "end", None),
    "precision": ("high", "low"),
    "softcap": (5e-324, 1, np.float32(2), 1e300, None),
    "dropout": (0, 0.0),
    "seed": (0, 2**64 - 1, np.uint8(3), None),
}


@EACH
@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(function, name):
    nothing = () if None in ACCEPTED[name] else ((None, (TypeError, ValueError)),)
    for value, kind in (*REFUSED[name], *nothing):
        with pytest.raises(kind, match=rf"^{function}: {name} (is|has) .+; expected "):
            getattr(posenc, function)(*ARRAYS[function], **{name: value})
    for value in ACCEPTED[name]:
        getattr(posenc, function)(*ARRAYS[function], **{name: value})
    with pytest.raises(ValueError, match=f"^{function}: seed is None"):
        getattr(posenc, function)(*ARRAYS[function], dropout=np.nextafter(1, 0))
    getattr(posenc, function)(*ARRAYS[function], dropout=np.nextafter(1, 0), seed=1)


@EACH
def test_words_of_refusals(function):
    for name, value, words in (
        ("dropout", 1.0, "is 1.0; expected a probability from 0 to below 1"),
        ("softcap", 0.0, "is 0.0; expected a positive number or None"),
        ("seed", -1, "is -1; expected at least 0"),
        ("precision", "medium", "is 'medium'; expected one of 'high', 'low'"),
        ("causal", 1, "has type int; expected True or False"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(posenc, function)(*ARRAYS[function], **{name: value})
        assert str(caught.value) == f"{function}: {name} {words}"


@EACH
def test_unknown_options_name_the_nearest(function):
    for name, nearest in (("casual", "causal"), ("soft_cap", "softcap"), ("dropout_p", "dropout, with seed")):
        with pytest.raises(TypeError) as caught:
            getattr(posenc, function)(*ARRAYS[function], **{name: True})
        assert str(caught.value) == f"{function}: {name} is unknown; expected {nearest}"
    with pytest.raises(TypeError) as caught:
        getattr(posenc, function)(*ARRAYS[function], xyz=True)
    assert str(caught.value) == f"{function}: xyz is unknown; expected those of help({function})"


@EACH
def test_dropout_needs_a_seed(function):
    with pytest.raises(ValueError, match=f"^{function}: seed is None; expected an integer, because dropout is not 0"):
        getattr(posenc, function)(*ARRAYS[function], dropout=0.1)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (0, -1)])
def test_minus_one_is_no_limit_elsewhere(window):
    """flash-attention writes -1 for no limit; here it would hide every key."""
    with pytest.raises(ValueError, match=r"^attention: window is \(-?\d, -?\d\); expected None, not -1, for no limit"):
        posenc.attention(*np.ones((3, 1, 4, 8)), window=window)
