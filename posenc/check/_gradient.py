"""The check of gradients, by central differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ._inputs import Precision, call, draw, parts
from ._judge import ROUNDOFF, Case, Kind, coarser, judge
from ._laws import listed, number, runs, versus
from ._report import Float64, Reading, Report

__tracebackhide__ = True  # pytest shows the line of the implementation

Function = Callable[..., Float64]
LARGEST = 2**18
"""Most numbers of a Jacobian that is read."""


def _flat(gradients: Sequence[Float64]) -> Float64:
    return np.concatenate([one.ravel() for one in gradients])


def _ends(function: Function, places: Sequence[Float64], number: int, h: float) -> Float64:
    """The results for each entry of an argument moved by -h and by h, (2, entries, results)."""
    found = []
    for step in (-h, h):
        for i in np.ndindex(places[number].shape):
            moved = places[number].copy()
            moved[i] += step
            found.append(function(*places[:number], moved, *places[number + 1 :]).ravel())
    return np.array(found).reshape(2, places[number].size, -1)


def _step(function: Function, places: Sequence[Float64], number: int, grad: Float64) -> float:
    """The step at which central differences along one direction are most exact: it follows the curvature."""
    direction = draw(*places[number].shape, dtype="float64", seed=7)

    def slope(h: float) -> float:
        ends = (function(*places[:number], places[number] + d * direction, *places[number + 1 :]) for d in (-h, h))
        below, above = ((grad * one).sum() for one in ends)
        return float((above - below) / (2 * h))

    steps = 2.0 ** np.arange(-8, -38, -2)
    slopes = [slope(h) for h in steps]
    changes = [max(abs(a - b), abs(b - c)) for a, b, c in zip(slopes, slopes[1:], slopes[2:], strict=False)]
    return float(steps[1 + int(np.argmin(changes))])


def _differences(function: Function, places: Sequence[Float64], grad: Float64, steps: list[float]) -> Float64:
    """The gradient of all arguments, its error, and where it has a kink, (3, entries)."""
    found, middle = [], function(*places).ravel()
    for i, h in enumerate(steps):
        both = [_ends(function, places, i, step) for step in (h, h / 2)]
        coarse, fine = ((ends[1] - ends[0]) @ grad.ravel() / step for ends, step in zip(both, (2 * h, h), strict=True))
        bends = [
            abs((ends.sum(0) - 2 * middle) @ grad.ravel()) / step for ends, step in zip(both, (h, h / 2), strict=True)
        ]
        kink = (bends[1] > 0.75 * bends[0]) & (bends[1] > 1e-3 * abs(fine).max(initial=0))
        rounding = 2.0**-50 * float(abs(grad.ravel()) @ abs(middle)) / h
        error = abs(fine - coarse)[~kink].max(initial=0) + rounding
        found.append(np.array([(4 * fine - coarse) / 3, error + 0 * fine, kink]))
    return np.concatenate(found, -1)


def _read(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read which result reaches which number, by cotangents that are 1 at one result."""
    pairs: list[tuple[Float64, Float64]] = c["jacobians"]()
    for i, (got, right) in enumerate(pairs):
        least = 1e-4 * abs(right).max(initial=0) + 1e-12
        if abs(got - right).max(initial=0) > least:
            others = [j for j, (_, one) in enumerate(pairs) if j != i and one.shape == got.shape]
            same = [j for j in others if abs(got - pairs[j][1]).max() <= least]
            text, is_law = _law(got, right, c["result"], c["shapes"][i], least)
            text, is_law = (f"that of argument {same[0]}.", True) if same else (text, is_law)
            yield Reading(f"argument {i}", f"The gradient of argument {i} is {text}", is_law)


def _law(got: Float64, right: Float64, result: Float64, of_argument: tuple[int, ...], least: float) -> tuple[str, bool]:
    """Say how a Jacobian (results, entries) differs from the right one, and whether this explains it."""
    of_result = result.shape

    def same(x: Float64, y: Float64 = got) -> bool:
        return bool(x.shape == y.shape and (abs(x - y) <= least * max(1.0, abs(x).max() / abs(right).max())).all())

    times = float((got * right).sum() / (right * right).sum()) if right.any() else 0.0
    of_entry = (got * right).sum(0) / np.maximum((right * right).sum(0), 1e-300)
    reads, expected = abs(got) > least, abs(right) > least
    if same(times * right) and abs(times - 1) > 1e-3:
        return (f"{number(times)} times the right one." if times else "0: it is detached."), True
    if same(right.T):
        return "the function applied to the cotangent; expected its transpose.", True
    if same(np.eye(len(got))):
        return "the cotangent itself: the derivative of the function is missing.", True
    for axis in range(len(of_result)) if of_result == of_argument else ():
        moved = np.swapaxes(got.reshape(*of_result, *of_argument), axis, axis + len(of_result))
        if same(right, moved.reshape(right.shape)):
            return f"a product with a matrix along axis {axis}; expected one with its transpose.", True
    if same(of_entry * right):
        is_count = np.allclose((of_entry * expected.sum(0))[expected.any(0)], 1, rtol=1e-3)
        more = ", one divided by the number of results that read the entry" if is_count else ""
        return f"the right one times {listed(of_entry)} by entry{more}.", True
    rows = result.reshape(-1, result.shape[-1] if result.ndim else 1, 1)
    excess = (got - right).reshape(*rows.shape[:2], -1)
    along = rows * (rows * excess).sum(1, keepdims=True) / (rows**2).sum(1, keepdims=True)
    if rows.shape[1] > 1 and same(along, excess):
        return "that of a softmax p without its row sum: p dp; expected p (dp - sum(p dp)).", True
    off, wrong = (reads != expected).any(0), (abs(got - right) > least).any(0)
    for entry in np.flatnonzero(off) if off.sum() >= 0.9 * wrong.sum() else ():
        now, then = (np.unravel_index(np.flatnonzero(one[:, entry]), of_result) for one in (reads, expected))
        axes = [a for a in range(len(of_result)) if set(now[a]) != set(then[a])]
        if axes:
            place = tuple(int(one) for one in np.unravel_index(entry, of_argument))
            text = f"wrong: along axis {axes[0]}, entry {place} gets the cotangents of the results {runs(now[axes[0]])}"
            return f"{text}; expected {runs(then[axes[0]])}.", True
    first = int(wrong.argmax())
    text = f"wrong: it gets the cotangents of the right results, with other factors: entry {first}"
    return f"{text} {versus(got[:, first], right[:, first])}.", False


def _bound(c: Case, wanted: Float64, u: float) -> Float64:
    return np.where(c["kinks"], np.inf, c["error"](u) + 64 * u * float(abs(wanted).max(initial=0)))


GRADIENT = Kind("gradient", lambda c: c["wanted"], ("number",), _bound, labels=lambda c: c["labels"], read=_read)


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
        argument, or the array alone if there is one argument. Where a function has a kink, such as ``maximum(x, 0)`` at
        0, gradients are not compared.
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
    The gradient of argument 0 is the function applied to the cotangent; expected its transpose.
    """
    places = [np.array(one, np.float64) for one in arguments]

    def right(*at: Float64) -> Float64:
        """Call the function, whose arguments and result are copies."""
        (result,), _ = parts("gradient", function(*(x.copy() for x in at)), 1)
        return result.astype(np.float64)

    def mine(grad: Float64) -> tuple[list[Float64], str]:
        return parts("gradient", call("gradient", impl, *(x.copy() for x in (grad, *places))), len(places))

    shape = right(*places).shape
    grad = draw(*shape, dtype="float64")
    found, precision = mine(grad)
    for i, (got, x) in enumerate(zip(found, places, strict=True)):
        if got.shape != x.shape:
            text = f"The gradient of argument {i} has shape {got.shape}; expected {x.shape}."
            return Report("gradient", False, 0.0, np.inf, precision, where=text)
    steps = [_step(right, places, i, grad) for i in range(len(places))]
    wanted, error, kinks = _differences(right, places, grad, steps)

    def bound(u: float) -> Float64:
        """Four times the error of the differences. In float32 also the change by a rounding of each argument, and
        roundings of gradients nearer to 0, which saturated functions compute on their way to small ones."""
        if u < ROUNDOFF["float32"]:
            return np.asarray(4 * error)
        rounded = [x * (1 + u * draw(*x.shape, dtype="float64", seed=8)) for x in places]
        near, small = (_differences(right, at, grad, steps)[0] for at in (rounded, [x / 8 for x in places]))
        return np.asarray(4 * error + 8 * abs(near - wanted) + 64 * u * float(abs(small).max(initial=0)))

    def jacobians() -> list[tuple[Float64, Float64]]:
        """The Jacobian of the implementation and the right one for each argument, (results, entries)."""
        if grad.size * len(wanted) > LARGEST:
            raise ValueError("too large")
        one_hot = np.eye(grad.size).reshape(-1, *shape)
        zero, rows = mine(0 * grad)[0], [mine(one)[0] for one in one_hot]
        own = (np.array([(row[i] - zero[i]).ravel() for row in rows]) for i in range(len(places)))
        ends = (_ends(right, places, i, h) for i, h in enumerate(steps))
        true = ((one[1] - one[0]).T / (2 * h) for one, h in zip(ends, steps, strict=True))
        return list(zip(own, true, strict=True))

    named = [f"argument {i}, entry {at}" for i, one in enumerate(places) for at in np.ndindex(one.shape)]
    case: Case = {"wanted": wanted, "error": bound, "kinks": kinks > 0, "labels": {"number": named}}
    case |= {"jacobians": jacobians, "result": right(*places), "shapes": [one.shape for one in places]}
    report = judge(GRADIENT, _flat(found), case, coarser(dtype, precision))
    text = f"{int(kinks.sum())} entries at which the function has a kink."
    return replace(report, untried=(*report.untried, text)) if kinks.any() else report
