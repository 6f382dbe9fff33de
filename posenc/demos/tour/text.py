"""What the tour reads: the user's words, or the reference texts that ship inside Python."""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 1024
"""Words of the text that are used."""
HAN = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:['\u2019-][^\W{HAN}]+)*")
PAIRS = (("Jack gave a photo to Molly", 0, 5), ("我爱中国", 0, 1))
"""Sentences, and which two of their words change places: Molly gave a photo to Jack, 爱我中国."""


class Text(NamedTuple):
    """What the words are, how many, and the first LONGEST of them; none where there is nothing but the pairs."""

    name: str
    total: int
    words: tuple[str, ...]


def words_of(text: str) -> tuple[str, ...]:
    """English by words, Chinese by characters."""
    return tuple(WORD.findall(text))


def of_user(name: str, text: str) -> Text:
    words = words_of(text)
    if not words:
        raise ValueError(f"{name}: no words in it")
    used = words[:LONGEST]
    if len(used) < 3 or len(set(used)) < 2:
        raise ValueError(f"{name}: {len(used)} words, {len(set(used))} different; at least 3 are needed, 2 different")
    return Text(name, len(words), used)


def embedded() -> Text:
    """The reference texts that ship inside Python, where they do."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return Text("two sentences only, this Python came without pydoc_data.topics", 0, ())
    words = words_of("\n".join(topics[key] for key in sorted(topics)))
    return Text("Python's reference (pydoc_data.topics)", len(words), words[:LONGEST])
