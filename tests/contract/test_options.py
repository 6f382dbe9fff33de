"""Options of every function: a flag, a number or a name of the wrong kind is refused, by the name of the option."""

import inspect
import re

import numpy as np
import pytest
from cases import CASES, array_paths, get_path, set_path
from cases.calls import arguments_of, call_all, refused

import posenc

VAST = 10**5000
"""Python prints integers of at most 4300 digits."""
ARRAYS = (np.ones(3), np.array([1, 2]), np.ones((2, 2), int), [1, 2])
WRONG = {
    "bool": (*ARRAYS, "no", 1, None, np.array(1), np.array(True)),
    "int": (*ARRAYS, np.array([1]), VAST, -VAST, "2", 2.5, np.array(2.0), True),
    "float": (*ARRAYS, np.ones(1), VAST, -VAST, "2", b"1", 1j, True, np.array(True), np.nan),
    "Literal": (*ARRAYS, np.array(["half", "half"]), VAST, b"half", 3),
    "Layout": (*ARRAYS, np.array("half"), VAST, b"half", 3),
}
"""Values that no option of these annotations takes."""
TOGETHER = {"buckets": "max_position", "max_position": "buckets"}
"""Arguments of deberta that are passed both or not at all."""
BY_FUNCTION = {case.function: case for case in CASES if case.label in ("", "decoder")}


def options_of(function):
    """[(name, kind)] of the options with an annotation of WRONG, and another default than None."""
    if function is posenc.axial_frequencies:  # base may be an array; it has a test of its own
        return []
    found = [(name, re.match(r"\w+", str(p.annotation))) for name, p in inspect.signature(function).parameters.items()
             if p.default is not None]  # fmt: skip
    return [(name, match[0]) for name, match in found if match and match[0] in WRONG]


def check_refused(name, call, value):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(value)
    message = str(caught.value)
    assert re.match(rf"[\w.]+: ({name}|{TOGETHER.get(name, name)}) (has|is) .+; expected ", message), message
    assert len(message) < 500


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")  # NumPy 1.25 to 2.3 convert it, with a warning
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in BY_FUNCTION.items()])
def test_wrong_kinds(case):
    arguments = arguments_of(case)
    options = {**dict(options_of(case.public)), **dict(options_of(case.target))}
    for name, kind in options.items():
        for value in WRONG[kind]:
            check_refused(name, lambda value, name=name: call_all(case, {**arguments, name: value}), value)
    assert options or not any(isinstance(value, bool) for value in arguments.values())


Q = np.ones((2, 6, 8))
W = posenc.rope_frequencies(8)
WITHOUT_CASE = {
    posenc.alibi_slopes: {"heads": 2}, posenc.attention_weights: {"q": Q, "k": Q}, posenc.frequencies: {"dim": 8},
    posenc.rope_frequencies: {"dim": 8}, posenc.rope_table: {"positions": 3, "frequencies": W},
    posenc.attention_vjp: {"grad": Q, "q": Q, "k": Q, "v": Q}, posenc.quantize: {"x": Q},
    posenc.rope_vjp: {"grad": Q, "x": Q, "positions": 6, "frequencies": W, "layout": "half"},
    posenc.xpos_vjp: {"grad": Q, "x": Q, "positions": 6, "frequencies": W, "layout": "half"},
    posenc.mrope_vjp: {
        "grad": Q, "x": Q, "positions": np.ones((3, 6)), "frequencies": W, "sections": (1, 1, 2), "layout": "half",
    },
}  # fmt: skip
"""Functions that have no Case, and gradients; each with valid arguments."""


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")
@pytest.mark.parametrize("function", WITHOUT_CASE, ids=lambda function: function.__name__)
def test_wrong_kinds_without_case(function):
    arguments = WITHOUT_CASE[function]
    function(**arguments)
    for name, kind in options_of(function):
        for value in WRONG[kind]:
            check_refused(name, lambda value, name=name: function(**{**arguments, name: value}), value)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in BY_FUNCTION.items()])
@pytest.mark.parametrize("axes", [33, 40, 64])
def test_too_many_axes(case, axes):
    """NumPy's broadcasting ends at 32 axes, with an error that names no argument."""
    arguments = arguments_of(case)
    paths = [path for path in array_paths(arguments) if "arrays" not in path]  # those of a user's function
    for path in paths:
        array = get_path(arguments, path)
        if axes > 32 and np.lib.NumpyVersion(np.__version__) < "2.0.0":
            pytest.skip("this NumPy has no arrays of more than 32 axes")
        wide = array.reshape((1,) * (axes - array.ndim) + array.shape)
        with refused(case, ValueError, TypeError):
            call_all(case, set_path(arguments, path, wide))
    assert paths or "function" in arguments_of(case) or not array_paths(arguments)


@pytest.mark.parametrize("dims", [None, np.array(2), 2, "2", np.array(2.0)])
def test_axial_frequencies_of_no_sequence(dims):
    check_refused("dims", posenc.axial_frequencies, dims)


@pytest.mark.parametrize("base", [None, np.array(None), np.array(1j), 1j, object(), [10.0], np.array("2")])
def test_axial_frequencies_of_no_base(base):
    check_refused("base", lambda base: posenc.axial_frequencies((2, 4), base=base), base)


@pytest.mark.parametrize("flag", [np.True_, np.False_])
def test_flags_may_be_of_numpy(flag):
    """Comparisons of arrays return np.bool_."""
    plain = bool(flag)
    for x, y in (
        (posenc.rope(Q, 6, W, layout="half", inverse=flag), posenc.rope(Q, 6, W, layout="half", inverse=plain)),
        (posenc.xpos(Q, 6, W, layout="half", downscale=flag), posenc.xpos(Q, 6, W, layout="half", downscale=plain)),
        (posenc.attention(Q, Q, Q, return_lse=flag), posenc.attention(Q, Q, Q, return_lse=plain)),
    ):
        assert isinstance(x, tuple) == isinstance(y, tuple)
        np.testing.assert_array_equal(x[0], y[0])
