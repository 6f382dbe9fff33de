"""The words that the tour reads: the user's text, or a sentence and the docstring of posenc.

Two words of a sentence change places. ``--swap A B`` names them. Otherwise they are its two longest words; among equals
the words farthest apart are taken. A Chinese or Japanese character is a word, unless ``--swap`` names several together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import posenc
from posenc.__main__ import MAX_WORDS, SENTENCE, SWAP

DRAWN_WORDS = 8
"""Most words of the sentence in the pictures of attention."""
HAN = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
END_OF_SENTENCE = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]+|\n\s*\n")
LETTER = rf"[^\W{HAN}]"
WORD = rf"[{HAN}]|{LETTER}+(?:['\u2019-]{LETTER}+)*"
LETTERS = 10
"""Letters of a word in a label."""


def labels(words: Sequence[str], letters: int = LETTERS) -> list[str]:
    return [word if len(word) <= letters else f"{word[: letters - 1]}\u2026" for word in words]


class Swap(NamedTuple):
    """Words of a sentence, and the indices of two of them that change places."""

    words: tuple[str, ...]
    a: int
    b: int


class Text(NamedTuple):
    """A text: its name, its number of words, and the first `MAX_WORDS` of them."""

    name: str
    total: int
    words: tuple[str, ...]
    drawn: Swap
    """The sentence of the table and of the pictures of attention."""


def words_of(text: str, units: Sequence[str] = ()) -> tuple[str, ...]:
    """Split a text into words; each of `units` is a word, and so is each other Chinese or Japanese character."""
    whole = (rf"(?<!{LETTER}){re.escape(unit)}(?!{LETTER})" for unit in units)
    return tuple(re.findall("|".join([*whole, WORD]), text))


def longest_words(words: Sequence[str]) -> tuple[int, int]:
    """Return the indices of the two words that the rule at the top of this file selects."""
    different = [(a, b) for a, b in combinations(range(len(words)), 2) if words[a] != words[b]]
    return max(different, key=lambda ab: (sum(len(words[i]) for i in ab), ab[1] - ab[0]))


def first_sentence(text: str, words: tuple[str, ...]) -> Swap:
    """Return the first sentence that has at least 3 words, 2 of them different, cut after `DRAWN_WORDS`."""
    for sentence in END_OF_SENTENCE.split(text):
        first = words_of(sentence)[:DRAWN_WORDS]
        if len(first) >= 3 and len(set(first)) >= 2:
            return Swap(first, *longest_words(first))
    last = next(i for i, word in enumerate(words) if word != words[0])  # there is none: words as lines, or repeated
    first = words[max(0, last + 1 - DRAWN_WORDS) : max(last + 1, DRAWN_WORDS)]
    return Swap(first, *longest_words(first))


def sentence_with(name: str, text: str, swap: tuple[str, str], units: Sequence[str]) -> Swap:
    """Return the first sentence that has both words, cut to `DRAWN_WORDS`. ValueError names a word that is missing."""
    if swap[0] == swap[1]:
        raise ValueError(f"--swap: {swap[0]!r} is named twice; expected two different words")
    for sentence in END_OF_SENTENCE.split(text):
        words = words_of(sentence, units)
        places = ([i for i, word in enumerate(words) if word == one] for one in swap)
        for a, b in product(*places):
            if abs(a - b) < DRAWN_WORDS:
                start = max(0, max(a, b) + 1 - DRAWN_WORDS)
                return Swap(words[start : start + DRAWN_WORDS], a - start, b - start)
    for word in swap:
        if word not in words_of(text, units):
            raise ValueError(f"--swap: {word!r} is not a word of {name}")
    near = f"{swap[0]!r} and {swap[1]!r} fewer than {DRAWN_WORDS} words apart"
    raise ValueError(f"--swap: no sentence of {name} has {near}")


def of_user(name: str, text: str, swap: tuple[str, str] | None = None) -> Text:
    """Make a Text. ValueError if it has fewer than 3 words, or no 2 different ones, or not the words of `swap`."""
    units = [unit for unit in swap or () if unit]
    words = words_of(text, units)
    used = words[:MAX_WORDS]
    if len(used) < 3 or len(set(used)) < 2:
        raise ValueError(
            f"{name}: {len(used)} words, {len(set(used))} different; expected at least 3 words, 2 different"
        )
    drawn = first_sentence(text, words) if swap is None else sentence_with(name, text, swap, units)
    return Text(name, len(words), used, drawn)


def embedded(swap: tuple[str, str] | None = None) -> Text:
    """Return `SENTENCE` and the docstring of posenc."""
    return of_user(f'"{SENTENCE}" and the docstring of posenc', f"{SENTENCE}.\n{posenc.__doc__}", swap or SWAP)
