"""Every operator on the logits: copied, pickled, frozen, shown, at positions of its own, and of one of two kinds."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from cases import CASES, array_paths, as_tuple, get_path, map_arrays
from cases.attention import AttentionCase
from cases.bias import OF_METHOD, BiasCase, of_method
from cases.calls import arguments_of
from cases.deviation import cotangents
from cases.layouts import same_bits

import posenc
from posenc import _core, interop

ROWS = [pytest.param(case, id=case.name) for case in CASES if isinstance(case, BiasCase)]
CALLS = [
    pytest.param(case, id=case.name)
    for case in CASES
    if isinstance(case, AttentionCase) and case.make(np.random.default_rng(0), 3).get("bias")
]
"""Calls of attention with each operator alone, and with several, some of them at positions of their own."""
DISTANCES = [name for name, row in _core.TABLE.items() if "rel(l) tiled" in row]
READ_NONE = {"dense", "toeplitz", "cope", "tupe"}


def call_of(case):
    """The function, its arguments, and the operators with their sum."""
    given = case.with_operators(arguments_of(case))
    return getattr(posenc, case.function), given, [*given["bias"], sum(given["bias"])]


def flat(arrays):
    """The arrays of an operator or of the parts of a sum."""
    if isinstance(arrays, tuple):
        return [array for inner in arrays for array in flat(inner)]
    return [arrays]


def same(one, other):
    return (one is None and other is None) or same_bits(one, other)


def pickled(bias):
    return pickle.loads(pickle.dumps(bias))


def made_again(bias):
    """The operator of the calls that bridges make: every option is passed, also those that are None."""
    return interop.operator_of(interop.calls_of(bias)) if isinstance(bias, posenc.Bias) else bias


@pytest.mark.parametrize("case", CALLS)
def test_copies_are_the_same_operator(case):
    function, given, operators = call_of(case)
    wanted = as_tuple(function(**given))
    for copied in (copy.copy, copy.deepcopy, pickled, made_again):
        for bias in operators:
            again = copied(bias)
            assert type(again) is type(bias)
            assert (repr(again), repr(copied(bias.arrays))) == (repr(bias), repr(bias.arrays))
            assert again.options.keys() == bias.options.keys()
            for one, other in zip(flat(again.arrays), flat(bias.arrays), strict=True):
                assert same(one, other)
                assert one is None or not one.flags.writeable
        for biases in ([copied(bias) for bias in operators[:-1]], copied(operators[-1])):
            assert all(map(same_bits, as_tuple(function(**{**given, "bias": biases})), wanted))


@pytest.mark.parametrize("case", CALLS)
def test_immutable_and_shown(case):
    """Arrays are attributes, too."""
    *operators, total = call_of(case)[2]
    for bias in (*operators, total):
        for attribute in ("name", "arrays", "options", "dtypes", "own_positions"):
            with pytest.raises(AttributeError, match="cannot assign to field"):
                setattr(bias, attribute, None)
        with pytest.raises(TypeError, match="does not support item assignment"):
            bias.options["other"] = None
        for array in flat(bias.arrays):
            if array is not None and array.size:
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 0
    for bias in operators:
        arrays = bias.arrays._asdict()
        assert repr(bias).startswith(f"<posenc.{bias.name}: ")
        if "function" not in bias.options:  # functions are shown by name
            given = {option: value for option, value in bias.options.items() if value is not None}
            assert all(f"{option}={value}" in repr(bias) for option, value in given.items())
            assert all(f"{name} {getattr(x, 'shape', x)}" in repr(bias) for name, x in arrays.items())
            assert all(getattr(bias, name) is array for name, array in arrays.items())
        sides = zip(("q_positions", "k_positions"), bias.own_positions, strict=True)
        assert all((f"{name} {np.shape(x)}" in repr(bias)) == (x is not None) for name, x in sides)
        parameters = inspect.signature(getattr(posenc, bias.name)).parameters
        assert list(arrays) == [name for name in parameters if name in arrays]
        assert list(bias.options) == [name for name in parameters if name not in arrays]  # defaulted or not
        assert {"name", "options", "heads", "at", *arrays} <= {*dir(bias)}
        assert not {"scheme", "term"} & {*dir(bias)}
        with pytest.raises(AttributeError, match="has no attribute 'none_of_them'"):
            _ = bias.none_of_them


@pytest.mark.parametrize("case", ROWS)
def test_one_of_two_kinds(case):
    """An operator has the methods of its kind alone, and knows its heads."""
    arguments = arguments_of(case)
    bias, is_position = case.bias(arguments), case.method == "matrix"
    assert isinstance(bias, posenc.PositionBias if is_position else posenc.ContentBias)
    assert bias.heads in ({case.call(arguments)[0].shape[-3]} | (set() if is_position else {None}))
    methods = {name for name in ("matrix", "matrix_vjp", "logits", "logits_vjp") if hasattr(bias, name)}
    assert methods == ({"matrix", "matrix_vjp"} if is_position else {"logits", "logits_vjp"})


@pytest.mark.parametrize("case", ROWS)
def test_arrays_are_copied_in_their_dtypes(case):
    """Writing to the caller's arrays later does not change the operator, and they remain writeable. `dense` has a view.
    Tables keep their dtypes; parameters of biases are float64, beside the dtypes of their gradients."""
    arguments = arguments_of(case)
    given, bias = of_method(arguments), case.bias(arguments)
    before = getattr(bias, case.method)(**given).copy()
    for path in array_paths(arguments) if case.function != "dense" else ():
        if path[0] not in OF_METHOD:
            get_path(arguments, path)[...] = 7
    assert same_bits(getattr(bias, case.method)(**given).copy(), before)
    bias = case.bias(map_arrays(lambda a: a.astype(">f4") if a.dtype.kind == "f" else a, arguments_of(case)))
    assert {dtype.newbyteorder("=") for dtype in bias.dtypes if dtype} <= {np.dtype(np.float32)}
    if case.method == "logits":
        assert {array.dtype for array in flat(bias.arrays) if array is not None} == {np.dtype(np.float32)}


@pytest.mark.parametrize("case", [row for row in ROWS if row.id in (*DISTANCES, "sandwich", "toeplitz")])
def test_a_matrix_of_distances_is_a_view(case):
    """One number for each distance, in memory of O(n + m)."""
    matrix = case.call(case.arguments(65))[0]
    assert matrix.strides[1:] == (-4, 4)
    assert not matrix.flags.writeable


@pytest.mark.parametrize("case", ROWS)
def test_own_positions_are_explicit_positions(case):
    """Also in gradients. The positions are copied."""
    arguments = arguments_of(case)
    bias, given, grads = case.bias(arguments), of_method(arguments), cotangents(case, arguments)
    sizes = [given.get("n"), given.get("m")] if case.method == "matrix" else [given[a].shape[-2] for a in "qk"]
    at = {side: given.pop(side, np.arange(n)).copy() for side, n in zip(OF_METHOD[4:6], sizes, strict=True)}
    given.pop("align", None)
    if bias.name in READ_NONE:
        with pytest.raises(TypeError, match=f"^{bias.name}.at: q_positions has a value; expected another operator"):
            bias.at(**at)
        return
    vjp = "matrix_vjp" if case.method == "matrix" else "logits_vjp"
    wanted = getattr(bias, case.method)(**given, **at), *getattr(bias, vjp)(*grads, **given, **at)
    placed = bias.at(**at)
    for own in at.values():
        own[...] = 0
    found = getattr(placed, case.method)(**given), *getattr(placed, vjp)(*grads, **given)
    assert all(all(map(same, as_tuple(a), as_tuple(b))) for a, b in zip(found, wanted, strict=True))
    with pytest.raises(ValueError, match=rf"^{bias.name}.{case.method}: q_positions has a value; expected None"):
        getattr(placed, case.method)(**given, **at)
