"""Checkpoints of a training, with a description of its model, text and options. Files are written atomically."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from arrays import Traced

from .schemes import Setting, Weights
from .text import Bytes, Corpus

FORMAT = 1
"""Version of the files. It increases when their content, the model or the training changes."""
Description = dict[str, object]
"""JSON: everything that the weights depend on."""


class State(NamedTuple):
    """State of a training between two steps. The moments are empty after the last step."""

    weights: Weights
    first: Weights
    """Adam's first moments."""
    second: Weights
    """Adam's second moments."""
    step: int
    """Number of steps done."""
    generator: dict[str, object]
    """State of the generator that draws the windows."""
    seconds: float
    """Time that these steps took."""


def hashed(data: Bytes) -> str:
    return sha256(data.tobytes()).hexdigest()


def description(setting: Setting, method: str, seed: int, corpus: Corpus) -> Description:
    """Describe everything that the weights depend on. The evaluation is not part of it."""
    trained = setting._asdict()
    for name in ("name", "targets", "tested"):
        del trained[name]
    text = hashed(corpus.train)
    return {"format": FORMAT, "method": method, "seed": seed, "text": text, "vocabulary": corpus.vocabulary, **trained}


def replace(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically: after an interruption the old file is still complete."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            write(stream)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def save(file: Path, state: State, described: Description) -> None:
    """Write a checkpoint, replacing the one before."""
    texts = {"description": json.dumps(described), "generator": json.dumps(state.generator)}
    arrays: dict[str, Traced] = {**texts, "step": state.step, "seconds": state.seconds}
    for part in ("weights", "first", "second"):
        arrays |= {f"{part}/{name}": array for name, array in getattr(state, part).items()}
    replace(file, lambda stream: np.savez(stream, **arrays))


def load(file: Path, described: Description) -> State | None:
    """Read a checkpoint; None if there is none.

    ValueError if the file is damaged, or if its description differs; the message says how.
    """
    try:
        with file.open("rb") as stream, np.load(stream) as opened:
            arrays = {key: opened[key] for key in opened.files}
        found, generator = (json.loads(str(arrays.pop(key))) for key in ("description", "generator"))
        step, seconds = int(arrays.pop("step")), float(arrays.pop("seconds"))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file}: not a checkpoint of the study, or damaged; remove it or choose another --out"
        ) from error
    for name in described | found:
        if found.get(name) != described.get(name):
            has, wanted = found.get(name), described.get(name)
            other = "text" if name == "text" else f"configuration ({name} is {has} there and {wanted} here)"
            raise ValueError(f"{file}: a checkpoint of another {other}; choose another --out")
    parts: dict[str, Weights] = {"weights": {}, "first": {}, "second": {}}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        parts[part][name] = array
    return State(**parts, step=step, generator=generator, seconds=seconds)
