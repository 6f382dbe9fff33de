"""Laws: sentences about numbers that a reader measured. Nothing here knows what the numbers mean."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ._judge import rounded
from ._report import Float64

SHOWN = 8
"""Most numbers of a list in a sentence."""
FEWEST = 5
"""Fewest different numbers that a law is read from: a law with two constants fits fewer by chance."""


def number(x: float) -> str:
    """Format a number. Within 1e-4 of a whole number it is written as that number."""
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else f"{x:g}"
    if abs(x) < 1e-9:
        return "0"
    return str(round(x)) if abs(x - round(x)) <= 1e-4 * min(abs(x), 1) and abs(x) < 1e9 else f"{x:.5g}"


def listed(numbers: npt.ArrayLike, first: int = 0) -> str:
    """Format the numbers from the first one that is shown."""
    values = np.ravel(np.asarray(numbers, float))[first:]
    return f"({'..., ' * (first > 0)}{', '.join(map(number, values[:SHOWN]))}{', ...' * (len(values) > SHOWN)})"


def versus(numbers: npt.ArrayLike, right: npt.ArrayLike) -> str:
    """Format "the numbers; expected the right ones", from shortly before the first that looks different.

    Numbers that are not arrays have as many digits as show that they differ.
    """
    words, shown = ([number(x) for x in np.ravel(np.asarray(one, float))] for one in (numbers, right))
    if np.ndim(numbers) == 0:
        longer = [f"{np.asarray(one, float):.9g}" for one in (numbers, right)]
        return "; expected ".join(longer if words == shown else [*words, *shown])
    first = next((i - 2 if i >= SHOWN else 0 for i, (a, b) in enumerate(zip(words, shown, strict=False)) if a != b), 0)
    return f"{listed(numbers, first)}; expected {listed(right, first)}"


def runs(indices: Iterable[int] | npt.NDArray[np.bool_]) -> str:
    """Format 1, 2, 3, 7 as "1-3, 7", or the places at which an array is true."""
    if isinstance(indices, np.ndarray) and indices.dtype == bool:
        indices = np.flatnonzero(indices)
    ordered = sorted({int(i) for i in indices})
    groups = [[i for _, i in group] for _, group in itertools.groupby(enumerate(ordered), lambda one: one[1] - one[0])]
    words = [f"{group[0]}-{group[-1]}" if len(group) > 1 else str(group[0]) for group in groups]
    return ", ".join(words[:SHOWN]) + (", ..." if len(words) > SHOWN else "") or "none"


def near(x: npt.ArrayLike, y: npt.ArrayLike, tolerance: float = 1e-4) -> bool:
    """Return whether all numbers agree: absolutely up to 1, and relatively above. A NaN agrees with a NaN."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    return x.shape == y.shape and bool(((abs(x - y) <= tolerance * np.maximum(1, abs(y))) | (x != x) & (y != y)).all())


def same_angles(x: npt.ArrayLike, y: npt.ArrayLike, tolerance: float) -> bool:
    """Return whether all angles agree up to whole turns."""
    turns = np.asarray(x, float) - np.asarray(y, float)
    return bool((abs(np.exp(1j * turns) - 1) <= tolerance).all())


def _plus(constant: float) -> str:
    return f" {'+' if constant > 0 else '-'} {number(abs(constant))}"


def _candidates(x: Float64, y: Float64, name: str) -> Iterator[tuple[str, Float64]]:
    """Yield the laws that could give y from x, with their numbers, the simplest ones first."""
    yield name, x
    middle = float(np.median(y))
    yield f"{number(middle)} for every {name}", 0 * x + middle
    shift, total = float(np.median(y - x)), float(np.median(y + x))
    yield name + _plus(shift), x + shift
    yield f"-{name}", -x
    yield f"{number(total)} - {name}", total - x
    ratio = float(np.median(y[x != 0] / x[x != 0]))
    if ratio:
        divides = abs(ratio) < 1 and abs(1 / ratio - round(1 / ratio)) < 1e-3
        yield f"{name} / {number(1 / ratio)}" if divides else f"{number(ratio)} {name}", ratio * x
    top, bottom = float(y.max()), float(y.min())
    yield f"min({name}, {number(top)})", np.minimum(x, top)
    yield f"max({name}, {number(bottom)})", np.maximum(x, bottom)
    for size in dict.fromkeys([top + 1, *(2.0**power for power in range(1, 17)), *np.arange(3.0, 65.0)]):
        if size >= 1:
            yield f"{name} mod {number(size)}", x % size
            yield f"{name} // {number(size)}", x // size
            yield f"{name} rounded down to a multiple of {number(size)}", x // size * size
    yield f"({name}{_plus(y[0] - x[0])}) mod {number(top + 1)}", (x + y[0] - x[0]) % max(top + 1, 1)
    for dtype in ("bfloat16", "float16"):
        yield f"{name} rounded to {dtype}", rounded(x, dtype)
    slope, start = np.polyfit(x, y, 1)
    yield f"{number(slope)} {name}{_plus(start)}", slope * x + start


def law(x: npt.ArrayLike, y: npt.ArrayLike, name: str, tolerance: float = 1e-4) -> str | None:
    """Return the simplest law that gives all of y as a function of x, in words; or None."""
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if len(set(xs)) < FEWEST or not np.isfinite(ys).all():
        return None
    return next((words for words, found in _candidates(xs, ys, name) if near(found, ys, tolerance)), None)


CONSTANTS = {"2 pi": 2 * math.pi, "pi": math.pi, "log2(e)": math.log2(math.e), "ln 10": math.log(10)}
FORMS = {"{}": 1.0, "1 / {}": -1.0, "sqrt({})": 0.5, "1 / sqrt({})": -0.5, "{} squared": 2.0}


def named(ratio: float, known: Mapping[str, float] | None = None) -> str:
    """Return " (words)" for a ratio that is a power of a known number, or an empty text."""
    for (name, value), (form, power) in itertools.product({**(known or {}), **CONSTANTS}.items(), FORMS.items()):
        if value > 0 and value != 1 and abs(ratio - value**power) < 1e-4 * value**power:
            return f" ({form.format(name)})"
    return ""


def geometric(w: Float64) -> tuple[float, float] | None:
    """Return the first number of a geometric sequence and the ratio of its neighbours, or None."""
    if len(w) < FEWEST or not (w > 0).all():
        return None
    steps = np.diff(np.log(w))
    return (float(w[0]), math.exp(steps.mean())) if np.ptp(steps) <= 1e-3 * abs(steps.mean()) + 2e-5 else None


def solved(phases: Float64, steps: Float64) -> Float64:
    """Return x of phases = x steps modulo 2 pi, along the last axis: large steps refine what small ones give."""
    x = np.zeros(phases.shape[:-1])
    for i in np.argsort(abs(steps), kind="stable"):
        if steps[i]:
            x = x + np.angle(np.exp(1j * (phases[..., i] - x * steps[i]))) / steps[i]
    return x
