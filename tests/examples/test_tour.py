"""The tour: the words that it swaps, its table, and its command."""

import re
from pathlib import Path

import pytest

from posenc import __main__ as effects

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
from tour import __main__ as program
from tour.text import SENTENCE, embedded, of_user, words_of

WORDS = words_of(SENTENCE)


def test_table(capsys):
    """A row for each scheme, not wider than 100 columns even with long words; the page has what is printed."""
    content = "Donaudampfschiff und Kapitänsmütze liegen am Ufer"
    table = program.table(of_user("a text", content))
    assert capsys.readouterr().out == table + "\n"
    lines = table.splitlines()
    assert max(map(len, lines)) <= 100
    assert "Donauda… <-> Kapitän…" in table
    rows = {line[:24].rstrip(): line[48:].split() for line in lines}
    assert {scheme.name for scheme in effects.all_schemes()} <= set(rows)
    change = effects.change_by_swap(effects.all_schemes()[-1], content.split(), 0, 2)
    assert rows["  alibi as an array"][0] == f"{change:.2f}"
    assert rows["no positions"][0] == "0"
    assert rows["alibi"][1:3] == ["0", "0"]
    assert rows["learned"][2] == "-"


def swapped(content, swap=None):
    words, a, b = of_user("a file", content, swap).drawn
    return " ".join(words), words[a], words[b]


def test_the_two_longest_words_are_swapped():
    """Among equals the words farthest apart are taken."""
    cases = {
        "Oh! The cat sat on the mat. It slept.": ("The cat sat on the mat", "The", "mat"),
        "Der Hund beißt den Briefträger heute noch nicht.": (
            "Der Hund beißt den Briefträger heute noch nicht", "Briefträger", "nicht",
        ),
        "Les enfants mangent des pommes.": ("Les enfants mangent des pommes", "enfants", "mangent"),
        "我爱中国": ("我 爱 中 国", "我", "国"),
        "one two three four five six seven eight nine ten": (
            "one two three four five six seven eight", "three", "eight",
        ),
        "one. two. three.": ("one two three", "one", "three"),
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


def test_text_without_a_file():
    """Without a text, the sentence is always the same; --swap finds words of the docstring, too."""
    words, a, b = embedded().drawn
    assert (words, words[a], words[b]) == (WORDS, "Jack", "Molly")
    assert embedded().words[: len(WORDS)] == WORDS
    assert {"queries", "keys"} <= set(embedded(("queries", "keys")).drawn.words)


def test_refused_swap(tmp_path, capsys):
    (tmp_path / "text").write_text("The cat sat on the mat.", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        program.main([str(tmp_path / "text"), "--swap", "cat", "dog"])
    assert left.value.code == 2
    assert "--swap: 'dog' is not a word of " in capsys.readouterr().err


@pytest.mark.slow
def test_command(run_python, tmp_path):
    """The whole tour, on a text from standard input."""
    out, script = tmp_path / "pictures", Path(program.__file__).parent
    code = (
        f"import io, runpy, sys; sys.argv = ['tour', '-', '--out', {str(out)!r}]; sys.path.insert(0, {str(script)!r})"
    )
    text = " ".join(f"word{i % 7}" for i in range(40)).encode()
    code += (
        f"; sys.stdin = io.TextIOWrapper(io.BytesIO({text!r})); runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = run_python(code, timeout=600)
    assert done.returncode == 0, done.stderr
    index = (out / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'src="(.+?)"', index)) == {file.name for file in out.glob("*.png")}
    assert (out / "slides.html").exists()
