"""The words that the tour reads: the user's text, or the reference texts that ship inside Python."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_WORDS = 1024
"""Words of the text that are used."""
HAN = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:['\u2019-][^\W{HAN}]+)*")
SWAPS = (("Jack gave a photo to Molly", 0, 5), ("我爱中国", 0, 1))
"""Sentences, and two of their words that change places: "Molly gave a photo to Jack", "爱我中国"."""


class Text(NamedTuple):
    """A text: its name, its number of words, and the first `MAX_WORDS` of them."""

    name: str
    total: int
    words: tuple[str, ...]
    """Empty if there is no text; the tour then uses only the sentences of `SWAPS`."""


def words_of(text: str) -> tuple[str, ...]:
    """Split a text into words; each Chinese or Japanese character is a word."""
    return tuple(WORD.findall(text))


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
    return Text(name, len(words), used)


def embedded() -> Text:
    """Return the reference texts that ship inside Python, or a Text without words if this Python lacks them."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return Text("two sentences only; this Python comes without pydoc_data.topics", 0, ())
    words = words_of("\n".join(topics[key] for key in sorted(topics)))
    return Text("Python's reference (pydoc_data.topics)", len(words), words[:MAX_WORDS])
