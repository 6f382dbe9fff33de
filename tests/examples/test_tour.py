"""The tour: the words that it swaps, and its table. The gate runs its command."""

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


@pytest.mark.parametrize(
    ("content", "swap", "expected"),
    [
        ("Oh! The cat sat on the mat. It slept.", None, ("The cat sat on the mat", "The", "mat")),
        (
            "Der Hund beißt den Briefträger heute.",
            None,
            ("Der Hund beißt den Briefträger heute", "beißt", "Briefträger"),
        ),
        ("我爱中国", None, ("我 爱 中 国", "我", "国")),
        (
            "one two three four five six seven eight nine ten",
            None,
            ("one two three four five six seven eight", "three", "eight"),
        ),
        ("a. a. a. a. a. a. a. a. a. a. b. c", None, ("a a a a a a a b", "a", "b")),
        ("It ran. The ranch ran dry.", ("ran", "dry"), ("The ranch ran dry", "ran", "dry")),
        ("老船夫把旅客渡过了河", ("船夫", "旅客"), ("老 船夫 把 旅客 渡 过 了 河", "船夫", "旅客")),
        (" ".join(f"w{i}" for i in range(20)), ("w12", "w9"), ("w5 w6 w7 w8 w9 w10 w11 w12", "w12", "w9")),
    ],
)
def test_swapped_words(content, swap, expected):
    """The two longest words, among equals the words farthest apart; or the named ones, of the first sentence that has
    both."""
    words, a, b = of_user("a file", content, swap).drawn
    assert (" ".join(words), words[a], words[b]) == expected


@pytest.mark.parametrize(
    ("swap", "message"),
    [
        (("cat", "cat"), "'cat' is named twice; expected two different words"),
        (("cat", "dog"), "'dog' is not a word of"),
        (("cat", "mouse"), "no sentence of a file has 'cat' and 'mouse' fewer than 8 words apart"),
    ],
)
def test_refused_swap(swap, message):
    with pytest.raises(ValueError, match=f"--swap: {message}"):
        of_user("a file", "A cat slept. The mouse ran.", swap)


def test_text_without_a_file():
    """Without a text, the sentence is always the same; --swap finds words of the docstring, too."""
    words, a, b = embedded().drawn
    assert (words, words[a], words[b]) == (WORDS, "Jack", "Molly")
    assert embedded().words[: len(WORDS)] == WORDS
    assert {"queries", "keys"} <= set(embedded(("queries", "keys")).drawn.words)
