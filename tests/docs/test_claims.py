"""docs/claims: each claim has a quotation, a place, a verdict and evidence; the index counts the verdicts."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ROOT / "docs" / "claims"
INDEX = (CLAIMS / "index.md").read_text("utf-8")
PAGES = re.findall(r"^- S\d, \[.+?\]\((.+?\.md)\)", INDEX, re.MULTILINE)
ITEM = re.compile(
    r"- (?P<place>.+?):\s+「(?P<quotation>.+?)」(?P<translation>.*?)\\\n  \*\*(?P<verdict>.+?)\*\*:\s+(?P<evidence>.+)",
    re.DOTALL,
)
VERDICTS = (
    "reproduced",
    "refuted",
    "refuted, a slip",
    "shown in small: agrees",
    "shown in small: disagrees",
    "untestable",
)


def claims_of(page):
    """The items of a page. A list item that is no claim, or lacks a part, is a ValueError."""
    found = []
    for item in re.split(r"^(?=-\s)", (CLAIMS / page).read_text("utf-8"), flags=re.MULTILINE)[1:]:
        match = ITEM.fullmatch(re.split(r"\n(?=##|\n)", item)[0].strip())
        if match is None:
            raise ValueError(f"{page}: a claim without quotation, place, verdict or evidence:\n{item}")
        found.append(SimpleNamespace(**{name: " ".join(part.split()) for name, part in match.groupdict().items()}))
    return found


def counts(claims):
    verdicts = [claim.verdict for claim in claims]
    reproduced, refuted, slips, agrees, disagrees, untestable = map(verdicts.count, VERDICTS)
    return (
        f"{len(claims)} claims, {reproduced} reproduced, {refuted + slips} refuted ({slips} slips), "
        f"{agrees + disagrees} shown in small ({agrees} agree, {disagrees} disagree), {untestable} untestable"
    )


def test_counts_of_the_index():
    by_page = {page: claims_of(page) for page in PAGES}
    assert {*by_page, "index.md"} == {path.name for path in CLAIMS.glob("*.md")}
    for page, claims in by_page.items():
        assert f"]({page}):\n  {counts(claims)}\n" in INDEX
    assert f"- all:\n  {counts([claim for claims in by_page.values() for claim in claims])}\n" in INDEX


@pytest.mark.parametrize("page", PAGES)
def test_claims_are_complete(page):
    """Chinese is translated, a verdict is one of the index, and a judgement has evidence, which exists."""
    for claim in claims_of(page):
        chinese = re.search("[\u4e00-\u9fff]", claim.quotation)
        assert bool(chinese) == bool(claim.translation), claim
        assert claim.verdict in VERDICTS, claim
        shown = re.search(r"\w+\.py::test_\w+|\]\(\S+\.md", claim.evidence)
        assert shown or claim.verdict in ("untestable", "refuted, a slip") or "posenc." in claim.evidence, claim
        if claim.verdict.startswith("shown in small"):
            assert re.search(r"study(-why)?\.md|linear model", claim.evidence), claim

        for file, name in re.findall(r"`(\S+?\.py)::(\w+)`", claim.evidence):
            assert f"\ndef {name}(" in (ROOT / file).read_text("utf-8"), claim
        for file in re.findall(r"\]\(([^)#]+\.md)", claim.evidence):
            assert (CLAIMS / file).resolve().exists(), claim
