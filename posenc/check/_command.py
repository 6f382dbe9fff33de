"""The command ``python -m posenc check KIND``: judge a function, or write inputs for an engine and judge its files."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import posenc

from ._describe import Description
from ._files import ARGUMENTS, Engine, write
from ._report import Report

HIDDEN = ("got", "x", "inputs")
"""Parameters of `check.rope` that are no options: files take their place, and ``--qk``."""


def literal(text: str) -> Any:
    """Return a Python literal, the object MODULE:NAME, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return pkgutil.resolve_name(text) if ":" in text else text


def described(kind: str) -> dict[str, str]:
    """Return the first sentence of each parameter of a check, of its docstring."""
    lines = (inspect.getdoc(getattr(posenc.check, kind)) or "").partition("\nReturns\n")[0]
    found: dict[str, str] = {}
    for names, text in re.findall(r"^(\w[\w, ]*)(?: : .*)?\n((?:    .*\n)+)", lines, re.MULTILINE):
        sentence = re.split(r"(?<=[^.]\.)\s", " ".join(text.split()))[0]
        found |= dict.fromkeys(names.split(", "), sentence.replace("%", "%%"))
    return found


def add_options(parser: ArgumentParser, kind: str) -> None:
    """Add the options of a kind: where the implementation is, and the parameters of the check."""
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("function", nargs="?", metavar="MODULE:FUNCTION", help="the implementation")
    if kind in ARGUMENTS:
        one.add_argument("--inputs", type=Path, metavar="DIR", help="write the inputs of the check for an engine")
        one.add_argument("--got", type=Path, metavar="DIR", help="judge what an engine wrote beside the inputs")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    group = parser.add_argument_group(f"arguments of posenc.check.{kind}, as Python literals or MODULE:NAME")
    parameters, texts = list(inspect.signature(getattr(posenc.check, kind)).parameters)[1:], described(kind)
    if "frequencies" in parameters:
        group.add_argument("--config", metavar="FILE", help="the config.json of the right frequencies")
    if kind == "rope":
        group.add_argument("--qk", dest="of_qk", action="store_const", const="True", help="rotate q and k together")
    for name in parameters:
        if name not in HIDDEN:
            option = f"--{name.replace('_', '-')}"
            group.add_argument(option, dest=f"of_{name}", metavar=name.upper(), help=texts.get(name))


def summary(report: Report) -> dict[str, Any]:
    """Return a report as data for JSON. Numbers that JSON does not have are texts."""
    causes, first = report.causes, next(iter(report.causes), None)
    part = (first and first.part) or next((one.part for one in report.readings), None)
    index = None if report.wrong is None else tuple(int(i) for i in np.argwhere(report.wrong)[0])
    numbers = (float(x[index]) for x in (report.got, report.wanted) if x is not None and index is not None)
    got, expected = (*numbers, None, None)[:2]
    found = {
        "check": report.subject, "verdict": "right" if report else "wrong", "part": part,
        "cause": first and first.name, "sentence": first and first.sentence, "change": (first and first.change) or None,
        "other_causes": [one._asdict() for one in causes[1:]],
        "readings": [{"part": one.part, "sentence": one.sentence} for one in report.readings],
        "axes": report.axes, "first_wrong_index": index, "got": got, "expected": expected, "error": report.error,
        "bound": report.bound, "dtype": report.precision, "where": report.where, "not_tried": report.untried,
    }  # fmt: skip
    return {name: str(x) if isinstance(x, float) and not np.isfinite(x) else x for name, x in found.items()}


def run(kind: str, given: Namespace, command: str) -> int:
    """Run a command, and return its status."""
    texts = {name[3:]: text for name, text in vars(given).items() if name.startswith("of_") and text is not None}
    engine = Engine(kind, given.got) if getattr(given, "got", None) else None
    if engine:  # its folder has the options
        for name, text in texts.items():
            if repr(literal(text)) != repr(literal(engine.options.get(name, "None"))):  # may be arrays
                has = engine.options.get(name, "the default")
                raise ValueError(f"--{name.replace('_', '-')} is {text}; the inputs in {given.got} are for {has}")
        texts = {name: text for name, text in engine.options.items() if name != "config"}
        given.config = str(given.got / "config.json") if "config" in engine.options else None
    options = {name: literal(text) for name, text in texts.items()}
    if getattr(given, "config", None):
        texts["config"] = options["frequencies"] = given.config
    if options.pop("qk", False):
        options["inputs"] = ("q", "k")
    folder = getattr(given, "inputs", None)
    if folder:
        words = [f"--{name.replace('_', '-')} {shlex.quote(text)}" for name, text in texts.items()]
        text = write(kind, options, texts, " ".join([command, *words]).replace("--qk True", "--qk"), folder)
        print(json.dumps({"written": text}) if given.json else text)
        return 0
    arguments: Sequence[Any] = options.pop("arguments", ())
    report = getattr(posenc.check, kind)(engine or pkgutil.resolve_name(given.function), *arguments, **options)
    if isinstance(report, Description):
        arrays = {name: x.tolist() for name, x in report.arrays.items()}
        print(json.dumps({**report._asdict(), "arrays": arrays}, indent=1) if given.json else report)
        return 0 if report.call else 1
    missing = [f"{', '.join(engine.missing)}: missing."] if engine and engine.missing else []
    if engine and engine.needed:
        raise FileNotFoundError(f"{', '.join(engine.needed)}: missing; expected a result for each judged number")
    report = replace(report, untried=(*report.untried, *missing))
    print(json.dumps(summary(report), indent=1) if given.json else report)
    return 0 if report else 1


def run_command(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Let a parser without arguments read these words, print the report, and return the status."""
    about = "Check an implementation against the equations, and name the cause of a difference."
    parser.description = f"{about} The status is 0 if it is right, 1 if it is wrong, and 2 if the check could not run."
    parsers = parser.add_subparsers(dest="kind", metavar="KIND", required=True, help="posenc check KIND --help")
    for kind in (name for name in posenc.check.__all__ if name.islower()):
        first = (inspect.getdoc(getattr(posenc.check, kind)) or "").partition("\n")[0]
        add_options(parsers.add_parser(kind, help=first, description=f"{first} {parser.description}"), kind)
    given = parser.parse_args(words)
    sys.path[:0] = [] if "" in sys.path else [""]
    try:
        return run(given.kind, given, f"{parser.prog} {given.kind}")
    except (Exception, SystemExit) as error:
        text = re.sub(r"^check\.\w+: (\w+) (?=is|has)", lambda found: f"--{found[1].replace('_', '-')} ", str(error))
        if given.json:
            print(json.dumps({"verdict": "could not run", "error": f"{type(error).__name__}: {text}"}))
            return 2
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return parser.error(f"{type(error).__name__}: {text}{notes}")
