"""The command ``python -m posenc check``: a check of a function that is named on the command line."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

import posenc


def literal(text: str) -> Any:
    """Return a Python literal, the object MODULE:NAME, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return pkgutil.resolve_name(text) if ":" in text else text


def run_command(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Let a parser without arguments read these words, print the report, and return the status."""
    about = "Check an implementation against the equations, and name the cause of a difference."
    parser.description = f"{about} The status is 0 if it is right, 1 if it is wrong, and 2 if the check could not run."
    kinds = [name for name in posenc.check.__all__ if name.islower()]
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="modules of the current directory are found, too")
    parser.add_argument("--as", dest="kind", choices=kinds, required=True, help="the kind of check")
    parser.add_argument("--config", metavar="FILE", help="the config.json of the right frequencies")
    group = parser.add_argument_group("arguments of posenc.check.KIND, as Python literals or MODULE:NAME")
    names = [name for kind in kinds for name in list(inspect.signature(getattr(posenc.check, kind)).parameters)[1:]]
    for name in sorted(set(names)):
        group.add_argument(f"--{name.replace('_', '-')}", dest=f"of_{name}", metavar=name.upper())
    options = {name: text for name, text in vars(parser.parse_args(words)).items() if text is not None}
    sys.path[:0] = [] if "" in sys.path else [""]
    try:
        given = {name[3:]: literal(text) for name, text in options.items() if name.startswith("of_")}
        given |= {"frequencies": options["config"]} if "config" in options else {}
        arguments, function = given.pop("arguments", ()), pkgutil.resolve_name(options["function"])
        report = getattr(posenc.check, options["kind"])(function, *arguments, **given)
    except (Exception, SystemExit) as error:
        text = re.sub(r"^check\.\w+: (\w+) (?=is|has)", lambda found: f"--{found[1].replace('_', '-')} ", str(error))
        parser.error(f"{type(error).__name__}: {text}")
    print(report)
    return 0 if report else 1
