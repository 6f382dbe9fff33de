"""The name of the public function in an error message: once, and in front of the message alone."""

import inspect
import pickle
import traceback

import numpy as np
import pytest

import posenc
from posenc._core_api.door import door


def _fail(text):
    """Raise an error."""
    raise ValueError(text)


@pytest.mark.parametrize("text", [": x has no axes; expected one", "other: x is 1", "no name", 1])
def test_a_door_names_what_has_no_name(text):
    expected = f"rope{text}" if str(text).startswith(": ") else text
    with pytest.raises(ValueError, match=f"^{expected}$") as caught:
        door(_fail, name="rope")(text)
    assert caught.value.args == (expected,)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "_fail"


def test_a_door_inside_another_keeps_its_name():
    with pytest.raises(ValueError, match=r"^_fail: x"):
        door(door(_fail), name="outer")(": x has no axes; expected one")


def test_a_door_is_the_function_itself_for_others():
    assert pickle.loads(pickle.dumps(posenc.attention)) is posenc.attention
    assert inspect.unwrap(posenc.attention) is not posenc.attention
    assert "q_segments" in inspect.signature(posenc.attention).parameters
    assert posenc.attention.__module__ == "posenc.attention"
    assert (posenc.attention.__doc__ or "").startswith("Compute attention in tiles")


def test_names_of_methods_are_those_of_their_operators():
    bias = posenc.alibi([1.0])
    with pytest.raises(TypeError, match=r"^alibi.matrix: n has type str; expected an integer"):
        bias.matrix("3")
    with pytest.raises(TypeError, match=r"^alibi.matrix: n has type str; expected an integer"):
        posenc.PositionBias.matrix(self=bias, n="3")
    with pytest.raises(TypeError, match=r"^\(alibi \+ alibi\).matrix_vjp: n has type str; expected an integer"):
        (bias + bias).matrix_vjp(np.ones((1, 3, 3)), "3")
    with pytest.raises(TypeError, match=r"^Quantized: codes has type int"):
        posenc.Quantized(1, 1)


def test_an_error_of_an_array_of_the_user_is_the_cause():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise KeyError("broken")

    with pytest.raises(TypeError, match=r"^learned: table has type Broken; expected an array") as caught:
        posenc.learned(Broken(), 3)
    assert isinstance(caught.value.__cause__, KeyError)
