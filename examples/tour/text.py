"""The words that the tour reads: the user's text, or the reference texts that ship inside Python.

Two words of a sentence change places. ``--swap A B`` names them. Otherwise they are its two longest words: a word that
begins with a capital counts double, the first word does not count in a script with capitals, and among equals the words
farthest apart are taken. In most sentences these are content words: names, German nouns, long words. A Chinese text has
no spaces, so a sequence of two to four ideographs that occurs at least twice in the text is taken for a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

MAX_WORDS = 1024
"""Words of the text that are used."""
DRAWN_WORDS = 8
"""Most words of the sentence in the pictures of attention."""
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
HAN = f"\u3005\u3007\u3040-\u30ff{IDEOGRAPHS}"
PARTICLES = "的了着过是在有和与也不就都而把被这那我你他她它们一个上下来去"
"""Chinese characters that are rarely part of a noun: they end a sequence, and are swapped last."""
END_OF_SENTENCE = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]+|\n\s*\n")
LETTER = rf"[^\W{HAN}]"
WORD = rf"[{HAN}]|{LETTER}+(?:['\u2019-]{LETTER}+)*"
SEARCHED, SEQUENCES = 20_000, 200
"""Characters of the text in which sequences of ideographs are counted, and the most sequences that are words."""
LETTERS = 10
"""Letters of a word in a label."""
SENTENCE, SWAP = "Jack gave a photo to Molly", ("Jack", "Molly")
"""The sentence of the tour without a text, and the two words that change places."""


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


def repeated_sequences(text: str) -> list[str]:
    """Return the sequences of 2 to 4 ideographs that occur at least twice, the most frequent and longest ones first."""
    runs = re.findall(rf"[{IDEOGRAPHS}]+", re.sub(f"[{PARTICLES}]", " ", text[:SEARCHED]))
    counts = Counter(
        run[i : i + length] for run in runs for length in (2, 3, 4) for i in range(len(run) + 1 - length)
    )  # fmt: skip
    words = [word for word, count in counts.items() if count > 1]
    return sorted(words, key=lambda word: (-counts[word], -len(word)))[:SEQUENCES]


def content_words(words: Sequence[str]) -> tuple[int, int]:
    """Return the indices of the two words that the rule at the top of this file selects."""

    def weight(word: str) -> int:
        return 0 if word in PARTICLES else len(word) * (2 if word[0].isupper() else 1)

    has_case = words[0].lower() != words[0].upper()  # the first word then has a capital, whatever it is
    different = [(a, b) for a, b in combinations(range(len(words)), 2) if words[a] != words[b]]
    return max(different, key=lambda ab: (ab[0] >= has_case, sum(weight(words[i]) for i in ab), ab[1] - ab[0]))


def first_sentence(text: str, words: tuple[str, ...], units: Sequence[str]) -> Swap:
    """Return the first sentence that has at least 3 words, 2 of them different, cut after `DRAWN_WORDS`."""
    for sentence in END_OF_SENTENCE.split(text):
        first = words_of(sentence, units)[:DRAWN_WORDS]
        if len(first) >= 3 and len(set(first)) >= 2:
            return Swap(first, *content_words(first))
    last = next(i for i, word in enumerate(words) if word != words[0])  # there is none: words as lines, or repeated
    first = words[max(0, last + 1 - DRAWN_WORDS) : max(last + 1, DRAWN_WORDS)]
    return Swap(first, *content_words(first))


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
    units = [unit for unit in (*(swap or ()), *repeated_sequences(text)) if unit]
    words = words_of(text, units)
    used = words[:MAX_WORDS]
    if not words:
        raise ValueError(f"{name}: no words in it")
    if len(used) < 3 or len(set(used)) < 2:
        raise ValueError(
            f"{name}: {len(used)} words, {len(set(used))} different; expected at least 3 words, 2 different"
        )
    drawn = first_sentence(text, words, units) if swap is None else sentence_with(name, text, swap, units)
    return Text(name, len(words), used, drawn)


def embedded(swap: tuple[str, str] | None = None) -> Text:
    """Return `SENTENCE`, and the reference texts that ship inside Python if this Python has them."""
    try:
        from pydoc_data import topics as reference
    except ImportError:
        topics = {}
    else:
        topics = reference.topics
    name = f'"{SENTENCE}"' + (" and Python's reference (pydoc_data.topics)" if topics else "")
    return of_user(name, "\n\n".join([SENTENCE, *(topics[key] for key in sorted(topics))]), swap or SWAP)
