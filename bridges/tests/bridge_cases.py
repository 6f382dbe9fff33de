"""Cases in posenc_bridges.autograd, posenc_bridges.jax and posenc_bridges.torch, which derive their functions from one
list of posenc."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import CASES, F64, get_path, set_path
from cases.attention import AttentionCase
from cases.bias import OF_METHOD, BiasCase, of_method, operator_of

KINDS = {
    (case.function, *case.gradients, case.label in ("placed", "count")): case
    for case in CASES
    if case.gradients and not case.label.startswith("with ")
}
"""A case of each function and set of arrays with gradients: at positions of a call, and as a length or of an operator.
Cases of attention with one operator repeat those with all operators."""
ROWS = [pytest.param(case, id=case.name) for case in KINDS.values()]


def rows(*dtypes):
    """Parametrize a test with the cases, each in one of the dtypes, because posenc itself is tested in all."""
    pairs = zip(KINDS.values(), itertools.cycle(dtypes))
    return pytest.mark.parametrize(
        ("case", "dtype"), [pytest.param(*one, id=f"{one[0].name}-{one[1]}") for one in pairs]
    )


def operator_in(module, case, arguments):
    """The operator of a case in a bridge."""
    return operator_of((case.function, {k: v for k, v in arguments.items() if k not in OF_METHOD}), module)


def through(module, case, arguments, options):
    """Call the function of a case in a bridge, with `Case.options`."""
    if isinstance(case, AttentionCase):
        bias = tuple([operator_of(one, module) for one in arguments.get("bias", ())])
        return module.attention(**{**arguments, "bias": bias})
    if not isinstance(case, BiasCase):
        return getattr(module, case.function)(**arguments, **options)
    return getattr(operator_in(module, case, arguments), case.method)(**of_method(arguments), **options)


def of_values(module, case, arguments, options):
    """The case as a function of the arrays that have gradients."""

    def function(*values):
        given = arguments
        for path, value in zip(case.gradients.values(), values, strict=True):
            given = set_path(given, path, value)
        return through(module, case, given, options)

    return function


def differentiable(case, arguments):
    """The arrays that have gradients."""
    return [np.asarray(get_path(arguments, path)) for path in case.gradients.values()]


def floats(case, arguments):
    """Convert integers with gradients to floats, because they have none in the bridges."""
    for path in case.gradients.values():
        given = np.asarray(get_path(arguments, path))
        if given.dtype.kind == "i":
            arguments = set_path(arguments, path, given.astype(F64))
    return arguments
