"""Random calls of every public function, against the oracles of tests/cases: the property test of the library.

tests/draws.py draws all functions, dtypes, memory layouts, byte orders, positions, masks, options, operators and their
sums, instruction sets and one to three threads, with gradients and `out`. Some calls have a wrong argument, and in some
`out` overlaps an argument. The calls are the same each time. Others, and more of them:

    POSENC_TEST_SEED=7 POSENC_TEST_CALLS=100000 python -m pytest -n auto tests/contract/test_random_calls.py
"""

import os
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, F64, array_paths, as_tuple, get_path, set_path, terms
from cases.attention import AttentionCase, arrays_of_bias
from cases.bias import BiasCase
from cases.deviation import STEP
from cases.gradient import call as gradient_call
from cases.gradient import formula_and_bounds
from draws import Operator, arrays_of, chance, describe, draw, map_arrays, pick, spoil
from runner import Runner

import posenc
import posenc.analysis
from posenc.runtime import EMULATED

SEED = int(os.environ.get("POSENC_TEST_SEED") or 1)
CALLS = int(os.environ.get("POSENC_TEST_CALLS") or 2000)
VARIATIONS = 3
"""Calls with changed arrays after each call."""
NAMES = frozenset((*posenc.__all__, *posenc.analysis.__all__))
EXPECTED_ERRORS = (TypeError, ValueError, IndexError, FileNotFoundError)
FORM = re.compile(r"[\w.]+(\(\))?: \w+ .*", re.DOTALL)
LARGEST_FOR_ORACLE, LARGEST_FOR_GRADIENT = 1 << 22, 1 << 18
"""Products of a query and a key in all heads; larger matrices take the oracle seconds."""
FIRST = {case.function: case for case in reversed(CASES)}
"""Cases whose oracles and tolerances take any arguments of the function."""
ATTENTION = FIRST["attention"]
CONTENT = {case.function for case in CASES if isinstance(case, BiasCase) and case.method == "logits"}
FARTHEST = 1e4
"""Positions beyond which an oracle in np.longdouble or float64 rounds angles more than the function does."""


@pytest.fixture(scope="module")
def runner():
    return Runner([*posenc.runtime.isas(), *EMULATED], NAMES)


@pytest.mark.every_isa
@pytest.mark.parametrize("index", range(CALLS))
def test_random_call(runner, index):
    """A call returns, or raises an error whose message begins with the name of the function; it warns only of a
    deprecation, leaves its arguments as they were, and writes the same numbers to any `out` and no byte beside it.
    Results and the derivative in a random direction are the oracle's."""
    again = f"tests/contract/test_random_calls.py::test_random_call[{index}]"
    print(f"POSENC_TEST_SEED={SEED} POSENC_TEST_CALLS={index + 1} python -m pytest '{again}'")
    print(describe(draw(SEED, index, len(runner.isas), NAMES)))
    results, call = runner.run(SEED, index)
    name = results.get("error")
    if name:
        assert name in {error.__name__ for error in EXPECTED_ERRORS}, results["_message"]
        assert FORM.fullmatch(results["_message"])
    assert set(results["warnings"].split()) <= {"DeprecationWarning", "FutureWarning"}
    assert results["untouched"]
    if "memory of out" in results:
        assert results["out is returned"]
        first = results.get("result", results.get("result.0"))
        has_nan = np.isnan(np.asarray(first, np.complex128)).any()  # NaNs have any bits
        assert has_nan or results["memory of out"].tobytes() == results["expected memory"].tobytes()
    if not (name or call.spoiled):
        rng = np.random.default_rng([SEED, index, 2])
        if call.out and chance(rng, 0.5):
            check_overlap(runner, call, results, rng)
        check_oracle(runner, call, results, rng)
    check_variations(runner, call, np.random.default_rng([SEED, index, 3]))


def check_overlap(runner, call, results, rng):
    """An `out` that overlaps an argument gets the same bits as one of its own, or is refused."""
    arguments = runner.made(call.method_arguments if call.method else call.arguments)
    result = results.get("result", results.get("result.0"))
    if not isinstance(result, np.ndarray) or not result.size or call.out == "input":
        return
    shared = [k for k, v in arguments.items() if isinstance(v, np.ndarray) and v.dtype == result.dtype and v.size]
    if not shared:
        return
    name = pick(rng, shared)
    given, shift = arguments[name], int(rng.integers(0, arguments[name].size))
    buffer = np.zeros(max(given.size, shift + result.size), result.dtype)
    laid = buffer[: given.size].reshape(given.shape)
    laid[...] = given
    out = buffer[shift : shift + result.size].reshape(result.shape)
    options = {key: value for key, value in arguments.items() if key != "dtype"} | {name: laid, "out": out}
    function = getattr(sys.modules[call.module], call.function)
    if call.method:
        function = getattr(function(**runner.made(call.arguments)), call.method)
    with posenc.runtime.use_isa(runner.isas[call.isa]), posenc.threads(call.threads):
        try:
            function(**options)
        except ValueError:
            return
    assert np.array_equal(out.astype(np.complex128), result.astype(np.complex128), equal_nan=True), (name, shift)


def check_oracle(runner, call, results, rng):
    """Compare results and gradients with the oracle, if it knows these arguments."""
    own = [value for key, value in results.items() if key == "result" or re.fullmatch(r"result\.[^.]+", key)]
    found = [value for value in own if value is not None and not isinstance(value, str)]  # as a layout
    case = call.case or FIRST.get(call.function)
    if case is None or call.redrawn or not found or call.out == "input":  # which has overwritten it
        return
    arguments = of_oracle({**call.arguments, **call.method_arguments}, case)
    arguments.pop("dtype", None)
    far = any(np.abs(a).max(initial=0) > FARTHEST for a in arrays_of(arguments) if a.dtype.kind == "i")
    has_angles = "frequencies" in arguments or "sandwich" in {name for name, _ in terms(arguments)}
    if not call.case and far and has_angles:
        return
    if too_large(arguments, LARGEST_FOR_ORACLE) or not finite(arguments):
        return
    in_use = posenc.runtime.use_isa(runner.isas[call.isa])  # bounds of 16-bit products depend on it
    with in_use, np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = case.expect(arguments)
        bounds = case.bounds(expected, np.asarray(found[0]).dtype.newbyteorder("="), arguments)
    if case is ATTENTION:
        assert found[0].dtype == call.arguments["q"].dtype.newbyteorder("=")
    for result, e, bound in zip(found, expected, bounds, strict=True):
        if np.iscomplexobj(result):  # oracles write (real, imaginary)
            result = np.stack([result.real, result.imag], -1)
        compare(np.asarray(result), e, bound if call.case or case is ATTENTION else 2 * bound)  # of other arguments
    if call.gradient and not too_large(arguments, LARGEST_FOR_GRADIENT):
        check_gradient(case, map_arrays(widened, arguments), rng)
        if case is ATTENTION and all(arguments[name].dtype == np.float32 for name in "qkv"):
            check_narrow_gradient(runner, call, arguments, rng)


def check_gradient(case, arguments, rng):
    """The derivative of sum(grad * result) in a random direction of one argument, by central differences in float64."""
    known, paths = array_paths(arguments), dict(case.gradients)
    if case is ATTENTION:
        paths |= arrays_of_bias(arguments) | {"sink": ("sink",), "scale": ("scale",)}
    paths |= {name: (*path, "inv_freq") for name, path in paths.items() if (*path, "inv_freq") in known}
    paths = {name: path for name, path in paths.items() if path in known}
    expected = case.expect(arguments)
    if not paths or any(np.isnan(e).any() for e in expected):
        return
    finite = tuple(np.isfinite(e) for e in expected)  # lse is -inf where a query sees no key
    grads = tuple(np.where(f, rng.standard_normal(f.shape), 0) for f in finite)
    gradients = case.vjp(grads, arguments)
    field, path = pick(rng, list(paths.items()))
    given = np.array(get_path(arguments, path), np.float64)
    if not given.size:
        return
    direction = rng.standard_normal(given.shape)
    step = STEP / (1 + np.abs(direction).max())
    if field in ("frequencies", "frequency"):
        step /= 1 + max(np.abs(arguments[name]).max(initial=0) for name in ("positions", "offset") if name in arguments)
    sides = []
    for sign in (1, -1, 2, -2):
        moved = set_path(arguments, path, given + sign * step * direction)
        results = zip(grads, as_tuple(case.truth(moved)), finite, strict=True)
        sides.append(sum((g * np.where(f, r, 0)).sum() for g, r, f in results))
    near, far = (sides[0] - sides[1]) / (2 * step), (sides[2] - sides[3]) / (4 * step)
    products = np.asarray(gradients[field], np.float64) * direction
    size = np.abs(products).sum() + abs(near) + 1e-9
    if abs(near - far) > 1e-5 * size:  # a kink, a jump, or a third derivative that is too large for this step
        return
    rounding = 1e-12  # of a sum of 4500 numbers of size 1
    assert abs(products.sum() - near) <= 1e-4 * size + rounding, field


def check_narrow_gradient(runner, call, arguments, rng):
    """Each entry of the gradients of q, k and v in float32 is within its a-priori bound."""
    options = {name: value for name, value in arguments.items() if name not in ("q", "k", "v", "return_lse")}
    if "dropout" in options or {name for name, _ in terms(options)} & CONTENT:
        return
    options.pop("precision", None)
    grad = rng.standard_normal((*call_shape(arguments), arguments["v"].shape[-1])).astype(np.float32)
    with posenc.runtime.use_isa(runner.isas[call.isa]):
        given, ours, theirs = gradient_call(*(arguments[name] for name in "qkv"), grad, **options)
        found = posenc.attention_vjp(*given, **ours)
    exact, bounds = formula_and_bounds(*given, work=np.dtype(np.float32), **theirs)
    for name, wanted, bound in zip("qkv", exact, bounds, strict=True):
        error = np.abs(getattr(found, name).astype(F64) - reduced(wanted, arguments[name].shape))
        assert (error <= reduced(bound, arguments[name].shape) * (1 + np.finfo(np.float32).eps)).all(), name


def call_shape(arguments):
    q, k, v = (arguments[name].shape for name in "qkv")
    return *np.broadcast_shapes(q[:-3], k[:-3], v[:-3]), *q[-3:-1]


def reduced(gradient, shape):
    """A gradient or its bound, summed over the batch axes along which its argument was broadcast."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1 != gradient.shape[axis])
    return gradient.sum(axes, keepdims=True)


def of_oracle(value, case=None):
    """The arguments as the oracles take them: operators as pairs, and attention's positions as arrays."""
    if isinstance(value, Operator):
        return value.name, of_oracle(value.arguments)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(of_oracle, value))
    if not isinstance(value, dict):
        return value
    found = {key: of_oracle(item) for key, item in value.items()}
    for name in [name for name in found if name.endswith("positions")]:
        if isinstance(found[name], int):
            found[name] = np.arange(found[name]) + found.pop("start", 0)
        # Differences of unsigned positions would wrap.
        found[name] = map_arrays(lambda a: a.astype(np.int64) if a.dtype.kind in "iu" else a, found[name])
    bias = found.get("bias")
    if isinstance(case, AttentionCase) and isinstance(bias, tuple) and bias and isinstance(bias[0], str):
        found["bias"] = (bias,)
    return found


def finite(arguments):
    """The bounds hold for numbers that are not near the range of float16. -inf masks a pair in a dense bias."""
    numbers = [np.asarray(a, np.float64) for a in arrays_of(arguments) if a.dtype.kind not in "biuOSUc"]
    return all((np.isneginf(a) | (np.abs(a) < 1e4)).all() for a in numbers)


def widened(array):
    """The same real numbers in float64, of which the oracle's derivatives are."""
    return array if array.dtype.kind in "biuOSUc" else array.astype(F64, copy=False)


def too_large(arguments, most):
    if not {"q", "k"} <= set(arguments):
        return False
    q, k = arguments["q"], arguments["k"]
    return np.prod(q.shape[:-1], dtype=float) * k.shape[-2] * q.shape[-1] > most


def compare(result, expected, bound):
    assert result.shape == expected.shape
    half, result = result.dtype == np.float16, result.astype(F64)
    if half:  # from 65520 on, numbers of the oracle are infinite in float16
        expected = np.where(np.isinf(result) & (np.sign(result) * expected + bound >= 65520), result, expected)
    known = np.isfinite(expected)
    assert np.array_equal(result[~known], expected[~known], equal_nan=True)
    error = np.nan_to_num(np.abs(result[known] - expected[known]), nan=np.inf)
    assert (error <= bound[known]).all()


# ---- changed arrays ----


def check_variations(runner, call, rng):
    """A call with an array cut, stored otherwise, of another dtype, or with a number that is not finite, too large or
    out of range, or an argument of a wrong kind, returns, or raises an error of the same form."""
    if holds_function(call.arguments):  # a function of the caller that expects these shapes
        return
    with posenc.runtime.use_isa(runner.isas[call.isa]), posenc.threads(call.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(VARIATIONS):
            changed = replace(call, arguments=spoil(rng, call.arguments), out=None)
            if call.method and chance(rng, 0.5):
                changed = replace(changed, method_arguments=spoil(rng, call.method_arguments))
            print(describe(changed))
            message = ""
            try:
                runner.perform(changed, SEED, 0, {})
            except EXPECTED_ERRORS as error:
                message = str(error)
            assert not message or FORM.fullmatch(message)


def holds_function(value):
    if isinstance(value, Operator):
        return holds_function(value.arguments)
    if isinstance(value, dict):
        return any(map(holds_function, value.values()))
    return any(map(holds_function, value)) if isinstance(value, tuple | list) else callable(value)
