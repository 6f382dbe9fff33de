"""FLOATER and other flows: sinusoids as solutions, the order of each solver, independent streams, errors."""

import numpy as np
import pytest
from cases import CASES
from cases.layouts import same_bits

import posenc
from posenc import reference

ORDERS = {"rk4_38": 4, "rk4": 4, "midpoint": 2, "euler": 1}
METHODS = list(ORDERS)
PAIRS, N = 4, 9


def generator(w):
    """The matrix A with d(sin, cos)/dt = A (sin, cos): d sin(t w) = w cos(t w) and d cos(t w) = -w sin(t w) for each
    pair."""
    a = np.zeros((2 * len(w), 2 * len(w)))
    i = 2 * np.arange(len(w))
    a[i, i + 1], a[i + 1, i] = w, -w
    return a


def relu_network(a):
    """Weights of a network that computes a p = [I, -I] relu([a; -a] p), without time and biases."""
    c = len(a)
    w1, w2 = np.zeros((2 * c, c + 1)), np.zeros((c, 2 * c + 1))
    w1[:, :c] = np.concatenate([a, -a])
    w2[:, : 2 * c] = np.concatenate([np.eye(c), -np.eye(c)], axis=1)
    return w1, np.zeros(2 * c), w2, np.zeros(c)


def by_integrate(a, p0, substeps, method):
    return posenc.integrate(lambda t, p: p @ a.T, p0, np.arange(N), substeps=substeps, method=method)


def by_floater(a, p0, substeps, method):
    return posenc.floater(p0, *relu_network(a), N, dt=1.0, substeps=substeps, method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("walk", [by_integrate, by_floater])
def test_sinusoids_are_a_solution(walk, method):
    """The sinusoidal encoding solves dp/dt = A p from p(0) = (0, 1, 0, 1, ...). Halving the step divides the error by
    2**order, within 10 % at these steps."""
    wanted = posenc.sinusoidal(N, 2 * PAIRS, dtype=np.float64)
    a = generator(posenc.sinusoidal_frequencies(2 * PAIRS))
    errors = [np.abs(walk(a, wanted[0], steps, method) - wanted).max() for steps in (16, 32)]
    assert errors[0] / errors[1] == pytest.approx(2.0 ** ORDERS[method], rel=0.1)
    # a step of size h is off by at most h**(p+1) for |A| = 1, and there are 8 / h steps
    assert errors[0] <= 8 * 16.0 ** -ORDERS[method]


WALKS = {case.name: case for case in CASES if case.name in ("floater-wide", "recurrent-wide", "recurrent-gru-wide")}


@pytest.mark.parametrize("case", WALKS.values(), ids=WALKS)
def test_streams_do_not_touch(case, rng, isa):
    """A stream has the same bits alone and among any number of others, NaN and infinity among them."""
    arguments = case.arguments(33, np.float32)

    def walk(p0):
        given = {**arguments, "p0": p0}
        (rows,) = case.call(given)
        return rows, case.vjp((rows,), given)["p0"]

    p0 = rng.standard_normal((40, 33)).astype("f")
    p0[[5, 17]], p0[[6, 30]] = np.nan, np.inf
    for count in (2, 5, 12, 13, 40):
        among = walk(p0[:count])
        for i in sorted({0, count - 1, count // 2} - {5, 6, 17, 30}):
            assert all(same_bits(one, many[i]) for one, many in zip(walk(p0[i]), among, strict=True))


def test_float32_walks_do_not_drift(rng):
    """The state of 2500 steps is float64, so a float32 flow is off by the error of its field, and errors do not
    accumulate step by step."""
    c = 8
    network = relu_network(generator(posenc.sinusoidal_frequencies(c)))
    p0 = posenc.sinusoidal(1, c)[0]
    wide = posenc.floater(p0.astype(np.float64), *network, 501)
    narrow = posenc.floater(p0, *network, 501)
    # the error of the field over a time of 5, and half an ulp of the row
    assert np.abs(narrow - wide).max() <= 4 * 2.0**-24


@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_slope_of_weight_0_does_not_count(method):
    """Euler has one slope, and the midpoint does not add the first of two; 0 times infinity would be NaN."""
    p0, w1, b1 = np.ones(2), np.ones((4, 3)), np.ones(4)
    w2 = np.array([[1e308] * 5, [1.0] * 5])
    arguments = (p0, w1, b1, w2, np.zeros(2), 2)
    ours = posenc.floater(*arguments, dt=1.0, substeps=1, method=method)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = reference.floater(*arguments, dt=1.0, substeps=1, method=method)
    assert np.array_equal(ours, expected, equal_nan=True)
    grow = posenc.integrate(lambda t, p: p * [np.inf, 1.0], p0, [0.0, 1.0], substeps=1, method=method)
    assert np.array_equal(grow[1] == np.inf, [method != "rk4_38", False])  # which subtracts infinities


REFUSED = [
    ({"dt": np.inf}, ValueError, "dt"),
    ({"substeps": 0}, ValueError, "substeps"),
    ({"n": -1}, ValueError, "n"),
    ({"n": 3.0}, TypeError, "n"),
    ({"p0": 1.0}, ValueError, "p0"),
    ({"w2": np.ones((3, 5))}, ValueError, "w2"),
]


@pytest.mark.parametrize(("changed", "kind", "name"), REFUSED, ids=str)
def test_floater_refuses(changed, kind, name):
    arguments = {"p0": np.ones(3), "w1": np.ones((5, 4)), "b1": np.ones(5), "w2": np.ones((3, 6)), "b2": np.ones(3)}
    arguments = {**arguments, "n": 2, **changed}
    with pytest.raises(kind, match=rf"^floater: {name} (has|is) .+; expected "):
        posenc.floater(**arguments)
    with pytest.raises(kind, match=rf"^floater_vjp: {name} (has|is) .+; expected "):
        posenc.floater_vjp(np.ones((2, 3)), **arguments)


@pytest.mark.parametrize(
    ("h", "kind"),
    [
        (lambda t, p: p[0], ValueError),
        (lambda t, p: p[None], ValueError),
        (lambda t, p: p > 0, TypeError),
        (lambda t, p: p * 1j, TypeError),
        (lambda t, p: None, TypeError),
        (3, TypeError),
    ],
)
def test_integrate_refuses_what_is_no_slope(h, kind):
    out = np.full((2, 3), 7.0)
    with pytest.raises(kind, match=r"^integrate: h (has|is) .+; expected "):
        posenc.integrate(h, np.ones(3), [0.0, 1.0], out=out)
    assert np.all(out == 7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("start", "times"), [(np.inf, [0.0, 1.0]), (1e308, [0.0, 1e308]), (1.0, [-1e308, 1e308])])
def test_infinite_states_warn_of_nothing(start, times, method):
    states = posenc.integrate(lambda t, p: p, [start, 1.0], times, method=method)
    assert np.array_equal(states[0], [start, 1.0])
    assert not np.isfinite(states[1, 0])


def test_h_may_keep_and_change_what_it_gets():
    """h receives an array of its own at every step."""
    kept = []

    def h(t, p):
        kept.append(p)
        p *= 0.5
        return p

    ours = posenc.integrate(h, np.ones(2, np.float32), [0, 1], method="euler", substeps=2)
    assert ours.tolist() == [[1, 1], [1.5625, 1.5625]]
    assert {p.dtype for p in kept} == {np.dtype(np.float32)}
