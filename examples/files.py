"""Files that a user names, and files of results."""

from __future__ import annotations

import csv
import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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


def make_directory(directory: Path, option: Path) -> None:
    """Create a directory. ValueError names `option`, the value of ``--out``, if nothing can be written there."""
    with refusing(f"--out {option}"):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass


def write_report(file: Path, report: Mapping[str, object], *companions: str) -> None:
    """Write a report as JSON. If the file holds another report, rename that file and its companions first.

    study.json becomes study-1.json, or gets the first free number. Its companions are the files of the same name with
    other suffixes, such as ".csv" and ".png"; they get the same number. The renaming is printed.
    """
    text = json.dumps(report, indent=1) + "\n"
    if file.exists() and file.read_text(encoding="utf-8") != text:
        suffixes = (file.suffix, *companions)
        free = next(
            stem for number in itertools.count(1) for stem in [f"{file.stem}-{number}"]
            if not any(file.with_name(stem + suffix).exists() for suffix in suffixes)
        )  # fmt: skip
        for suffix in suffixes:
            earlier = file.with_suffix(suffix)
            if earlier.exists():
                earlier.rename(file.with_name(free + suffix))
        print(f"\n{file.name} of an earlier study differs; it is kept as {file.with_name(free + file.suffix)}")
    file.write_text(text, encoding="utf-8")


def write_csv(file: Path, rows: Sequence[Mapping[str, object]], digits: int) -> None:
    """Write rows that have the same keys. A float gets `digits` significant digits, and None becomes an empty cell."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        for row in rows:
            table.writerow({name: f"{x:.{digits}g}" if isinstance(x, float) else x for name, x in row.items()})
