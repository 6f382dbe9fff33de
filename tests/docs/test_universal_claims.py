"""Sentences with "every", "all", "only" or "never" have a test or a script behind them.

Such a sentence is a claim that someone has counted. Give it its evidence in ``EVIDENCE``, or weaken it to the cases
that were counted. ``python tests/docs/test_universal_claims.py PAGE ...`` prints the sentences of pages.
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(page.name for page in sorted(ROOT.glob("*.md"))),
    "benchmarks/README.md",
    *sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md")),
]
"""The pages whose sentences were counted."""

EVIDENCE = {
    ("CONTRIBUTING.md", '"Every", "all", "only" and "never" need a test'): "tests/docs/test_universal_claims.py",
    ("docs/claims/index.md", "- all:"): "tests/docs/test_claims.py::test_counts_of_the_index",
    ("docs/claims/sinusoid-source.md", "falls at every doubling"):
        "tests/docs/test_documents.py::test_s1_the_plot_decays",
    ("docs/claims/survey.md", "only Shaw changes values"):
        "tests/docs/test_documents_claims.py::test_only_shaw_adds_to_values",
    ("docs/claims/survey.md", "the bias is never positive"):
        "tests/docs/test_documents.py::test_s0_a_distance_of_one_costs_one",
    ("docs/guides/commands.md", "every operator on"): "tests/demos/test_tour.py::test_every_operator_is_shown",
    ("docs/guides/operators.md", "lists every public function"): "docs/operator_table.py",
    ("docs/guides/reference.md", "has every function of"):
        "tests/contract/test_reference.py::test_a_twin_has_the_same_arguments",
}  # fmt: skip
"""(page, a part of the sentence): a test or a script."""

CODE = re.compile(
    r"<!-- made by.*?<!-- end of the made part -->|^```.*?^```|\$\$.*?\$\$|`[^`]*`", re.DOTALL | re.MULTILINE
)
BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )|\n(?=\|)|(?<=[.!?:;])\s+(?=[A-Z`\[(])")
QUOTATION = re.compile(r"^- 「.*?(?=\n  - place)|\*\*\".*?\"\*\*", re.DOTALL | re.MULTILINE)
"""A claim of docs/claims with its translation, and a bold quotation of docs/explanations: others say these."""
WORD = re.compile(r"(?<![-\w])(?:every(?! \d)|all|only|never)\b", re.IGNORECASE)  # not "read-only", "every 50 ms"


def universal_sentences(text):
    """Sentences of a page with one of the words; made parts, quotations, code and equations are left out."""
    text = re.sub(r"!\[[^\]]*\]", "", QUOTATION.sub("", text))  # alternative texts are computed by a program
    kept = CODE.sub(lambda match: match[0] if match[0].startswith("`") and "\n" not in match[0] else "", text)
    sentences = (" ".join(part.split()) for part in BREAK.split(kept))
    return [sentence for sentence in sentences if WORD.search(re.sub("`[^`]*`", "", sentence))]


@pytest.mark.parametrize("page", PAGES)
def test_universal_sentences_have_evidence(page):
    sentences = universal_sentences((ROOT / page).read_text("utf-8"))
    parts = [part for known, part in EVIDENCE if known == page]
    assert [sentence for sentence in sentences if not any(part in sentence for part in parts)] == []
    assert [part for part in parts if not any(part in sentence for sentence in sentences)] == []


@pytest.mark.parametrize("evidence", EVIDENCE.values())
def test_evidence_exists(evidence):
    file, _, name = evidence.partition("::")
    assert f"\ndef {name}" in (ROOT / file).read_text("utf-8")


def test_sentences_are_found():
    text = "Every one. Some.\n- It never\n  fails: a read-only array, every 5 ms.\n\n```\nall\n```\n`all` or $$all$$\n"
    assert universal_sentences(text) == ["Every one.", "- It never fails: a read-only array, every 5 ms."]
    text = '- 「全」 "all of them"\n  - place: 1\n  - evidence: it never\n    fails\n\n**"All."** Only once.\n'
    assert universal_sentences(text) == ["- evidence: it never fails", "Only once."]


def test_messages_of_the_pages_of_errors_have_one_form():
    """The pages say so; the error of an argument that Python itself does not know is the exception."""
    page = " ".join(" ".join(page.read_text("utf-8") for page in sorted(ROOT.glob("docs/guides/errors*.md"))).split())
    messages = re.findall(r"Traceback \(most recent call last\): (?:[\w.]+\.)?\w+Error: (.+?)(?= >>> | ```)", page)
    assert len(messages) > 40
    others = [text for text in messages if not re.match(r"[\w. ]+: .+? (?:has|is) .+?(?:; expected |$)", text)]
    assert others == ["...attention() got an unexpected keyword argument 'is_causal'..."]


if __name__ == "__main__":
    for path in sys.argv[1:]:
        found = universal_sentences(Path(path).read_text("utf-8"))
        print(*(f"{path}: {sentence}" for sentence in found), f"{len(found)} sentences in {path}", sep="\n")
