"""Cases in posenc_bridges.jax and posenc_bridges.autograd, whose functions take traced arrays."""

from __future__ import annotations

import numpy as np
from cases import F64, get_path, set_path
from cases.attention import AttentionCase
from cases.bias import OF_METHOD, BiasCase, of_method, operator_of

import posenc


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


def of_posenc():
    """A function for `distance_function` that calls posenc and keeps the result, and a function that returns it."""
    kept = []

    def slopes():
        if not kept:
            del [np.full((8, 4), 7.7, np.float32) for _ in range(9)][:]  # memory that the result may get
            kept.append(posenc.sinusoidal(8, 4))
        return kept[0]

    def function(rel, width):
        return -np.abs(np.asarray(rel))[None] * slopes()[1, 1]

    return function, slopes
