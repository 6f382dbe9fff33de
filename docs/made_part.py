"""The part of a page that a program makes: write it, or check that the page has it.

The part stands between two comments, and the first names the program:

    <!-- made by: python docs/operator_table.py --write -->
    <!-- end of the made part -->
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

END = "<!-- end of the made part -->"


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such program has."""
    made = argparse.ArgumentParser(prog=program, description=description)
    action = made.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="put the made part into its page")
    action.add_argument("--check", action="store_true", help="status 1 unless the page has it")
    return made


def finish(page: Path, program: str, made: str, asked: argparse.Namespace) -> int:
    """Write or check the part, or do neither, as the options say; return the exit status.

    The program is named by its path in the repository, such as ``docs/operator_table.py``.
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
    wanted = f"{before}{begin}\n\n{made.strip()}\n\n{END}{after}"
    if asked.write:
        page.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(f"{page.name}: the made part is old; run {command}", file=sys.stderr)
        return 1
    return 0
