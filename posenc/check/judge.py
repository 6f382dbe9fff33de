"""The engine: compare numbers with the right ones, and find the known errors that explain a difference.

A `Kind` describes a check: the right answer by `posenc.reference`, a model of the answer with all errors that we know,
a bound, and a table of hypotheses. A `Hypothesis` is data: a row of hypotheses.txt, with the fields of the case that it
changes before the model computes. Fields that are functions of the case stand in the module of the check.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .report import Array, Cause, Float64, Report, locate

Case = dict[str, Any]
"""The arguments of a check by name, and the fields that hypotheses change."""


class Hypothesis(NamedTuple):
    """A known error: the case with these fields gives the numbers of an implementation that has it."""

    name: str
    sentence: str
    """The error in words. A name in braces is replaced by that field of the right case."""
    change: str
    fields: Mapping[str, object]
    """New values of fields, or functions of the case; a function that returns None excludes the hypothesis."""


ROWS = [row.split(" | ") for row in Path(__file__).with_name("hypotheses.txt").read_text(encoding="utf-8").splitlines()]
"""Table, name, sentence and change of each hypothesis; then its fields, if they are numbers, words or other fields of
the case; then the names of tests, if it can occur in some cases only."""
TESTS: dict[str, Callable[[Case], object]] = {
    "causal": lambda c: c["causal"],
    "not causal": lambda c: not c["causal"],
    "square": lambda c: c["n"] == c["m"],
    "window": lambda c: c["window"],
    "reach": lambda c: c["reach"] is not None,
    "grouped heads": lambda c: 1 < c["groups"] < c["heads"],
    "rotation": lambda c: c["w"] is not None,
    "positions": lambda c: c["w"] is not None or c["operator"] is not None,
    "part of the head": lambda c: c["rotary_dim"] < c["width"],
    "cap": lambda c: c["softcap"] is not None,
    "sink": lambda c: c["sink"] is not None,
    "bias": lambda c: c["operator"] is not None,
    "content": lambda c: c["reads_content"],
    "alibi": lambda c: c["operator"].name == "alibi",
    "beit": lambda c: c["operator"].name == "beit",
    "grid": lambda c: c["operator"].name in ("beit", "swin"),
    "bidirectional": lambda c: c["bidirectional"],
    "one-sided": lambda c: not c["bidirectional"],
}
"""Whether a hypothesis can occur in a case."""
Guard: TypeAlias = Callable[[object], Callable[[Case], Any]]
"""From a new value of a field, or a function of the case, to a function that is None where the error cannot occur."""


def when(test: str | Callable[[Case], object]) -> Guard:
    """Values of fields in the cases that pass a test."""
    passes = TESTS[test] if isinstance(test, str) else test
    return lambda value: lambda c: (value(c) if callable(value) else value) if passes(c) else None


def guarded(table: Iterable[Hypothesis], guard: Guard, suffix: str = "") -> list[Hypothesis]:
    """Hypotheses of another check, for the cases in which they can occur."""
    return [h._replace(name=h.name + suffix, fields={field: guard(value) for field, value in h.fields.items()})
            for h in table]  # fmt: skip


def _read(value: Any) -> Any:
    """A value of a row of hypotheses.txt; a name in braces is another field of the case."""
    is_name = isinstance(value, str) and value.startswith("{")
    return (lambda c: c[value[1:-1]]) if is_name else value


def hypotheses(table: str, computed: Mapping[str, Mapping[str, object]] | None = None) -> list[Hypothesis]:
    """The hypotheses of a table of hypotheses.txt. Fields that are not in their rows are in `computed`, by name."""
    found: list[Hypothesis] = []
    for _, name, sentence, change, *given in (row for row in ROWS if row[0] == table):
        fields = {k: _read(v) for k, v in json.loads(given[0]).items()} if given else (computed or {})[name]
        one = [Hypothesis(name, sentence, change, fields)]
        for test in given[1:]:
            one = guarded(one, when(test))
        found += one
    return found


(FLOAT32,) = hypotheses("any")
"""The cause of numbers in float64 that no other hypothesis explains."""


class Kind(NamedTuple):
    """A kind of check."""

    name: str
    truth: Callable[[Case], Float64]
    """The right answer, by `posenc.reference`."""
    model: Callable[[Case], Float64]
    """The same numbers from the fields of the case, which hypotheses change."""
    hypotheses: Sequence[Hypothesis]
    axes: tuple[str, ...]
    """Names of the last axes of the answer."""
    bound: Callable[[Case, Float64, float], float]
    """The largest error of a right implementation: a function of the case, the answer and the unit roundoff."""
    scale: Callable[[Case, Float64], Float64 | float] = lambda case, wanted: 1.0
    """The unit of errors: 1 for absolute errors, the numbers for relative ones."""
    labels: Callable[[Case], Mapping[str, Sequence[str]]] = lambda case: {}
    """Names of places along an axis, if they are not the name of the axis with a number."""
    more: Callable[[Case, Float64], Iterable[Hypothesis]] = lambda case, numbers: ()
    """Hypotheses that are tried alone if none of `hypotheses` fits; they may be read off the numbers."""
    last: Callable[[Case, Float64], Iterable[Hypothesis]] = lambda case, numbers: ()
    """Hypotheses that are tried if no pair fits either: they say less than a pair."""


ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Unit roundoffs."""
EXPLAINED = 0.1
"""A hypothesis must leave at most this share of the error. The bound of huge angles alone would admit any numbers."""


def as_numbers(value: Any) -> tuple[Array, str]:
    """Return an array in float64, integers or booleans, and the name of its dtype."""
    if hasattr(value, "detach"):  # NumPy refuses a tensor that requires a gradient
        value = value.detach()
    is_bfloat16 = str(getattr(value, "dtype", "")).endswith("bfloat16")
    if is_bfloat16 and hasattr(value, "float"):  # NumPy refuses such a tensor, too
        value = value.float()
    try:
        x = np.asarray(value)
    except (TypeError, RuntimeError, BufferError):
        x = np.from_dlpack(value)
    return (x if x.dtype.kind in "biu" else x.astype(np.float64)), "bfloat16" if is_bfloat16 else x.dtype.name


def coarser(*names: str) -> str:
    """Return the dtype with the largest roundoff; integers and booleans are exact."""
    return max((name for name in names if name in ROUNDOFF), key=ROUNDOFF.__getitem__, default="float64")


def angle_roundoff(u: float) -> float:
    """The unit roundoff of angles, which 16-bit implementations compute in float32."""
    return min(u, ROUNDOFF["float32"])


def altered(case: Case, hypotheses: Sequence[Hypothesis]) -> Case | None:
    """Return the case with the fields of the hypotheses, or None if one of them cannot occur in it."""
    for hypothesis in hypotheses:
        found = {}
        for name, value in hypothesis.fields.items():
            found[name] = value(case) if callable(value) else value
            if callable(value) and found[name] is None:
                return None
        case = {**case, **found}
    return case


def on_one_side(hypotheses: Iterable[Hypothesis]) -> Iterator[Hypothesis]:
    """The same errors in the rotation of the queries alone, or of the keys alone."""
    for (side, place), h in itertools.product((("queries", "q_at"), ("keys", "k_at")), hypotheses):
        own = h._replace(fields={name: h.fields[name] for name in h.fields if name not in ("q_at", "k_at")})
        fields = {place: h.fields[place]} if place in h.fields else {}
        if own.fields:
            fields[f"of_{side}"] = within(own)
        if fields:
            yield Hypothesis(f"{h.name} of the {side} only", f"Of the {side} only: {h.sentence}", h.change, fields)


def within(hypothesis: Hypothesis) -> Callable[[Case], Case | None]:
    """A field that holds the changed fields, for a part of the case."""

    def changes(case: Case) -> Case | None:
        changed = altered(case, [hypothesis])
        return changed and {name: changed[name] for name in hypothesis.fields}

    return changes


def deviation(got: Float64, wanted: Float64, scale: Float64 | float) -> Float64:
    """The error of each number, in units of the scale. Infinities must agree, and a NaN is infinitely wrong."""
    with np.errstate(all="ignore"):
        difference = abs(got - wanted) / scale
    difference = np.where(got == wanted, 0.0, difference)
    return np.where(np.isnan(difference), np.inf, difference)


def orders(kinds: Sequence[Hypothesis]) -> Iterator[tuple[Hypothesis, ...]]:
    """Pairs of hypotheses, except two of one sort, such as two offsets; both orders if they change the same field."""
    for a, b in itertools.combinations(kinds, 2):
        if a.name.split()[0] == b.name.split()[0] and a.fields.keys() == b.fields.keys():
            continue
        yield a, b
        if set(a.fields) & set(b.fields):
            yield b, a


@np.errstate(all="ignore")  # a wrong formula may divide by zero
def judge(kind: Kind, got: object, case: Case, precision: str, subject: str | None = None) -> Report:
    """Compare numbers with the right answer; if they differ, find the hypotheses that explain them."""
    subject = subject or kind.name
    numbers, dtype = as_numbers(got)
    precision = coarser(precision, dtype)
    u = ROUNDOFF[precision]
    wanted = kind.truth(case)
    if [n for n in numbers.shape if n != 1] != [n for n in wanted.shape if n != 1]:
        where = f"The result has shape {numbers.shape}; expected {wanted.shape}."
        return Report(subject, False, 0.0, np.inf, precision, where=where)
    numbers = numbers.reshape(wanted.shape).astype(np.float64)
    bound = kind.bound(case, wanted, u)
    unit = kind.scale(case, wanted)
    off = deviation(numbers, wanted, unit)
    error = float(off.max(initial=0))
    if error <= bound:
        return Report(subject, True, bound, error, precision, got=numbers, wanted=wanted)
    causes: dict[frozenset[str], tuple[float, tuple[Hypothesis, ...]]] = {}
    errors: list[tuple[float, str]] = []
    active: list[Hypothesis] = []
    stages: dict[str, Callable[[], Iterable[tuple[Hypothesis, ...]]]] = {
        "alone": lambda: zip(kind.hypotheses), "more": lambda: zip(kind.more(case, numbers)),
        "pairs": lambda: orders(active), "last": lambda: zip(kind.last(case, numbers)),
    }  # fmt: skip
    for stage, sets in stages.items():
        for chosen in () if causes else sets():
            changed = altered(case, chosen)
            answer = None if changed is None else kind.model(changed)
            if changed is None or answer is None or answer.shape != wanted.shape:
                continue  # the error cannot occur
            if deviation(answer, wanted, unit).max(initial=0) <= bound:
                continue  # without an effect on these inputs
            active += chosen if stage == "alone" else ()
            left = float(deviation(numbers, answer, kind.scale(changed, answer)).max(initial=0))
            errors.append((left, " + ".join(h.name for h in chosen)))
            names = frozenset(h.name for h in chosen)  # the better order of a pair
            least = causes[names][0] if names in causes else np.inf
            if left < least and left <= min(kind.bound(changed, answer, u), EXPLAINED * error):
                causes[names] = left, chosen
    found = sorted(causes.values(), key=lambda one: one[0])
    if not found and u < ROUNDOFF["float32"] and error <= kind.bound(case, wanted, ROUNDOFF["float32"]):
        found = [(error, (FLOAT32,))]
    named = {" + ".join(h.name for h in chosen) for _, chosen in found}
    best = min((one for one in errors if one[1] not in named and np.isfinite(one[0])), default=None)
    axes = ("batch",) * (wanted.ndim - len(kind.axes)) + kind.axes[len(kind.axes) - wanted.ndim :]
    return Report(
        subject, False, bound, error, precision, tuple(_cause(case, left, chosen, best) for left, chosen in found),
        locate(off > bound, numbers, wanted, axes, kind.labels(case)),
        () if found else tuple(h.name for h in active), numbers, wanted, axes,
    )  # fmt: skip


def _cause(case: Case, left: float, chosen: tuple[Hypothesis, ...], best: tuple[float, str] | None) -> Cause:
    words = {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in case.items()}
    sentence, change = (" And: ".join(text.format(**words) for text in texts)
                        for texts in ([h.sentence for h in chosen], [h.change for h in chosen]))  # fmt: skip
    other = f"; the best other hypothesis, {best[1]}, leaves {best[0]:.2g}" if best else ""
    evidence = f"this explanation leaves an error of {left:.2g}{other}."
    return Cause(" + ".join(h.name for h in chosen), sentence, evidence, change)
