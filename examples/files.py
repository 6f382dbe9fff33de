"""Files and directories that a user names."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn an error of the operating system, or of a text that is not UTF-8, into a ValueError about `name`."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"{name}: not UTF-8 text (byte {error.start} is 0x{byte:02x})") from error


def make_directory(directory: Path) -> None:
    """Create the directory of ``--out``. ValueError if nothing can be written there."""
    with refusing(f"--out {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
