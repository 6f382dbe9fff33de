"""docs/made_part.py writes the parts of pages that programs make, and function_text.py what functions are."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

import function_text
import made_part

PAGE = "# Title\n\n<!-- made by: python docs/one.py --write -->\n\nold\n\n<!-- end of the made part -->\n\nThe end.\n"


def finish(page, made, *options):
    return made_part.finish(page, "docs/one.py", made, made_part.parser("docs/one.py", "Makes.").parse_args(options))


def test_only_the_part_between_the_marks_is_written(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert finish(page, "new") == 0
    assert page.read_text() == PAGE
    assert finish(page, "new", "--check") == 1
    assert page.read_text() == PAGE
    assert capsys.readouterr().err == "page.md: the made part is old; run python docs/one.py --write\n"
    assert finish(page, "new", "--write") == 0
    assert page.read_text() == PAGE.replace("old", "new")
    assert finish(page, "\nnew\n", "--check") == 0


def test_pages_have_the_text_of_their_functions(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["function_text.py", "--check"])
    assert function_text.main() == 0, capsys.readouterr().err


@pytest.mark.parametrize("missing", ["<!-- made by: python docs/one.py --write -->", made_part.END])
def test_a_page_without_marks_is_refused(tmp_path, capsys, missing):
    page = tmp_path / "page.md"
    page.write_text(text := PAGE.replace(missing, ""))
    assert finish(page, "new", "--check") == finish(page, "new", "--write") == 1
    assert page.read_text() == text
    assert "page.md: no lines <!-- made by: python docs/one.py --write --> and " in capsys.readouterr().err
