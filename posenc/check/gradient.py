"""The check of gradients, by central differences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .. import reference
from .inputs import Precision, call, draw, parts
from .judge import Case, Kind, coarser, hypotheses, judge, when
from .judge import Hypothesis as H
from .report import Float64, Report


def _flat(gradients: Sequence[Float64]) -> Float64:
    return np.concatenate([one.ravel() for one in gradients])


def _exchanged(first: int, second: int) -> dict[str, object]:
    def change(c: Case) -> object:
        g = list(c["gradients"])
        if second >= len(g) or g[first].shape != g[second].shape:
            return None
        g[first], g[second] = g[second], g[first]
        return g

    return {"gradients": change}


def _gathered(function: Callable[[Float64], Float64], x: Float64, grad: Float64) -> Float64 | None:
    """The cotangent written to the numbers that a function copies, or None if it does not copy them."""
    with contextlib.suppress(Exception):
        index = function(np.arange(float(x.size)).reshape(x.shape)).astype(int)
        if index.size and np.array_equal(function(x), x.ravel()[index]):
            found = np.zeros(x.size)
            found[index.ravel()] = grad.ravel()
            return found.reshape(x.shape)
    return None


GRADIENTS = hypotheses(
    "gradient",
    {
        "mean": {"gradients": lambda c: [one / c["results"] for one in c["gradients"]]},
        "forward": {
            "gradients": when(lambda c: c["forward"] is not None)(lambda c: [c["forward"], *c["gradients"][1:]])
        },
        "straight through": {
            "gradients": when(lambda c: c["grad"].shape == c["gradients"][0].shape)(
                lambda c: [c["grad"], *c["gradients"][1:]]
            )
        },
        "last row read": {"gradients": when(lambda c: c["gathered"] is not None)(lambda c: [c["gathered"]])},
        **{f"arguments {i} and {j} exchanged": _exchanged(i, j) for i in range(3) for j in range(i + 1, 4)},
    },
)


def _multiplied(c: Case, numbers: Float64) -> list[H]:
    """Read the factor of the gradient of each argument off the numbers."""
    ends = np.cumsum([one.size for one in c["gradients"]])[:-1]
    both = zip(c["gradients"], np.split(numbers, ends), strict=True)
    factors = [float(got @ one.ravel() / (one**2).sum()) if one.any() else 1.0 for one, got in both]
    text = " ".join(
        f"The gradient of argument {i} is {factor:.6g} times the right one."
        for i, factor in enumerate(factors)
        if abs(factor - 1) > 1e-6
    )
    change = "Look for a sign, a scale, a sum that became a mean, or a detached argument."
    return [
        H(
            "factor",
            text,
            change,
            {
                "gradients": list(map(np.multiply, factors, c["gradients"])),
                "uncertainty": c["uncertainty"] * max(1.0, *map(abs, factors)),
            },
        )
    ]


GRADIENT = Kind(
    "gradient",
    lambda c: _flat(c["gradients"]),
    lambda c: _flat(c["gradients"]),
    GRADIENTS,
    ("number",),
    lambda c, wanted, u: c["uncertainty"] + 64 * u * float(abs(wanted).max(initial=0)),
    labels=lambda c: {"number": c["places"]},
    more=_multiplied,
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
