"""``python -m posenc check MODULE:FUNCTION --as KIND``: a check from the command line."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .report import Report

RIGHT, WRONG, FAILED = 0, 1, 2
"""Exit statuses."""


def value(text: str) -> Any:
    """Return a Python literal, the object MODULE:NAME, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return named(text) if ":" in text else text


def named(text: str) -> Any:
    """Return the object that MODULE:NAME names; modules are found in the current directory, too."""
    module, _, name = text.partition(":")
    if sys.path[0] != "":
        sys.path.insert(0, "")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def run(kinds: Mapping[str, Callable[..., Report]], words: Sequence[str], parser: argparse.ArgumentParser) -> int:
    """Parse the words, run the check, print its report and return the exit status."""
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="the implementation; the current directory is searched")
    parser.add_argument("--as", dest="kind", choices=sorted(kinds), required=True, help="what it should be")
    parser.add_argument("--config", metavar="FILE", help="the config.json of the right frequencies")
    group = parser.add_argument_group("arguments of posenc.check.KIND, as Python literals or MODULE:NAME")
    for name in dict.fromkeys(name for kind in kinds.values() for name in list(inspect.signature(kind).parameters)[1:]):
        group.add_argument(f"--{name.replace('_', '-')}", dest=f"of_{name}", metavar=name.upper())
    options = vars(parser.parse_args(words))
    try:
        given = {name[3:]: value(text) for name, text in options.items() if name.startswith("of_") and text is not None}
        if options["config"] is not None:
            given["frequencies"] = options["config"]
        arguments = given.pop("arguments", ())
        report = kinds[options["kind"]](named(options["function"]), *arguments, **given)
    except Exception as error:
        print(f"{parser.prog}: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    print(report)
    return RIGHT if report else WRONG
