"""The engine: compare numbers with the right ones, and find the known errors that explain a difference.

A `Kind` describes a check: the right answer by `posenc.reference`, a model of the answer with all errors that we know,
a bound, and a table of hypotheses. A `Hypothesis` is data: a row of hypotheses.txt, with the fields of the case that it
changes before the model computes. Fields that are functions of the case stand in the module of the check.

Large arrays are searched by a part: what explains the part must then explain the whole.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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


Hypotheses: TypeAlias = tuple[Hypothesis, ...]
ROWS = [row.split(" | ") for row in Path(__file__).with_name("hypotheses.txt").read_text(encoding="utf-8").splitlines()]
"""Table, name, sentence and change of each hypothesis; then its fields, if they are numbers, words or other fields of
the case; then the names of tests, if it can occur in some cases only."""
TESTS: dict[str, Callable[[Case], object]] = {
    "causal": lambda c: c["causal"],
    "not causal": lambda c: not c["causal"],
    "square": lambda c: c["past"] == 0,
    "unequal": lambda c: c["past"] != 0,
    "segments": lambda c: c["k_segments"] is not None,
    "ones": lambda c: c.get("adds_ones"),
    "padding": lambda c: c["row_segments"] is not None,
    "window": lambda c: c["window"],
    "reach": lambda c: c["reach"] is not None,
    "grouped heads": lambda c: 1 < c["groups"] < c["heads"],
    "rotation": lambda c: c["w"] is not None,
    "positions": lambda c: c["w"] is not None or c["operator"] is not None,
    "part of the head": lambda c: c["rotary_dim"] < c["width"],
    "cap": lambda c: c.get("softcap") is not None,
    "no softmax factor": lambda c: c["softmax_factor"] == 1,
    "sink": lambda c: c["sink"] is not None,
    "bias": lambda c: c.get("operator") is not None,
    "content": lambda c: c["reads_content"],
    "alibi": lambda c: c["operator"].name == "alibi",
    "beit": lambda c: c["operator"].name == "beit",
    "grid": lambda c: c["operator"].name in ("beit", "swin"),
    "bidirectional": lambda c: c["bidirectional"],
    "one-sided": lambda c: not c["bidirectional"],
    "scaled": lambda c: (c["scales"] or c["factor"] != 1) and c["w"].all(),
    "dynamic": lambda c: c["rope_type"] == "dynamic",
    "yarn": lambda c: c["rope_type"] == "yarn",
    "llama3": lambda c: c["rope_type"] == "llama3",
    "longrope": lambda c: c["rope_type"] == "longrope",
    "attention factor": lambda c: c["factor"] != 1,
    "blended": lambda c: c["rope_type"] in ("llama3", "yarn", "ntk_by_parts"),
    "still pairs": lambda c: 0 < (c["w"] == 0).sum() < len(c["w"]),
    "no config": lambda c: not c["keys"],
    "attention": lambda c: "softcap" in c,
    "rotated attention": lambda c: "softcap" in c and c["w"] is not None,
    "no attention factor": lambda c: "factor_is_read" not in c or "softcap" in c,
    "coordinates": lambda c: c["axis"] is not None,
    "two coordinates": lambda c: c["axis"] is not None and c["sections"] is None,
    "three coordinates": lambda c: c["sections"] is not None,
    "interleaved": lambda c: c["interleaved"],
    "in a row": lambda c: not c["interleaved"],
    "in one block": lambda c: c["axes"] == "concat" and c["layout"] == "half",
    "xpos": lambda c: c["decay"] is not None,
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
    return [
        h._replace(name=h.name + suffix, fields={field: guard(value) for field, value in h.fields.items()})
        for h in table
    ]


def _read(value: Any) -> Any:
    """A value of a row of hypotheses.txt; a name in braces is another field of the case."""
    is_name = isinstance(value, str) and value.startswith("{")
    return (lambda c: c[value[1:-1]]) if is_name else value


def hypotheses(table: str, computed: Mapping[str, Mapping[str, object]] | None = None) -> list[Hypothesis]:
    """The hypotheses of a table of hypotheses.txt. Fields that are not in their rows are in `computed`, by name."""
    found: list[Hypothesis] = []
    for _, name, sentence, change, *given in (row for row in ROWS if row[0] == table):
        in_row = bool(given) and given[0].startswith("{")
        fields = {k: _read(v) for k, v in json.loads(given[0]).items()} if in_row else (computed or {})[name]
        one = [Hypothesis(name, sentence, change, fields)]
        for test in given[in_row:]:
            one = guarded(one, when(test))
        found += one
    return found


(FLOAT32,) = hypotheses("any")
"""The cause of numbers in float64 that no other hypothesis explains."""
FACTORS = hypotheses("factor")
"""Fields that may have another factor, which is read off the numbers; "times" multiplies the answer."""


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
    bound: Callable[[Case, Float64, float], Float64 | float]
    """The largest error of each number of a right implementation: a function of the case, the answer and the unit
    roundoff. Numbers with an infinite bound are not compared."""
    labels: Callable[[Case], Mapping[str, Sequence[str]]] = lambda case: {}
    """Names of places along an axis, if they are not the name of the axis with a number."""
    part: Callable[[Case, Float64], tuple[Any, Case]] = lambda case, off: (..., case)
    """An index of some numbers, of which some are wrong, and the case that gives these alone."""
    whole: frozenset[str] = frozenset()
    """Fields that change numbers by others that are not in the part."""
    more: Callable[[Case, Float64], Iterable[Hypothesis]] = lambda case, numbers: ()
    """Hypotheses that are read off the numbers, if none of `hypotheses` fits; alone, then with one of `hypotheses`."""
    rare: Callable[[Case], Iterable[Hypothesis]] = lambda case: ()
    """Hypotheses that are tried with the former, alone."""
    last: Callable[[Case, Float64], Iterable[Hypothesis]] = lambda case, numbers: ()
    """Hypotheses that are tried if no pair fits either: they say less than a pair."""


ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Unit roundoffs."""
EXPLAINED = 0.2
"""A hypothesis must leave at most this share of the mean error. The bound of huge angles alone would admit any
numbers."""
WORK = 2**25
"""Numbers that the search for pairs may compute: two seconds. Small sizes allow all pairs."""
LARGE = 2**14
"""In pairs, hypotheses that need the whole are tried on fewer numbers only."""


def as_numbers(value: Any, subject: str = "") -> tuple[Array, str]:
    """Return a copy in float64, integers or booleans, and the name of the dtype."""
    given = value
    if hasattr(value, "detach"):  # NumPy refuses a tensor that requires a gradient
        value = value.detach()
    is_bfloat16 = str(getattr(value, "dtype", "")).endswith("bfloat16")
    if is_bfloat16 and hasattr(value, "float"):  # NumPy refuses such a tensor, too
        value = value.float()
    try:
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


def in_bounds(got: Float64, wanted: Float64, bound: Float64 | float) -> Float64:
    """The error of each number, in units of its bound. Infinities must agree, and a NaN is infinitely wrong."""
    with np.errstate(all="ignore"):
        difference = abs(got - wanted) / bound
    difference = np.where((got == wanted) | np.isinf(bound), 0.0, difference)
    return np.where(np.isnan(difference), np.inf, difference)


class View(NamedTuple):
    """A case, or a part of it, with the numbers of the implementation."""

    case: Case
    numbers: Float64
    wanted: Float64
    bound: Float64
    off: Float64
    """The error of each number, in units of its bound."""


def left_by(kind: Kind, chosen: Hypotheses, view: View, u: float) -> tuple[float, bool] | None:
    """Return the largest error that hypotheses leave, and whether they explain the numbers.

    None means that they cannot occur, or that one alone has no effect on these inputs.
    """
    changed = altered(view.case, chosen)
    answer = None if changed is None else kind.model(changed) * changed["times"]
    if changed is None or answer is None or answer.shape != view.wanted.shape:
        return None
    compared = view.bound < np.inf
    before, after = (np.where(x == view.numbers, 0.0, abs(x - view.numbers))[compared] for x in (view.wanted, answer))
    left = float(np.nan_to_num(after.max(initial=0), nan=np.inf))
    explains = bool(after.mean() <= EXPLAINED * before.mean())
    if (explains or len(chosen) == 1) and in_bounds(answer, view.wanted, view.bound).max(initial=0) <= 1:
        return None
    if not explains:
        return left, False
    ratio = in_bounds(view.numbers, answer, np.where(compared, kind.bound(changed, answer, u), np.inf))
    return left, bool(ratio.max(initial=0) <= min(1.0, EXPLAINED * view.off.max()))


def of_different_fields(kinds: Sequence[Hypothesis]) -> Iterator[Hypotheses]:
    """Pairs of hypotheses that change different fields."""
    return (pair for pair in itertools.combinations(kinds, 2) if not pair[0].fields.keys() & pair[1].fields.keys())


def with_factor(model: Callable[[Case], Float64], case: Case, numbers: Float64) -> Iterator[Hypothesis]:
    """Fields of the case whose factor is another one: the factor with the least error, by Newton's method."""
    finite = np.isfinite(numbers)
    for h in FACTORS:
        (field,) = h.fields
        known: Any = case.get(field)
        if altered(case, [h]) is None or known is None or not np.any(known) or not np.all(np.isfinite(known)):
            continue

        def answer(factor: float, field: str = field, known: Any = known) -> Float64:
            changed = {**case, field: np.multiply(known, factor)}
            return np.where(finite, np.nan_to_num(model(changed) * changed["times"]), 0.0)

        got = np.where(finite, numbers, 0.0)
        found = min(2.0 ** np.arange(-6, 6.5, 0.5), key=lambda factor: float(abs(got - answer(factor)).sum()))
        for _ in range(12):
            slope = (answer(found * (1 + 1e-6)) - answer(found * (1 - 1e-6))) / (2e-6 * found)
            found += float(((got - answer(found)) * slope).sum() / (slope**2).sum())
        if np.isfinite(found):
            power = case.get("base", 1.0) ** found
            sentence = h.sentence.replace("{times}", f"{found:.6g}").replace("{power}", f"{power:.6g}")
            yield h._replace(sentence=sentence, fields={field: np.multiply(known, found)})


def search(
    kind: Kind, whole: View, u: float
) -> tuple[list[tuple[float, Hypotheses]], list[tuple[float, str]], list[str], list[str]]:
    """Find the hypotheses that explain the numbers.

    Return those with the errors that they leave, the errors that all others leave, the names of the hypotheses that
    have an effect on these inputs, and what was not tried.
    """
    index, case = kind.part(whole.case, whole.off)
    part = View(case, *(x[index] for x in whole[1:]))
    active: list[Hypothesis] = []
    untried: list[str] = []

    def pairs() -> Iterator[Hypotheses]:
        small = [h for h in active if whole.numbers.size <= LARGE or not kind.whole & h.fields.keys()]
        largest = max((x.size for x in part.case.values() if isinstance(x, np.ndarray)), default=1)
        tried = list(of_different_fields(small))[: WORK // max(largest, 1)]
        count = sum(1 for _ in of_different_fields(active))
        if len(tried) < count:
            untried.append(f"{count - len(tried)} of {count} pairs of errors; pass smaller sizes.")
        yield from tried
        for h in small:
            changed = altered(part.case, [h]) or {}
            some = itertools.islice(kind.more(changed, part.numbers), 12)
            yield from ((h, read) for read in some if not h.fields.keys() & read.fields.keys())

    def read() -> Iterator[Hypothesis]:
        yield from kind.more(part.case, part.numbers)
        yield from kind.rare(part.case)
        yield from with_factor(kind.model, part.case, part.numbers)

    stages: tuple[Callable[[], Iterable[Hypotheses]], ...] = (
        lambda: zip(kind.hypotheses),
        lambda: zip(read()),
        pairs,
        lambda: zip(kind.last(whole.case, whole.numbers)),
    )
    causes: dict[frozenset[str], tuple[float, Hypotheses]] = {}
    errors: list[tuple[float, str]] = []
    for stage in stages:
        alone, last = stage is stages[0], stage is stages[-1]
        for chosen in stage():
            needs_whole = last or any(kind.whole & h.fields.keys() for h in chosen)
            result = left_by(kind, chosen, whole if needs_whole else part, u)
            if result is None:
                continue
            active += chosen if alone else ()
            if result[1] and not needs_whole and index is not ...:
                result = left_by(kind, chosen, whole, u) or result
            left, fits = result
            errors.append((left, joined(chosen)))
            names = frozenset(h.name for h in chosen)
            if fits and left < (causes[names][0] if names in causes else np.inf):
                causes[names] = left, chosen
        if causes:
            break
    return sorted(causes.values(), key=lambda one: one[0]), errors, [h.name for h in active], untried


def joined(chosen: Hypotheses) -> str:
    return " + ".join(h.name for h in chosen)


def with_axes_moved(report: Report, numbers: Array, wanted: Float64, bound: Float64 | float) -> Report:
    """Name the order of axes with which a result of another shape is right, if there is one."""
    for order in itertools.permutations(range(numbers.ndim)):
        moved = numbers.transpose(order)
        if moved.shape == wanted.shape and in_bounds(moved.astype(np.float64), wanted, bound).max(initial=0) <= 1:
            sentence = f"The result has shape {numbers.shape}; expected {wanted.shape}. Its numbers are right."
            cause = Cause("order of axes", sentence, "the transposed result is right.", f"Transpose it by {order}.")
            return replace(report, causes=(cause,))
    return report


@np.errstate(all="ignore")  # a wrong formula may divide by zero
def judge(kind: Kind, got: object, case: Case, precision: str) -> Report:
    """Compare numbers with the right answer; if they differ, find the hypotheses that explain them."""
    numbers, dtype = as_numbers(got, kind.name)
    precision = coarser(precision, dtype)
    u = ROUNDOFF[precision]
    case = {"times": 1.0, **case}
    wanted = kind.truth(case)
    if [n for n in numbers.shape if n != 1] != [n for n in wanted.shape if n != 1]:
        where = f"The result has shape {numbers.shape}; expected {wanted.shape}."
        return with_axes_moved(
            Report(kind.name, False, 0.0, np.inf, precision, where=where), numbers, wanted, kind.bound(case, wanted, u)
        )
    numbers = numbers.reshape(wanted.shape).astype(np.float64)
    bound = np.broadcast_to(kind.bound(case, wanted, u), wanted.shape)
    off = in_bounds(numbers, wanted, bound)
    worst = np.unravel_index(int(off.argmax()), off.shape) if off.size else ()
    error = float(np.nan_to_num(abs(numbers - wanted)[worst], nan=np.inf)) if off.size else 0.0
    limit = float(bound[worst]) if off.size else 0.0
    wrong = off > 1
    if not wrong.any():
        return Report(kind.name, True, limit, error, precision, got=numbers, wanted=wanted)
    found, errors, active, untried = search(kind, View(case, numbers, wanted, bound, off), u)
    of_float32 = kind.bound(case, wanted, ROUNDOFF["float32"])
    if not found and u < ROUNDOFF["float32"] and in_bounds(numbers, wanted, of_float32).max() <= 1:
        found = [(error, (FLOAT32,))]
    named = {joined(chosen) for _, chosen in found}
    best = min((one for one in errors if one[1] not in named and np.isfinite(one[0])), default=None)
    axes = ("batch",) * (wanted.ndim - len(kind.axes)) + kind.axes[len(kind.axes) - wanted.ndim :]
    return Report(
        kind.name,
        False,
        limit,
        error,
        precision,
        tuple(_cause(case, left, chosen, best) for left, chosen in found),
        locate(wrong, numbers, wanted, axes, kind.labels(case)),
        () if found else tuple(active),
        () if found else tuple(untried),
        numbers,
        wanted,
        wrong,
        axes,
    )


def _cause(case: Case, left: float, chosen: Hypotheses, best: tuple[float, str] | None) -> Cause:
    words = {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in case.items()}
    sentence, change = (
        " And: ".join(text.format(**words) for text in texts)
        for texts in ([h.sentence for h in chosen], [h.change for h in chosen])
    )
    other = f"; the best other hypothesis, {best[1]}, leaves {best[0]:.2g}" if best else ""
    evidence = f"this explanation leaves an error of {left:.2g}{other}."
    return Cause(joined(chosen), sentence, evidence, change)
