"""posenc.reference: every function that computes has a twin with the same arguments, and without kernels."""

import ast
import ctypes
import inspect
import platform
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
from cases import CASES, F64, in_longdouble

import posenc
from posenc import analysis, reference

MEMORY = {"out", "dtype"}
"""Parameters that say where results are stored, and in which dtype."""


def computing_functions():
    """Public functions of posenc and posenc.analysis that are no runtime control; the twin of f_vjp is `gradient`.

    `layers` computes nothing: it reads a config by `rope_from_config`.
    """
    named = ((name, getattr(module, name)) for module in (posenc, analysis) for name in module.__all__)
    for name, function in named:
        is_control = getattr(function, "__module__", "") == "posenc.runtime"
        if inspect.isfunction(function) and not is_control and not name.endswith("_vjp") and name != "layers":
            yield pytest.param(function, id=name)


FUNCTIONS = list(computing_functions())


def test_every_name_of_the_reference_is_a_name_of_posenc():
    unknown = [name for name in reference.__all__ if not hasattr(posenc, name) and not hasattr(analysis, name)]
    assert unknown == ["dropout_factors", "gradient"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_twin_has_the_same_arguments(function):
    """Names, order, kinds and defaults; annotations and the parameters of memory aside. A twin may take None for an
    argument that posenc requires."""
    found, twin = (
        [p for p in inspect.signature(one).parameters.values() if p.name not in MEMORY]
        for one in (function, getattr(reference, function.__name__))
    )
    assert [(p.name, p.kind) for p in twin] == [(p.name, p.kind) for p in found]
    for ours, theirs in zip(found, twin, strict=True):
        assert theirs.default == ours.default or (theirs.default is None and ours.default is inspect.Parameter.empty)


def test_the_reference_imports_numpy_and_itself():
    imported = set()
    for file in Path(reference.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level <= 1
                imported |= {node.module.split(".")[0]} if node.level == 0 else set()
    assert "numpy" in imported
    assert imported <= {"numpy", *sys.stdlib_module_names}


# ---- precisions ----


def test_longdouble_in_longdouble_out():
    assert in_longdouble(reference.sinusoidal)([3.0, 0.1], 8).dtype == np.longdouble
    assert in_longdouble(reference.rope)(np.ones((2, 4)), 2, [1.0, 0.1], layout="half").dtype == np.longdouble
    assert reference.sinusoidal([3.0, 0.1], 8).dtype == np.float64


TWINS = [pytest.param(case, id=case.name) for case in CASES if case.function != "integrate"]
"""Without the case that calls a function of NumPy."""


UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}
"""FE_UPWARD of <fenv.h>."""


@pytest.mark.parametrize("case", TWINS)
def test_the_same_numbers_in_mpmath(case):
    """They are within the bound of a float64 result. mpmath computes with integers, so if float64 rounds upward, a
    result changes only by an inexact float64."""
    arguments = case.arguments(max(3, case.least))
    expected, nearest = case.expect(arguments), case.exact(arguments)
    for e, f, bound in zip(expected, nearest, case.bounds(expected, F64, arguments), strict=True):
        finite = np.isfinite(e)
        assert np.array_equal(f[~finite], e[~finite])
        assert np.all(np.abs(f[finite] - e[finite]) <= bound[finite] + np.spacing(np.abs(e[finite])))
    if sys.platform == "linux" and platform.machine() in UPWARD:
        set_rounding = ctypes.CDLL(None).fesetround
        assert set_rounding(UPWARD[platform.machine()]) == 0
        try:
            upward = case.exact(arguments)
        finally:
            set_rounding(0)
        assert all(map(np.array_equal, nearest, upward))


def test_numbers_of_mpmath_keep_their_digits():
    with mpmath.workdps(60):
        position = np.array([mpmath.mpf(10) ** 22])
        ((sine, cosine),) = reference.sinusoidal(position, 2, base=mpmath.mpf(10000))
        assert abs(sine - mpmath.sin(mpmath.mpf(10) ** 22)) < mpmath.mpf(10) ** -50
        rotated = reference.rope(np.array([[1.0, 0.0]]), position, np.array([mpmath.mpf(1)]), layout="half")
        assert abs(rotated[0, 0] - cosine) + abs(rotated[0, 1] - sine) < mpmath.mpf(10) ** -50
    assert abs(float(sine) - -0.8522008497671888) < 1e-16


# ---- the gradient ----


def test_gradient_of_a_known_function(rng):
    """The error is (cbrt(eps))**2 times the third derivative, and eps / cbrt(eps) times the function."""
    x, y = rng.standard_normal(5), rng.standard_normal((3, 5))
    grad = rng.standard_normal((3, 5))
    of_x, of_n, of_y = reference.gradient(lambda x, n, y: np.sin(x) ** n * y, x, 2, y, grad=grad)
    assert of_n is None
    bound = 64 * np.finfo(np.float64).eps ** (2 / 3)
    assert np.abs(of_x - (grad * y * np.sin(2 * x)).sum(0)).max() <= bound
    assert np.abs(of_y - grad * np.sin(x) ** 2).max() <= bound
    assert reference.gradient(np.sum, x).tolist() == pytest.approx([1.0] * 5, abs=bound)
    wide = reference.gradient(np.sin, x.astype(np.longdouble))
    assert np.abs(wide - np.cos(x.astype(np.longdouble))).max() <= 64 * np.finfo(np.longdouble).eps ** (2 / 3)


def test_gradient_of_several_and_of_complex_results(rng):
    w, grads = rng.uniform(0, 1, 3), rng.standard_normal((2, 4, 3))
    cos, sin = reference.rope_table(4, w)
    wanted = (np.arange(4)[:, None] * (cos * grads[1] - sin * grads[0])).sum(0)
    found = reference.gradient(lambda w: reference.rope_table(4, w), w, grad=tuple(grads))
    assert np.abs(found - wanted).max() <= 1e-8
    amplitude, grad = rng.standard_normal((4, 3)), grads[0] + 1j * grads[1]
    ours = posenc.complex_order_vjp(grad, amplitude, w, 4)
    twin = reference.gradient(reference.complex_order, amplitude, w, 4, grad=grad)
    assert np.abs(twin[0] - ours.amplitude).max() <= 1e-8
    assert np.abs(twin[1] - ours.frequency).max() <= 1e-8
    assert twin[2] is None


# ---- arguments that no case has ----
