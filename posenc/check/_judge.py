"""The engine: compare numbers with the right ones, and find the known errors that give wrong ones.

A `Kind` describes a check: the right answer by `posenc.reference`, a bound, a table of hypotheses, and a reader. A
`Hypothesis` is data: a row of hypotheses.txt, with other arguments of the right answer, or of a part of it that was
read. Arguments that are functions of the case stand in the module of the check.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ._report import Array, Cause, Float64, Reading, Report, locate, with_readings

Case = dict[str, Any]
"""The arguments of a check by name, and the fields that hypotheses change."""


class Hypothesis(NamedTuple):
    """A known error: the case with these fields gives the numbers of an implementation that has it."""

    name: str
    sentence: str
    """The error in words. A name in braces is replaced by that field of the right case."""
    change: str
    fields: Mapping[str, CodeType]
    """Expressions of new values of fields; their names are fields of the case, c the case itself, and `functions`."""
    condition: CodeType
    """An expression, true in the cases in which the error can occur."""
    functions: Mapping[str, object] = {}


ROWS = [row.split(" | ") for row in Path(__file__).with_name("hypotheses.txt").read_text(encoding="utf-8").splitlines()]
"""Table, name, sentence and change of each hypothesis; new values, as "field = expression; ..."; then a condition."""


def hypotheses(table: str, **functions: object) -> tuple[Hypothesis, ...]:
    """The hypotheses of a table of hypotheses.txt, whose expressions may call functions."""
    found = []
    for _, name, sentence, change, *given in (row for row in ROWS if row[0] == table):
        texts, condition = (*given, *("", "True")[len(given) :])
        fields = (one.split(" = ", 1) for one in texts.split("; ") if one)
        of = {field: compile(text, name, "eval") for field, text in fields}
        found.append(Hypothesis(name, sentence, change, of, compile(condition, name, "eval"), functions))
    return tuple(found)


(COARSE,) = hypotheses("any")
"""The cause of numbers within the bound of a coarser dtype, if no other hypothesis explains them."""


class Kind(NamedTuple):
    """A kind of check."""

    name: str
    truth: Callable[[Case], Float64]
    """The right answer, by `posenc.reference`; hypotheses change its arguments."""
    axes: tuple[str, ...]
    """Names of the last axes of the answer."""
    bound: Callable[[Case, Float64, float], Float64 | float]
    """The largest error of each number of a right implementation: a function of the case, the answer and the unit
    roundoff. Numbers with an infinite bound are not compared."""
    hypotheses: Sequence[Hypothesis] = ()
    labels: Callable[[Case], Mapping[str, Sequence[str]]] = lambda case: {}
    """Names of places along an axis, if they are not the name of the axis with a number."""
    read: Callable[[Case, Float64, Float64], Iterable[Reading]] = lambda case, numbers, wanted: ()
    """Read the parts that are wrong off the numbers and the right ones."""


ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Unit roundoffs."""
EXPLAINED = 0.2
"""A hypothesis must leave at most this share of the mean error. The bound of huge angles alone would admit any
numbers."""


def as_numbers(value: Any, subject: str = "") -> tuple[Array, str]:
    """Return a copy in float64, integers or booleans, and the name of the dtype."""
    given = value
    for name in ("detach", "cpu"):  # NumPy refuses a tensor that requires a gradient, or that is on a GPU
        value = getattr(value, name)() if hasattr(value, name) else value
    is_bfloat16 = str(getattr(value, "dtype", "")).endswith("bfloat16")
    if is_bfloat16 and hasattr(value, "float"):  # NumPy refuses such a tensor, too
        value = value.float()
    try:
        with warnings.catch_warnings():  # before NumPy 1.24 lists of different lengths are no ValueError
            warnings.simplefilter("ignore")
            x = np.asarray(value)
    except (TypeError, RuntimeError, BufferError):
        x = np.from_dlpack(value)
    except ValueError:  # lists of different lengths
        x = np.asarray(None)
    several = isinstance(given, tuple) and len(given) > 1 and any(getattr(one, "shape", ()) for one in given)
    if several or np.ma.isMaskedArray(value) or not (is_bfloat16 or x.dtype.kind in "biuf"):
        has = "None" if given is None else f"an array of {x.dtype}" if x.dtype.kind == "c" else type(given).__name__
        raise TypeError(f"check.{subject}: the result is {has}; expected one array of real numbers")
    return x.astype(x.dtype if x.dtype.kind in "biu" else np.float64), "bfloat16" if is_bfloat16 else x.dtype.name


def coarser(*names: str) -> str:
    """Return the dtype with the largest roundoff; integers and booleans are exact."""
    return max((name for name in names if name in ROUNDOFF), key=ROUNDOFF.__getitem__, default="float64")


def to_bfloat16(x: Float64) -> Float64:
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(fraction * 2**8) / 2**8, exponent))


def rounded(x: Float64, dtype: str) -> Float64:
    if dtype == "float64":
        return x
    return to_bfloat16(x) if dtype == "bfloat16" else np.asarray(x, dtype).astype(np.float64)


def angle_roundoff(u: float) -> float:
    """The unit roundoff of angles, which 16-bit implementations compute in float32."""
    return min(u, ROUNDOFF["float32"])


def altered(case: Case, h: Hypothesis) -> Case | None:
    """Return the case with the fields of a hypothesis, or None if it cannot occur in the case."""
    names = {"np": np, **h.functions, **case, "c": case}
    try:
        if not eval(h.condition, names):
            return None
        return {**case, **{field: eval(code, names) for field, code in h.fields.items()}}
    except Exception:  # a field is None, or the config lacks a key
        return None


def in_bounds(got: Float64, wanted: Float64, bound: Float64 | float) -> Float64:
    """The error of each number, in units of its bound. Infinities must agree, and a NaN is infinitely wrong."""
    with np.errstate(all="ignore"):
        difference = abs(got - wanted) / bound
    difference = np.where((got == wanted) | np.isinf(bound), 0.0, difference)
    return np.where(np.isnan(difference), np.inf, difference)


@np.errstate(all="ignore")  # a wrong formula may divide by zero
def known(
    table: Iterable[Hypothesis],
    case: Case,
    compute: Callable[[Case], Float64],
    numbers: Float64,
    bound: Float64 | float | Callable[[Case, Float64], Float64 | float],
    part: str = "",
) -> tuple[Cause, ...]:
    """Return the known errors that give numbers.

    `compute` returns the numbers of a case, and `bound` is, or returns, their largest errors.
    """
    wanted = compute(case)

    def limits(c: Case, answer: Float64) -> Float64:
        return np.broadcast_to(bound(c, answer) if callable(bound) else bound, wanted.shape)

    limit = limits(case, wanted)
    compared, right = limit < np.inf, in_bounds(numbers, wanted, limit)
    found: list[tuple[float, Hypothesis]] = []
    errors: list[tuple[float, str]] = []
    for h in table:
        changed = altered(case, h)
        answer = wanted if changed is None else compute(changed)
        if changed is None or answer.shape != wanted.shape:
            continue
        if in_bounds(answer, wanted, limit).max(initial=0) <= 1:
            continue
        before, after = (np.where(x == numbers, 0.0, abs(x - numbers))[compared] for x in (wanted, answer))
        left = float(np.nan_to_num(after.max(initial=0), nan=np.inf))
        errors.append((left, h.name))
        ratio = in_bounds(numbers, answer, np.where(compared, limits(changed, answer), np.inf))
        if after.mean() <= EXPLAINED * before.mean() and ratio.max(initial=0) <= min(1.0, EXPLAINED * right.max()):
            found.append((left, h))
    names = {h.name for _, h in found}
    best = min((one for one in errors if one[1] not in names and np.isfinite(one[0])), default=None)
    causes = (_cause(case, left, h, best, part) for left, h in sorted(found, key=lambda one: one[0]))
    return tuple(causes)


def with_axes_moved(report: Report, numbers: Array, wanted: Float64, bound: Float64 | float) -> Report:
    """Name the order of axes with which a result of another shape is right, if there is one."""
    sentence = f"The result has shape {numbers.shape}; expected {wanted.shape}. Its numbers are right."
    more = " that are longer than 1" * (1 in numbers.shape)
    numbers, limit, wanted = (np.squeeze(x) for x in (numbers, np.broadcast_to(bound, wanted.shape), wanted))
    for order in itertools.permutations(range(numbers.ndim)):
        moved = numbers.transpose(order)
        if moved.shape == wanted.shape and in_bounds(moved.astype(np.float64), wanted, limit).max(initial=0) <= 1:
            change = f"Transpose its axes{more} by {order}."
            cause = Cause("order of axes", sentence, "the transposed result is right.", change)
            return replace(report, causes=(cause,))
    return report


def judge(kind: Kind, got: object, case: Case, precision: str) -> Report:
    """Compare numbers with the right answer; if they differ, find the known errors, and read the parts."""
    numbers, dtype = as_numbers(got, kind.name)
    precision = coarser(precision, dtype)
    u = ROUNDOFF[precision]
    wanted = kind.truth(case)
    if [n for n in numbers.shape if n != 1] != [n for n in wanted.shape if n != 1]:
        where = f"The result has shape {numbers.shape}; expected {wanted.shape}."
        report = Report(kind.name, False, 0.0, np.inf, precision, where=where)
        return with_axes_moved(report, numbers, wanted, kind.bound(case, wanted, u))
    numbers = numbers.reshape(wanted.shape).astype(np.float64)
    bound = np.broadcast_to(kind.bound(case, wanted, u), wanted.shape)
    off = in_bounds(numbers, wanted, bound)
    worst = np.unravel_index(int(off.argmax()), off.shape) if off.size else ()
    error = float(np.nan_to_num(abs(numbers - wanted)[worst], nan=np.inf)) if off.size else 0.0
    limit = float(bound[worst]) if off.size else 0.0
    wrong = off > 1
    if not wrong.any():
        return Report(kind.name, True, limit, error, precision, got=numbers, wanted=wanted)
    causes = known(kind.hypotheses, case, kind.truth, numbers, lambda c, answer: kind.bound(c, answer, u))
    axes = ("batch",) * (wanted.ndim - len(kind.axes)) + kind.axes[len(kind.axes) - wanted.ndim :]
    where = locate(wrong, numbers, wanted, axes, kind.labels(case))
    report = Report(kind.name, False, limit, error, precision, causes, where)
    report = replace(report, got=numbers, wanted=wanted, wrong=wrong, axes=axes)
    report = with_readings(report, lambda: kind.read(case, numbers, wanted))
    return report if report.causes else replace(report, causes=_in_fewer_bits(kind, case, numbers, wanted, report))


@np.errstate(all="ignore")
def _in_fewer_bits(kind: Kind, case: Case, got: Float64, wanted: Float64, report: Report) -> tuple[Cause, ...]:
    """Return that numbers are right in a coarser dtype; those of 16 bits are numbers of this dtype."""
    for coarse in ("bfloat16", "float16", "float32"):  # the fewest bits first
        is_coarse = coarse == "float32" or ((got == rounded(got, coarse)).all() and len(np.unique(got)) > 4)
        bound = kind.bound(case, wanted, ROUNDOFF[coarse])
        if ROUNDOFF[report.precision] < ROUNDOFF[coarse] and is_coarse and in_bounds(got, wanted, bound).max() <= 1:
            words = {**case, "coarse": coarse, "fine": report.precision}
            return (_cause(words, report.error, COARSE._replace(name=coarse), None, ""),)
    return ()


def _cause(case: Case, left: float, h: Hypothesis, best: tuple[float, str] | None, part: str) -> Cause:
    words = {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in case.items()}
    other = f"; the best other hypothesis, {best[1]}, leaves {best[0]:.2g}" if best else ""
    evidence = f"this explanation leaves an error of {left:.2g}{other}."
    return Cause(h.name, h.sentence.format(**words), evidence, h.change.format(**words), part)
