"""The answer of a check: right, or wrong with the causes that fit."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
ROWS, COLUMNS = 16, 64
"""Most rows and columns of the picture in text."""
CROWDED = 0.9
"""A larger share of wrong numbers is not drawn in text."""
SAME = re.compile(r"\b(?!and\b)[a-z]{2,} ([^;]+); expected \1(?=[.:;]? |[.:;]?$)")
"""A sentence whose number that was read is the expected one."""
SHOWN = 6
"""Most places of an axis that are listed as right."""


class Cause(NamedTuple):
    """An error that explains the numbers: a known one with the change that mends it, or one that was measured."""

    name: str
    """Short name of the error, such as "layout", or the part that was read."""
    sentence: str
    """The error in words."""
    evidence: str
    """The error that is left under this hypothesis, and the error of the best other one; or how it was measured."""
    change: str
    """The change to make; empty if the error was measured, and no known error gives these numbers."""
    part: str = ""
    """The part that has the error, if it was read alone. Causes of one part are alternatives."""


class Reading(NamedTuple):
    """A part of an implementation that was measured and is wrong."""

    part: str
    """The part, such as "pairs", "positions" or "weights"."""
    sentence: str
    """What was read and what was expected, in numbers."""
    explained: bool = False
    """True if a law gives all numbers that were read; false if the part is known, but not its error."""
    causes: tuple[Cause, ...] = ()
    """The known errors that give the numbers that were read."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """The result of a check. A report is true if the implementation is right.

    Examples
    --------
    >>> import posenc.check
    >>> report = posenc.check.slopes(lambda heads: [2.0 ** (-8 * h / heads) for h in range(1, heads + 1)], 12)
    >>> bool(report), [cause.name for cause in report.causes]
    (False, ['geometric for any number'])
    """

    subject: str
    """The kind of check: rope, slopes, ..."""
    right: bool
    """True if every difference is within the bound."""
    bound: float
    """The error that an implementation in this dtype may have at the same place."""
    error: float
    """The error that is largest in units of its bound."""
    precision: str
    """The dtype that the bound was derived for."""
    causes: tuple[Cause, ...] = ()
    """The causes that fit; empty if the implementation is right, or if no known error explains the numbers."""
    where: str = ""
    """The place of the first difference, and a picture of all places."""
    untried: tuple[str, ...] = ()
    """What the inputs of this call could not show."""
    got: Float64 | None = None
    """The numbers of the implementation, in float64."""
    wanted: Float64 | None = None
    """The right numbers."""
    wrong: npt.NDArray[np.bool_] | None = None
    """Which numbers are wrong."""
    axes: tuple[str, ...] = ()
    """The names of the axes of the numbers."""
    readings: tuple[Reading, ...] = ()
    """The parts that were measured and are wrong, the outer ones first."""

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        """The verdict, the first cause and the rest, in 200 characters: pytest shows them if an assertion fails."""
        lines = [line for line in str(self).split("\n") if not line.startswith(" ")]
        known = "Cause: " if self.causes or not self.readings else "Read: "
        name, _, cause = next((line[len(known) :] for line in lines if line.startswith(known)), "").partition(". ")
        head = f"{self.subject}: wrong: {name}: {cause[:1].lower()}{cause[1:]} " if name else ""
        text = head + " ".join(lines).removeprefix(f"{self.subject}: wrong. " if head else "")
        return f"<{text[:200]}{'...' if len(text) > 200 else ''}>"

    def assert_right(self) -> None:
        """Raise an AssertionError with the report, unless it is right."""
        __tracebackhide__ = True  # pytest shows the line of the test
        if not self:
            raise AssertionError(f"{repr(self)[1:-1]}\n{self}")

    def __str__(self) -> str:
        verdict = "right" if self.right else "wrong"
        lines = [
            f"{self.subject}: {verdict}. The largest error is {self.error:.2g}; the bound is {self.bound:.2g} "
            f"({self.precision})."
        ]
        for _, same in itertools.groupby(self.causes, lambda cause: cause.part):
            causes = list(same)
            if len(causes) > 1 and causes[0].change:
                lines.append(f"These {len(causes)} causes cannot be told apart by the inputs:")
            for cause in causes:
                lines.append(f"Cause: {cause.name}. {cause.sentence}")
                lines += [f"Change: {cause.change}"] if cause.change else []
                lines.append(f"Evidence: {cause.evidence}")
        if not self.right and not self.causes:
            parts = ", ".join(dict.fromkeys(one.part for one in self.readings))
            where = f"unknown, in this part: {parts}" if parts else "unknown"
            lines.append(f"Cause: {where}. No known error gives these numbers.")
        told = {cause.sentence for cause in self.causes}
        lines += [f"Read: {one.part}. {one.sentence}" for one in self.readings if one.sentence not in told]
        lines += [f"Not tried: {one}" for one in self.untried]
        return "\n".join([*lines, *([self.where] if self.where else [])])

    def _repr_png_(self) -> bytes | None:
        """Draw the numbers, the right numbers and their difference."""
        if self.got is None or self.wanted is None or self.right:
            return None
        try:
            from ..plot import comparison
        except ImportError:  # without matplotlib a notebook prints the text
            return None
        head = first_head(self.got, self.wanted)
        found = " or ".join(cause.name for cause in self.causes) or "unknown cause"
        labels = ("", "", *self.axes)
        drawn = matrix(self.got)[head], matrix(self.wanted)[head]
        figure = comparison(*drawn, f"posenc.check.{self.subject}: {found}", (labels[-2], labels[-1]))
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=80)
        return png.getvalue()


def with_readings(report: Report, read: Callable[[], Iterable[Reading]]) -> Report:
    """Read the parts of a wrong implementation. What known errors of the whole do not explain has their causes."""
    readings: list[Reading] = []
    if report or report.got is None:
        return report
    with contextlib.suppress(Exception), warnings.catch_warnings():  # it may not take the inputs of a probe
        warnings.simplefilter("ignore")
        readings.extend(read())
    readings = [one for one in readings if one.causes or not SAME.search(one.sentence)]
    evidence = "measured; no known error gives these numbers."
    causes = [
        cause
        for one in readings
        for cause in one.causes or [Cause(one.part, one.sentence, evidence, "", one.part)] * one.explained
    ]
    if report.causes or not causes:
        return replace(report, readings=(*report.readings, *readings))
    return replace(report, readings=tuple(readings), causes=tuple(dict.fromkeys(causes)), untried=())


def further(
    report: Report, run: Callable[[], Report] | None, what: str, accepts: Callable[[Report], bool] = lambda other: True
) -> Report:
    """Judge an implementation that is right with other inputs, too.

    It need not take them. If it raises an exception or returns another shape, the report says that they were not tried.
    It says so, too, if `run` is None. If `accepts` is false for the other report, the length may be the reason.
    """
    if not report:
        return report
    other = None
    with contextlib.suppress(Exception, SystemExit):
        other = run() if run else None
    if other is None or (not other and (other.got is None or not accepts(other))):
        why = "the implementation does not take them"
        why = why if other is None or other.got is None else "the result may depend on the length of the sequence"
        return replace(report, untried=(*report.untried, f"{what}: {why}." if run else f"{what}."))
    return report if other else replace(other, where=f"The implementation is wrong with {what} only.\n{other.where}")


def matrix(x: Float64) -> Float64:
    """View an array as matrices, (all other axes, rows, columns)."""
    x = np.atleast_2d(x)
    return x.reshape(-1, *x.shape[-2:])


def first_head(got: Float64, wanted: Float64) -> int:
    """Return the first matrix that differs most clearly."""
    difference = np.nan_to_num(abs(matrix(got) - matrix(wanted)), nan=0.0).max((-1, -2), initial=0)
    return int(np.argmax(difference > difference.max() / 2))


def locate(
    wrong: npt.NDArray[np.bool_],
    got: Float64,
    wanted: Float64,
    axes: Sequence[str],
    labels: Mapping[str, Sequence[str]],
) -> str:
    """Describe where numbers are wrong: the first place, the extent along each axis, and a picture."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = ", ".join(labels[a][i] if a in labels else f"{a} {i}" for a, i in zip(axes, index, strict=True))
    lines = [f"First difference: {place}: {got[index]:.6g} instead of {wanted[index]:.6g}."]
    for axis, name in enumerate(axes):
        of_axis = np.asarray(wrong.any(tuple(other for other in range(wrong.ndim) if other != axis)))
        if 0 < of_axis.sum() < len(of_axis):
            right = np.flatnonzero(~of_axis)
            listed = ", ".join(labels[name][i] if name in labels else f"{name} {i}" for i in right[:SHOWN])
            lines.append(f"Right for {listed}{', ...' if len(right) > SHOWN else ''}.")
    share = wrong.mean()
    if share > CROWDED:
        return "\n".join([*lines, f"{100 * share:.0f} % of the numbers are wrong."])
    leading = index[:-2]
    grid = np.atleast_2d(wrong[leading])
    step = [max(1, -(-size // most)) for size, most in zip(grid.shape, (ROWS, COLUMNS), strict=True)]
    of = "".join(f", {name} {i}" for name, i in zip(axes, leading, strict=False))
    ways = " and ".join(map(" ".join, zip(axes[-2:], ("downwards", "across")[-wrong.ndim :], strict=True)))
    thinned = f" A character is {step[0]} x {step[1]} numbers." if max(step) > 1 else ""
    lines.append(f"Wrong (#) and right (.) numbers{of}, {ways}.{thinned}")
    for row in range(0, grid.shape[0], step[0]):
        band = np.asarray(grid[row : row + step[0]].any(0))
        lines.append("  " + "".join(".#"[int(band[c : c + step[1]].any())] for c in range(0, len(band), step[1])))
    return "\n".join(lines)
