"""The words that the tour reads: the user's text, or the reference texts that ship inside Python."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_WORDS = 1024
"""Words of the text that are used."""
DRAWN_WORDS = 8
"""Most words of the sentence in the pictures of attention."""
HAN = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
END_OF_SENTENCE = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\n]+")
WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:['\u2019-][^\W{HAN}]+)*")
SWAPS = (("Jack gave a photo to Molly", 0, 5), ("我爱中国", 0, 1))
"""Sentences, and two of their words that change places: "Molly gave a photo to Jack", "爱我中国"."""


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
    """Empty if there is no text; the tour then uses only the sentences of `SWAPS`."""
    drawn: Swap
    """The sentence of the pictures of attention."""


def words_of(text: str) -> tuple[str, ...]:
    """Split a text into words; each Chinese or Japanese character is a word."""
    return tuple(WORD.findall(text))


def first_and_last(words: tuple[str, ...]) -> Swap:
    """Swap the first word and the last one that differs from it."""
    return Swap(words, 0, max(i for i, word in enumerate(words) if word != words[0]))


def sentence_of(text: str, words: tuple[str, ...]) -> Swap:
    """Return the first sentence that has at least 3 words, 2 of them different, cut after `DRAWN_WORDS`."""
    for sentence in END_OF_SENTENCE.split(text):
        first = words_of(sentence)[:DRAWN_WORDS]
        if len(first) >= 3 and len(set(first)) >= 2:
            return first_and_last(first)
    last = next(i for i, word in enumerate(words) if word != words[0])  # there is none: words as lines, or repeated
    return first_and_last(words[max(0, last + 1 - DRAWN_WORDS) : max(last + 1, DRAWN_WORDS)])


def of_user(name: str, text: str) -> Text:
    """Make a Text. ValueError if it has fewer than 3 words, or no 2 different ones."""
    words = words_of(text)
    if not words:
        raise ValueError(f"{name}: no words in it")
    used = words[:MAX_WORDS]
    if len(used) < 3 or len(set(used)) < 2:
        raise ValueError(
            f"{name}: {len(used)} words, {len(set(used))} different; expected at least 3 words, 2 different"
        )
    return Text(name, len(words), used, sentence_of(text, used))


def embedded() -> Text:
    """Return the reference texts that ship inside Python, or a Text without words if this Python lacks them."""
    sentence, a, b = SWAPS[0]
    drawn = Swap(words_of(sentence), a, b)
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return Text("two sentences only; this Python comes without pydoc_data.topics", 0, (), drawn)
    words = words_of("\n".join(topics[key] for key in sorted(topics)))
    return Text("Python's reference (pydoc_data.topics)", len(words), words[:MAX_WORDS], drawn)
