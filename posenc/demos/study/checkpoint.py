"""What a training was when it stopped, and what it was of: one .npz file, there whole or not at all."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .schemes import Setting, Weights
from .text import Bytes, Corpus

FORMAT = 1
"""Changes with what is in a file, and with the model or its training: older files do not fit then."""
Description = dict[str, Any]


class State(NamedTuple):
    """A training between two steps. Moments are empty where it is over."""

    weights: Weights
    first: Weights
    second: Weights
    step: int
    """How many are done."""
    generator: dict[str, Any]
    """State of what draws the windows."""
    seconds: float
    """What these steps took."""


def hashed(data: Bytes) -> str:
    return sha256(data.tobytes()).hexdigest()


def description(setting: Setting, method: str, seed: int, corpus: Corpus) -> Description:
    """All that the weights depend on; what they are tested on is not among it."""
    trained = setting._asdict()
    for name in ("name", "targets", "tested"):
        del trained[name]
    words = hashed(corpus.train)
    return {"format": FORMAT, "method": method, "seed": seed, "text": words, "vocabulary": corpus.vocabulary, **trained}


def replace(file: Path, write: Callable[[BinaryIO], Any]) -> None:
    """All at once: whoever interrupts this finds the old file."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            write(stream)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def save(file: Path, state: State, described: Mapping[str, Any]) -> None:
    """Replaces what was saved before."""
    words = {"description": json.dumps(described), "generator": json.dumps(state.generator)}
    arrays: dict[str, Any] = {**words, "step": state.step, "seconds": state.seconds}
    for part in ("weights", "first", "second"):
        arrays |= {f"{part}/{name}": array for name, array in getattr(state, part).items()}
    replace(file, lambda stream: np.savez(stream, **arrays))


def load(file: Path, described: Mapping[str, Any]) -> State | None:
    """What was saved; None if nothing was. ValueError where it is of something else, and says what differs."""
    try:
        with file.open("rb") as stream, np.load(stream) as opened:
            arrays = {key: opened[key] for key in opened.files}
        found, generator = (json.loads(str(arrays.pop(key))) for key in ("description", "generator"))
        step, seconds = int(arrays.pop("step")), float(arrays.pop("seconds"))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file}: no checkpoint of the study, or a damaged one; remove it or give another --out"
        ) from error
    if found != dict(described):
        raise ValueError(f"{file}: {_difference(found, described)}; give another --out")
    kept: dict[str, Weights] = {"weights": {}, "first": {}, "second": {}}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        kept[part][name] = array
    return State(**kept, step=step, generator=generator, seconds=seconds)


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    name = next(name for name in {**wanted, **found} if found.get(name) != wanted.get(name))
    if name == "text":
        return "a checkpoint of another text"
    return f"a checkpoint of another configuration ({name} {found.get(name)} there, {wanted.get(name)} here)"
