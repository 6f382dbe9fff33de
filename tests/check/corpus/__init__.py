"""Public reports of errors, each as a wrong implementation in our own words: what does posenc.check say of it?

A report is named if the sentence of a cause is the error, localised if the check reads the part that is wrong, but does
not say the error, and unknown otherwise.
"""

from collections.abc import Callable
from typing import NamedTuple

from posenc import check

REPORTS = {}


class Reported(NamedTuple):
    run: Callable[[], check.Report]
    sentence: str
    """A part of a cause's sentence, of a reading's if the error is localised; empty if it is unknown."""
    grade: str = "named"


def reported(link, sentence="", grade="named"):
    """Add a check to the corpus. Its docstring has the error in our words."""

    def add(run):
        REPORTS[link] = Reported(run, sentence, grade)
        return run

    return add


def grades_of(report, sentence):
    """The grades that a report may have with a sentence."""
    if not sentence:
        return {"unknown"}
    found = {"named"} if any(sentence in cause.sentence for cause in report.causes) else set()
    return found | ({"localised"} if any(sentence in one.sentence for one in report.readings) else set())


from . import attention, decoding, encodings, frequencies, rotations  # noqa: E402, F401
