"""README and every page of docs/: examples print the shown results, and every public name is documented."""

import doctest
import operator
import re
from pathlib import Path

import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
}
NEEDS = {"plot": "matplotlib", "ml_dtypes": "ml_dtypes"}
"""The package that a page with this text imports."""


def require(text):
    for said, package in NEEDS.items():
        if said in text:
            pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "\n>>> " in text])
def test_examples(page):
    require("".join(line for line in PAGES[page].splitlines() if line.startswith((">>>", "..."))))
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=flags, encoding="utf-8")
    assert failed == 0 < tried


def test_the_example_of_decoding_runs(run_python):
    done = run_python((ROOT / "examples" / "decode.py").read_text("utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_public_name_is_in_the_reference():
    """Pages document all public names of a room or a module, so it is enough that each of them has a page."""
    said = set(re.findall(r"\{members\} posenc\.(\w+)", "".join(PAGES.values())))
    rooms = {getattr(posenc, name).__module__.split(".")[1] for name in posenc.__all__}
    assert said == {*rooms, *posenc._MODULES}
    from posenc import interop

    assert [name for name in interop.__all__ if f"interop.{name}" not in PAGES["docs/design.md"]] == []


def test_functions_have_one_page():
    """A name is documented on one page below docs/functions, and each page names functions that exist."""
    named = [
        name
        for page, text in PAGES.items()
        if page.count("/") == 3
        for line in re.findall(r"^```\{functions\} (.+)$", text, re.MULTILINE)
        for name in line.split()
    ]
    assert len(named) == len(set(named)) > 50
    for name in named:
        assert operator.attrgetter(name.removeprefix("posenc."))(posenc), name


def test_tables_of_the_documents():
    page = PAGES["docs/explanations/documents.md"]
    errors = re.findall(r"^\| (no|yes) \|.*\| (?:`(\w+)`|-) \|$", page, re.MULTILINE)
    assert (len(errors), [slip for slip, _ in errors].count("no")) == (27, 7)
    models = re.findall(r"^\| S\d.*\| (no|yes) \|[^|]+\|$", page, re.MULTILINE)
    assert (models.count("yes"), models.count("no")) == (33, 11)
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("*/test_*.py"))
    assert [name for _, name in errors if name and f"\ndef {name}(" not in tests] == []
    calls = re.findall(r"`(analysis\.)?(\w+)\(", page[: page.index("## Errors")])
    assert [name for module, name in calls if not hasattr(posenc.analysis if module else posenc, name)] == ["h"]


def test_files_have_no_chinese_outside_of_the_tour():
    """Two texts of the tour, of its test, are Chinese."""
    suffixes = {".c", ".css", ".html", ".ipynb", ".js", ".md", ".py", ".svg"}
    files = [path for name in ("docs", "tests", "examples") for path in (ROOT / name).rglob("*")]
    texts = {path: path.read_text("utf-8") for path in files if path.suffix in suffixes}
    found = {path.name: re.findall("[\u3000-\u30ff\u3400-\u9fff\uf900-\uff65]+", text) for path, text in texts.items()}
    words = found.pop("test_tour.py")
    assert set("".join(words)) == set(
        "\u6211\u7231\u4e2d\u56fd\u8001\u8239\u592b\u628a\u65c5\u5ba2\u6e21\u8fc7\u4e86\u6cb3"
    )
    assert {name for name, said in found.items() if said} == set()
