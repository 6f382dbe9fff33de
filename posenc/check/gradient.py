"""The check of gradients, by central differences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .. import reference
from .inputs import Precision, call, draw, parts
from .judge import Case, Kind, coarser, hypotheses, judge
from .laws import listed, number
from .report import Float64, Reading, Report


def _flat(gradients: Sequence[Float64]) -> Float64:
    return np.concatenate([one.ravel() for one in gradients])


def _gathered(function: Callable[[Float64], Float64], x: Float64, grad: Float64) -> Float64 | None:
    """The cotangent written to the numbers that a function copies, or None if it does not copy them."""
    with contextlib.suppress(Exception):
        index = function(np.arange(float(x.size)).reshape(x.shape)).astype(int)
        if index.size and np.array_equal(function(x), x.ravel()[index]):
            found = np.zeros(x.size)
            found[index.ravel()] = grad.ravel()
            return found.reshape(x.shape)
    return None


GRADIENTS = hypotheses("gradient")


def _read(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read the factor of the gradient of each argument, or the argument that it belongs to."""
    right = c["gradients"]
    found = np.split(numbers, np.cumsum([one.size for one in right])[:-1])
    for i, (got, one) in enumerate(zip(found, right, strict=True)):
        y, text = one.ravel(), f"The gradient of argument {i} is"
        factor = float(got @ y / (y @ y)) if y.any() else 0.0
        error = c["uncertainty"] * max(1.0, abs(factor)) + 1e-6 * abs(got).max(initial=0)
        other = [
            j for j, z in enumerate(right) if j != i and z.size == y.size and (abs(got - z.ravel()) <= error).all()
        ]
        if (abs(got - y) <= error).all():
            continue
        if (abs(got - factor * y) <= error).all():
            yield Reading("factor", f"{text} {number(factor)} times the right one.", True)
        elif other:
            yield Reading("arguments", f"{text} that of argument {other[0]}.", True)
        else:
            yield Reading(f"argument {i}", f"{text} {listed(got)}; expected {listed(y)}.")


GRADIENT = Kind(
    "gradient",
    lambda c: _flat(c["gradients"]),
    GRADIENTS,
    ("number",),
    lambda c, wanted, u: c["uncertainty"] + 64 * u * float(abs(wanted).max(initial=0)),
    labels=lambda c: {"number": c["places"]},
    read=_read,
)


def gradient(
    impl: Callable[..., object],
    function: Callable[..., npt.ArrayLike],
    *arguments: npt.ArrayLike,
    dtype: Precision = "float64",
) -> Report:
    """Check a gradient by central differences.

    Parameters
    ----------
    impl : callable
        ``impl(grad, *arguments)`` returns the gradient of ``sum(grad * function(*arguments))``, one array for each
        argument, or the array alone if there is one argument.
    function : callable
        The function in float64, such as one of `posenc.reference`.
    *arguments : array
        The point at which the gradient is checked; each argument is differentiated.
    dtype : {"float64", "float32", "bfloat16", "float16"}
        Precision of `impl`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> from posenc import reference
    >>> w = reference.rope_frequencies(4)
    >>> def rotate(x):
    ...     return reference.rope(x, 3, w, layout="half")
    >>> report = posenc.check.gradient(lambda grad, x: rotate(grad), rotate, np.ones((3, 4)))
    >>> print(report.causes[0].sentence)
    The gradient of the first argument is the function applied to the cotangent; expected its transpose.
    """
    places = [np.array(one, np.float64) for one in arguments]

    def right(*at: Float64) -> Float64:
        """Call the function, whose arguments and result are copies."""
        (result,), _ = parts("gradient", function(*(x.copy() for x in at)), 1)
        return result.astype(np.float64)

    shape = right(*places).shape
    grad = draw(*shape, dtype="float64")
    fine, coarse = (reference.gradient(right, *places, grad=grad, step=step) for step in (None, 2e-5))
    gradients, others = (one if isinstance(one, tuple) else (one,) for one in (fine, coarse))
    found, precision = parts("gradient", call("gradient", impl, *(x.copy() for x in (grad, *places))), len(places))
    for i, (got, x) in enumerate(zip(found, places, strict=True)):
        if got.shape != x.shape:
            text = f"The gradient of argument {i} has shape {got.shape}; expected {x.shape}."
            return Report("gradient", False, 0.0, np.inf, precision, where=text)
    forward = None
    if shape == places[0].shape:
        with contextlib.suppress(Exception):  # the function need not take a cotangent
            forward = right(grad, *places[1:])
    case: Case = {
        "grad": grad,
        "gathered": _gathered(right, places[0], grad) if len(places) == 1 else None,
        "gradients": gradients,
        "results": float(np.prod(shape)),
        "forward": forward,
        # the truncation error grows with the square of the step; the rounding error falls with the step
        "uncertainty": float(2 * abs(_flat(gradients) - _flat(others)).max(initial=0)),
        "places": [f"argument {i}, entry {at}" for i, one in enumerate(gradients) for at in np.ndindex(one.shape)],
    }
    return judge(GRADIENT, _flat(found), case, coarser(dtype, precision))
