"""The tour shows every operator of docs/guides/operators.md, on words that are chosen well, and runs as a command."""

import re
from pathlib import Path

import pytest

import posenc
import tour
from posenc import __main__ as table
from tour import __main__ as program
from tour import fonts, tables, text
from tour.functions import functions
from tour.text import SENTENCE, embedded, of_user, words_of

ROOT = Path(__file__).resolve().parent.parent.parent
OPERATORS = re.findall(r"^- `(\w+)`:", (ROOT / "docs/guides/operators.md").read_text(encoding="utf-8"), re.MULTILINE)
WORDS = words_of(SENTENCE)
TEXT = of_user("a text", "The cat sat on the mat and the dog lay on the other mat")


@pytest.fixture(scope="module")
def plans():
    return table.all_schemes()


def named(plans, *names):
    return [scheme for scheme in plans if scheme.name in names]


def test_every_operator_is_shown(plans):
    shown = [scheme.name for scheme in plans if hasattr(posenc, scheme.name)] + list(functions(WORDS))
    assert sorted(shown) == sorted(OPERATORS)


@pytest.mark.parametrize("name", functions(WORDS))
def test_functions(name):
    what, text = functions(WORDS)[name]
    assert what
    assert text
    if text.startswith("differs by"):
        assert float(text.split()[-1]) < table.ROUNDING


def test_tables(plans):
    some = named(plans, "no positions", "learned", "rope", "alibi", "cope", "dense")
    steps = []
    rows, others = tables.operators_table(some, TEXT, steps.append), tables.functions_table(TEXT, steps.append)
    shown = sum(hasattr(posenc, scheme.name) for scheme in plans)
    assert (len(rows.rows), len(others.rows)) == (6, len(OPERATORS) - shown)
    assert all(len(row) == len(one.header) for one in (rows, others) for row in one.rows)
    assert steps[-1] == "the other functions"
    cells = {row[0].text: [cell.text for cell in row[2:5]] for row in rows.rows}
    change = table.change_by_swap(named(some, "alibi")[0], *TEXT.drawn)
    assert cells["no positions"] == ["0", "", ""]
    assert cells["alibi"] == [f"{change:.2f}", "0", "0"]
    assert cells["learned"][2] == "-"
    assert cells["dense"][1:] == ["", ""]  # it reads no positions
    assert [row[0].text for row in tables.short_table(rows).rows] == ["no positions", "learned", "rope", "alibi"]


def test_printed_table_is_short_and_narrow(plans, capsys):
    """Nothing scrolls away in a terminal of 100 columns and 30 lines, even with long words."""
    drawn = text.Swap(("Donaudampfschiff", "Kapitänsmütze", "x"), 0, 1)
    some = [scheme for scheme in plans if scheme.name in tables.SHOWN]
    assert len(some) == len(tables.SHOWN)
    shown = tables.short_table(tables.operators_table(some, TEXT._replace(drawn=drawn), lambda step: None))
    tour.Terminal().show(shown)
    printed = capsys.readouterr().out
    for lines in (printed.splitlines(), tour.terminal.plain(shown).splitlines()):
        assert max(map(len, lines)) <= 100
        assert len(lines) < 20
    assert printed.count("\u2026") == 2  # in the two long words; rich cuts what is too wide


def swapped(content, swap=None):
    words, a, b = of_user("a file", content, swap).drawn
    return " ".join(words), words[a], words[b]


def test_two_content_words_are_swapped():
    """The longest ones but the first; capitals count double, and among equals the words farthest apart are taken."""
    cases = {
        "Oh! The cat sat on the mat. It slept.": ("The cat sat on the mat", "cat", "mat"),
        "Der Hund beißt den Briefträger heute noch nicht.": (
            "Der Hund beißt den Briefträger heute noch nicht", "Hund", "Briefträger",
        ),
        "Yesterday the dog chased Peter across the\ngarden.": (
            "Yesterday the dog chased Peter across the garden", "Peter", "garden",
        ),
        "Les enfants mangent des pommes.": ("Les enfants mangent des pommes", "enfants", "mangent"),
        "老船夫把旅客渡过了河。旅客谢了老船夫。": ("老船夫 把 旅客 渡 过 了 河", "老船夫", "旅客"),
        "我爱中国": ("我 爱 中 国", "爱", "国"),
        "one two three four five six seven eight nine ten": (
            "one two three four five six seven eight", "three", "eight",
        ),
        "one. two. three.": ("one two three", "two", "three"),
        "a. a. a. a. a. a. a. a. a. a. b. c": ("a a a a a a a b", "a", "b"),
    }  # fmt: skip
    for content, expected in cases.items():
        assert swapped(content) == expected, content


def test_swap_names_words():
    """A word may be a sequence of Chinese characters; the sentence is the first one that has both words."""
    assert swapped("It ran. The ranch ran dry.", ("ran", "dry")) == ("The ranch ran dry", "ran", "dry")
    assert swapped("老船夫把旅客渡过了河", ("船夫", "旅客")) == ("老 船夫 把 旅客 渡 过 了 河", "船夫", "旅客")
    numbers = " ".join(f"w{i}" for i in range(20))
    assert swapped(numbers, ("w12", "w9")) == ("w5 w6 w7 w8 w9 w10 w11 w12", "w12", "w9")
    for swap, match in (
        (("cat", "cat"), "'cat' is named twice; expected two different words"),
        (("cat", "dog"), "'dog' is not a word of a file"),
        (("", "cat"), "'' is not a word of a file"),
        (("cat", "mouse"), "no sentence of a file has 'cat' and 'mouse' fewer than 8 words apart"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"--swap: {match}")):
            of_user("a file", "A cat slept. The mouse ran.", swap)


def test_text_of_python():
    """Without a text, the sentence is always the same; --swap finds words of Python's reference, too."""
    words, a, b = embedded().drawn
    assert (words, words[a], words[b]) == (WORDS, "Jack", "Molly")
    assert embedded().words[: len(WORDS)] == WORDS
    assert {"convenient", "debugging"} <= set(embedded(("convenient", "debugging")).drawn.words)


def test_open_shows_the_index(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(program.tour, "run", lambda text, directory: directory / "index.html")
    monkeypatch.setattr(program.webbrowser, "open", opened.append)
    (tmp_path / "text").write_text("The cat sat on the mat.", encoding="utf-8")
    words = [str(tmp_path / "text"), "--out", str(tmp_path / "out"), "--swap", "cat", "sat"]
    assert program.main(words) == 0
    assert program.main([*words, "--open"]) == 0
    assert opened == [(tmp_path / "out/index.html").as_uri()]


def test_refused_swap(tmp_path, capsys):
    (tmp_path / "text").write_text("The cat sat on the mat.", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        program.main([str(tmp_path / "text"), "--swap", "cat", "dog"])
    assert left.value.code == 2
    assert "--swap: 'dog' is not a word of " in capsys.readouterr().err


def test_fonts(monkeypatch):
    """A family is added only if a character needs it; characters of no font are returned."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    assert fonts.families_for("The ferryman é") == (["DejaVu Sans"], "")
    of_family = {"One": set("我爱"), "Two": set("爱中")}
    monkeypatch.setattr(fonts, "installed", lambda: {name: name for name in of_family})
    monkeypatch.setattr(fonts, "characters_of", lambda path: of_family.get(path, set("abc")))
    assert fonts.families_for("a 我 b") == (["DejaVu Sans", "One"], "")
    assert fonts.families_for("我爱中国") == (["DejaVu Sans", "One", "Two"], "国")


def test_installed_fonts_are_found():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    found = fonts.installed()
    assert "DejaVu Sans" in found
    assert {"a", "é"} <= fonts.characters_of(found["DejaVu Sans"])
    assert not any(name.startswith("Last Resort") for name in found)


def test_texts_that_tell_nothing():
    for content, match in (("", "no words in it"), ("one two", "2 words, 2 different"), ("a a a a", "1 different")):
        with pytest.raises(ValueError, match=match):
            of_user("a file", content)
    assert len(of_user("a file", "我爱中国 and Molly's photo").words) == 7


@pytest.mark.slow
def test_command(run_python, tmp_path):
    """The whole tour, on a text of its own, without rich."""
    out = tmp_path / "pictures"
    (tmp_path / "text").write_text(" ".join(f"word{i % 7}" for i in range(40)), encoding="utf-8")
    script, words = Path(program.__file__).parent, ["tour", str(tmp_path / "text"), "--out", str(out)]
    code = f"import runpy, sys; sys.modules['rich'] = None; sys.argv = {words}; sys.path.insert(0, {str(script)!r})"
    done = run_python(f"{code}; runpy.run_path({str(script)!r}, run_name='__main__')", timeout=600)
    assert done.returncode == 0, done.stderr
    assert "python examples/study --quick" in done.stdout
    index = (out / "index.html").read_text(encoding="utf-8")
    assert all(f">{name}</td>" in index for name in OPERATORS)
    assert set(re.findall(r'src="(.+?)"', index)) == {file.name for file in out.glob("*.png")}
    assert ("slides.html" in index) == (out / "slides.html").exists() == tour.can_draw()
