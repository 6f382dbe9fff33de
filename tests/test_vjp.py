"""Every gradient of every vjp against central differences of the oracle, which is not our code."""

import numpy as np
import pytest
from cases import CASES, DTYPES, get_path, set_path
from layouts import same_bits

ROWS = [pytest.param(case, id=case.name) for case in CASES if case.gradients]
STEP = 1e-5
# Central differences of a function of size 1 with step h in float64 are off by about eps/h = 2e-11 and h**2 = 1e-10
# times its third derivative (positions count with w**3 <= 8, frequencies with p**3, which is why the step there is
# relative to the largest position); 1e-6 of the largest entry is the documented bound.
ALLOWED = 1e-6


def cotangents(case, arguments, seed=1):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(np.shape(e)) for e in case.expect(arguments))


def differences(case, arguments, grads, path):
    """d sum(grad * oracle) / d argument, entry by entry."""
    given = np.array(get_path(arguments, path), np.float64)
    gradient = np.zeros(given.shape)
    step = STEP
    if path[0] == "frequencies":
        step /= 1 + max(
            np.abs(np.asarray(arguments[a])).max(initial=0) for a in ("positions", "offset") if a in arguments
        )
    for entry in np.ndindex(given.shape):
        sides = []
        for sign in (1, -1):
            moved = given.copy()
            moved[entry] += sign * step
            results = case.oracle(**set_path(arguments, path, moved))
            results = results if isinstance(results, tuple) else (results,)
            sides.append((moved[entry], sum((g * r).sum() for g, r in zip(grads, results, strict=True))))
        (above, up), (below, down) = sides
        gradient[entry] = (up - down) / (above - below)
    return gradient


@pytest.mark.parametrize("n", [1, 3, 9])
@pytest.mark.parametrize("case", ROWS)
def test_central_differences(case, n, isa):
    arguments = case.arguments(n)
    grads = cotangents(case, arguments)
    gradients = case.vjp(grads, arguments)
    for name, path in case.gradients.items():
        wanted = differences(case, arguments, grads, path)
        assert gradients[name].shape == wanted.shape
        assert np.abs(gradients[name] - wanted).max() <= ALLOWED * max(np.abs(wanted).max(), 1e-9), name


@pytest.mark.parametrize("case", ROWS)
def test_dtype_and_shape(case):
    """Data arguments get their own dtype back; positions, offsets and frequencies are float64."""
    for dtype in DTYPES if case.data else DTYPES[-1:]:
        arguments = case.arguments(5, dtype)
        grads = tuple(g.astype(dtype) for g in cotangents(case, arguments))
        gradients = case.vjp(grads, arguments)
        for name, path in case.gradients.items():
            given = np.asarray(get_path(arguments, path))
            assert gradients[name].shape == given.shape
            assert gradients[name].dtype == (dtype if path[0] in case.data else np.float64)


@pytest.mark.parametrize("case", ROWS)
def test_narrow_gradients_follow_the_wide_ones(case):
    """float32 data: the sums are of float32 products, so entries are off by no more than the rounding of as many
    terms as the largest array has, at the size of the largest entry."""
    arguments = case.arguments(9, np.float32)
    grads = tuple(g.astype(np.float32) for g in cotangents(case, arguments))
    narrow, wide = case.vjp(grads, arguments), case.vjp(grads, case.cast(arguments, np.float64))
    terms = max(np.size(g) for g in grads)
    for name in case.gradients:
        bound = np.sqrt(terms) * 4 * np.finfo(np.float32).eps * max(np.abs(wide[name]).max(), 1)
        assert np.abs(narrow[name] - wide[name]).max() <= bound, name


@pytest.mark.parametrize("case", ROWS)
def test_linear_in_grad(case):
    arguments = case.arguments(9)
    a, b = cotangents(case, arguments, 1), cotangents(case, arguments, 2)
    of_a, of_b = case.vjp(a, arguments), case.vjp(b, arguments)
    doubled = case.vjp(tuple(2 * x for x in a), arguments)
    summed = case.vjp(tuple(x + y for x, y in zip(a, b, strict=True)), arguments)
    zero = case.vjp(tuple(0 * x for x in a), arguments)
    for name in case.gradients:
        assert np.array_equal(doubled[name], 2 * of_a[name])  # a power of two: exact
        largest = np.abs(of_a[name]).max() + np.abs(of_b[name]).max()
        assert np.abs(summed[name] - of_a[name] - of_b[name]).max() <= 1e-13 * largest  # sums of some 100 roundings
        assert not zero[name].any()


@pytest.mark.parametrize("case", ROWS)
def test_deterministic(case):
    arguments = case.arguments(33)
    grads = cotangents(case, arguments)
    first, second = case.vjp(grads, arguments), case.vjp(grads, arguments)
    assert all(same_bits(first[name], second[name]) for name in case.gradients)


@pytest.mark.parametrize("case", ROWS)
def test_empty(case):
    """Nothing in, zero gradients out."""
    arguments = case.arguments(0)
    gradients = case.vjp(cotangents(case, arguments), arguments)
    for name, path in case.gradients.items():
        assert gradients[name].shape == np.shape(get_path(arguments, path))
        assert not gradients[name].any()
