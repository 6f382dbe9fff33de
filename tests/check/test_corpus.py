"""What posenc.check says of public reports, and the score on its page."""

import re
from collections import Counter
from pathlib import Path

import pytest
from corpus import REPORTS, grades_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "check.md"


@pytest.mark.parametrize("link", REPORTS)
def test_a_public_report_has_its_sentence(link):
    reported = REPORTS[link]
    report = reported.run()
    assert not report
    assert reported.grade in grades_of(report, reported.sentence), str(report)


def test_the_page_has_the_score():
    score = Counter(one.grade for one in REPORTS.values())
    (counts,) = re.findall(
        r"^Of (\d+) reports, (\d+) are named, (\d+) are localised, and (\d+) are unknown\.",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    assert [int(count) for count in counts] == [
        len(REPORTS),
        *(score[name] for name in ("named", "localised", "unknown")),
    ]
    assert all(one.run.__doc__ and re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", link) for link, one in REPORTS.items())
