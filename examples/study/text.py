"""The text that models are trained and tested on. No paragraph occurs in two of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from files import refusing

Bytes = npt.NDArray[np.uint8]
Tokens = npt.NDArray[np.int64]

TEST = (
    "import", "execmodel", "exceptions", "comparisons", "customization", "typesmapping", "typesseq", "calls", "lambda",
    "yield", "strings", "async",
)  # fmt: skip
"""Topics of Python's reference that are the test text. The model sizes and learning rates come from earlier trials that
looked at these topics (docs/explanations/study.md); this program chooses nothing by them."""
UNUSED = ("augassign", "dict", "formatstrings", "objects", "slicings", "try")
"""Six other topics, drawn once, for choices that look at a loss. This program makes none."""


class Corpus(NamedTuple):
    """Bytes for training and test; all are below `vocabulary`."""

    name: str
    train: Bytes
    test: Bytes
    vocabulary: int


def paragraphs(text: str) -> list[tuple[str, str]]:
    """Split a text into paragraphs.

    Each comes with its words joined by single spaces, which identify it whatever its indentation.
    """
    parts = (part.strip("\n") for part in text.split("\n\n"))
    return [(part, " ".join(part.split())) for part in parts if part.strip()]


def unseen_paragraphs(texts: list[str], seen: set[str]) -> str:
    """Join the paragraphs whose words are not in `seen`, and add those words to `seen`.

    A fifth of the paragraphs of Python's topics are repeated.
    """
    kept = []
    for text in texts:
        for paragraph, words in paragraphs(text):
            if words not in seen:
                seen.add(words)
                kept.append(paragraph)
    return "\n\n".join(kept)


def embedded() -> Corpus:
    """Return Python's language reference, which ships inside Python. ValueError if this Python lacks it."""
    seen: set[str] = set()
    try:
        from pydoc_data.topics import topics

        train_topics = [name for name in sorted(topics) if name not in (*TEST, *UNUSED)]
        test, _, train = (
            unseen_paragraphs([topics[name] for name in names], seen) for names in (TEST, UNUSED, train_topics)
        )
    except (ImportError, KeyError) as error:
        raise ValueError(
            f"this Python comes without pydoc_data.topics, or a topic of it: {error}; pass a text with --text"
        ) from None
    return Corpus("pydoc_data.topics", _ascii(train), _ascii(test), 128)


def _ascii(text: str) -> Bytes:
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8)


def from_file(path: Path) -> Corpus:
    """Read a UTF-8 file: the first 80 % of its bytes for training, and the last 10 % for the test.

    ValueError if the file cannot be read.
    """
    with refusing(f"--text {path}"):
        content = path.read_bytes()
        content.decode("utf-8")
    data = np.frombuffer(content, np.uint8)
    vocabulary = 256 if data.size and data.max() > 127 else 128
    return Corpus(str(path), data[: len(data) * 8 // 10], data[len(data) * 9 // 10 :], vocabulary)


def target_count(data: Bytes, most: int, lengths: tuple[int, ...]) -> int:
    """Number of bytes to predict, at most `most`: a multiple of every length. 0 if the text is too short."""
    step = int(np.lcm.reduce(lengths))
    return max(0, min(most, len(data) - 1)) // step * step


def windows(data: Bytes, count: int, length: int) -> tuple[Tokens, Tokens]:
    """Cut the first `count` bytes into windows: inputs and targets, each (count / length, length)."""
    ids = data[: count + 1].astype(np.int64)
    return ids[:-1].reshape(-1, length), ids[1:].reshape(-1, length)
