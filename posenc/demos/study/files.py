"""Files of results. Those of an earlier study are kept under another name if they differ."""

from __future__ import annotations

import itertools
from pathlib import Path


def write_report(file: Path, text: str, *companions: str) -> None:
    """Write a report. A different one of an earlier study is first renamed, with the files that belong to it.

    The new name of study.json is study-1.json, or the first number that is free, and that of its companions, such as
    ".csv" and ".png", is alike. The renaming is printed.
    """
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
