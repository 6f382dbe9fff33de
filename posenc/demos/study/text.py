"""Text to learn from and text to be tested on, without a paragraph in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

TEST = (
    "import", "execmodel", "exceptions", "comparisons", "customization", "typesmapping", "typesseq", "calls", "lambda",
    "yield", "strings", "async",
)  # fmt: skip
"""Topics of Python's reference that nothing is learned from. Sizes and rates come from trials elsewhere that looked at
them (docs/study.md); no choice was made by them here."""
VALIDATION = ("augassign", "dict", "formatstrings", "objects", "slicings", "try")
"""Six more, drawn once, for every choice that looks at a loss."""


class Corpus(NamedTuple):
    """Bytes to train on, to choose by and to report on; all below `vocabulary`."""

    name: str
    train: Bytes
    validation: Bytes
    test: Bytes
    vocabulary: int


def paragraphs(text: str) -> list[tuple[str, str]]:
    """Each with its words: what tells it from others, however it is indented or where it ends."""
    parts = (part.strip("\n") for part in text.split("\n\n"))
    return [(part, " ".join(part.split())) for part in parts if part.strip()]


def unseen(texts: list[str], seen: set[str]) -> str:
    """The paragraphs of these texts whose words are not in `seen`, which they join: a fifth of the topics' repeat."""
    kept = []
    for paragraph, words in (pair for text in texts for pair in paragraphs(text)):
        if words not in seen:
            seen.add(words)
            kept.append(paragraph)
    return "\n\n".join(kept)


def embedded() -> Corpus:
    """The reference of the language, as it ships inside Python. ValueError where it does not."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ValueError(
            "this Python comes without pydoc_data.topics, the default text; give one with --text"
        ) from None
    missing = [name for name in (*TEST, *VALIDATION) if name not in topics]
    if missing:
        raise ValueError(f"pydoc_data.topics of this Python has no topic {missing[0]!r}; give a text with --text")
    rest = [name for name in sorted(topics) if name not in (*TEST, *VALIDATION)]
    seen: set[str] = set()
    test, validation, train = (unseen([topics[name] for name in names], seen) for names in (TEST, VALIDATION, rest))
    return Corpus("pydoc_data.topics", _ascii(train), _ascii(validation), _ascii(test), 128)


def _ascii(text: str) -> Bytes:
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8)


def of_file(path: Path) -> Corpus:
    """A user's text: the first 80 % to train on, then 10 % and 10 %. ValueError if it cannot be read."""
    try:
        content = path.read_bytes()
        content.decode("utf-8")
    except OSError as error:
        raise ValueError(f"--text {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise ValueError(f"--text {path}: not UTF-8 text (byte {error.start} is 0x{byte:02x})") from error
    data = np.frombuffer(content, np.uint8)
    first, second = len(data) * 8 // 10, len(data) * 9 // 10
    vocabulary = 256 if data.size and data.max() > 127 else 128
    return Corpus(str(path), data[:first], data[first:second], data[second:], vocabulary)


def targets(data: Bytes, most: int, lengths: tuple[int, ...]) -> int:
    """How many bytes are predicted, at every length the same: a multiple of all lengths; 0 if there are too few."""
    step = int(np.lcm.reduce(lengths))
    return min(most, len(data) - 1) // step * step


def windows(data: Bytes, count: int, length: int) -> tuple[Any, Any]:
    """The first `count` bytes in windows of one length, and what follows each: (count / length, length) twice."""
    ids = data[: count + 1].astype(np.int64)
    return ids[:-1].reshape(-1, length), ids[1:].reshape(-1, length)
