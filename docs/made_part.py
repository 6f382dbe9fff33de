"""The part of a page that a program makes: write it, or check that the page has it.

The part stands between two comments, and the first names the program:

    <!-- made by: python docs/symptom_table.py --write -->
    <!-- end of the made part -->
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

END = "<!-- end of the made part -->"


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such program has."""
    made = argparse.ArgumentParser(prog=program, description=description)
    action = made.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="put the made part into its page")
    action.add_argument("--check", action="store_true", help="status 1 unless the page has it")
    return made


def finish(
    page: Path, program: str, made: str, asked: argparse.Namespace, files: Mapping[Path, str] | None = None
) -> int:
    """Write or check the part, or do neither, as the options say; return the exit status.

    The program is named by its path in the repository, such as ``docs/symptom_table.py``. ``files`` has the text of
    files that the part shows, such as a picture.
    """
    if not (asked.write or asked.check):
        return 0
    command = f"python {program} --write"
    begin = f"<!-- made by: {command} -->"
    text = page.read_text(encoding="utf-8")
    before, begins, rest = text.partition(begin)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        print(f"{page.name}: no lines {begin} and {END}", file=sys.stderr)
        return 1
    whole = {page: f"{before}{begin}\n\n{made.strip()}\n\n{END}{after}", **(files or {})}
    return write_or_check(whole, program, asked)


def write_or_check(files: Mapping[Path, str], program: str, asked: argparse.Namespace) -> int:
    """Write the files, or check that they have this text, as the options say; return the exit status."""
    status = 0
    for path, wanted in files.items():
        if asked.write:
            path.write_text(wanted, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != wanted:
            print(f"{path.name}: the made part is old; run python {program} --write", file=sys.stderr)
            status = 1
    return status
