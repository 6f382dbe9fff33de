"""``python -m posenc``: the tour on real text, and ``python -m posenc info``."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import select
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

import posenc

from . import _core
from .demos import tour

PROGRAM = "python -m posenc"
PATIENCE = 1.0
"""Seconds that an unasked-for standard input has to say something: a pipe that nobody writes to must not hang us."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and leaves with status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    made = Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [--out DIR] [FILE]\n       {PROGRAM} info\n       {PROGRAM} study [--help]",
        description="The tour: what each operator of posenc does to real text, as a table and as pictures.",
    )
    made.add_argument(
        "text",
        nargs="?",
        metavar="FILE",
        help="UTF-8 text to use, - for standard input; without it, what is piped in, else the reference texts that "
        "ship inside Python. 'info' prints version, instruction sets, threads and build flags instead",
    )
    made.add_argument("--out", type=Path, metavar="DIR", help="where the pictures go (default: posenc-tour)")
    return made


def info() -> str:
    """What a bug report should say."""

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    lines = {
        "posenc": f"{posenc.__version__}, {Path(posenc.__file__).parent}",
        "isa": f"{posenc.isa()}, usable here: {', '.join(posenc.isas())}",
        "threads": str(posenc.get_num_threads()),
        "build": str(_core.build()),
        "python": f"{platform.python_version()} {platform.python_implementation()}, {platform.platform()}",
        "numpy": np.__version__,
        "optional": ", ".join(
            f"{package} {version(package)}" for package in ("ml_dtypes", "rich", "matplotlib", "scipy")
        ),
    }
    return "\n".join(f"{name:10}{value}" for name, value in lines.items())


def piped() -> bytes:
    """What standard input holds where it is no terminal; nothing where nothing comes."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    if os.name == "posix" and not select.select([sys.stdin], [], [], PATIENCE)[0]:
        print(f"{PROGRAM}: nothing comes from standard input, going on without (- waits for it)", file=sys.stderr)
        return b""
    return sys.stdin.buffer.read()


def read(given: str | None) -> tuple[str, str] | None:
    """(name, text) of what the user wants to see; None for the embedded text. ValueError says what is wrong."""
    try:
        if given is None:
            name, content = "standard input", piped()
            if not content:
                return None
        elif given == "-":
            name, content = "standard input", sys.stdin.buffer.read()
        else:
            name, content = given, Path(given).read_bytes()
    except OSError as error:
        raise ValueError(f"{given}: {error.strerror or error}") from error
    try:
        return name, content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 text (byte {error.start} is 0x{content[error.start]:02x})") from error


def prepare(directory: Path) -> None:
    """Make the directory of the pictures, or ValueError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ValueError(f"--out {directory}: {error.strerror or error}") from error


def study(arguments: Sequence[str]) -> int:
    """``python -m posenc study``."""
    known = Parser(
        prog=f"{PROGRAM} study",
        description="Train short, test long: a small decoder trained at one length with each scheme, and its "
        "perplexity at longer ones.",
    )
    size = known.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="400 steps, two layers of width 64 (default)")
    size.add_argument("--full", action="store_true", help="1000 steps, two layers of width 128")
    known.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text; without it, Python's own reference")
    known.add_argument(
        "--methods", nargs="+", metavar="NAME", help="which schemes; a wrong one lists them; all is each"
    )
    known.add_argument("--seeds", type=int, default=1, metavar="N", help="how often each is trained (1)")
    known.add_argument("--lengths", nargs="+", type=int, metavar="N", help="bytes in the windows of the tests")
    known.add_argument("--stride", type=int, metavar="N", help="of sliding windows (the length of training)")
    known.add_argument("--out", type=Path, metavar="DIR", help="posenc-study/quick or posenc-study/full")
    instead = known.add_mutually_exclusive_group()
    instead.add_argument("--why", action="store_true", help="instead: what attention does beyond the trained length")
    instead.add_argument(
        "--cost",
        type=int,
        nargs="*",
        metavar="L",
        help="instead: time and memory of ALiBi trained at L against sinusoidal positions trained at 2L, and the "
        "perplexities for these L (64)",
    )
    asked = known.parse_args(arguments)
    if asked.seeds < 1:
        known.error(f"--seeds {asked.seeds}: at least 1")
    try:
        from .demos.study import command
        from .demos.study.training import DivergedError
    except ImportError as error:
        known.error(f'{error}; the study needs autograd, matplotlib and rich: pip install "posenc[study]"')
    setting = command.FULL if asked.full else command.QUICK
    out = asked.out or Path("posenc-study", setting.name)
    try:
        wanted = command.Asked(setting, out, asked.text, asked.methods, asked.seeds, asked.lengths, asked.stride)
        if asked.cost is not None:
            from .demos.study import cost

            cost.study(wanted, asked.cost or [64])
        elif asked.why:
            from .demos.study import why

            why.study(wanted)
        else:
            command.study(wanted)
    except ValueError as error:
        known.error(str(error))
    except DivergedError as error:
        known.exit(1, f"{known.prog}: {error}\n")
    except KeyboardInterrupt:
        known.exit(130, f"{known.prog}: interrupted; the same command goes on from {out}\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["study"]:
        return study(words[1:])
    known = parser()
    asked = known.parse_args(words)
    if asked.text == "info":
        if asked.out is not None:
            known.error("info takes no --out")
        print(info())
        return 0
    try:
        text = tour.of_user(*given) if (given := read(asked.text)) else tour.embedded()
        directory = asked.out or Path("posenc-tour")
        if tour.can_draw():
            prepare(directory)
    except ValueError as error:
        known.error(str(error))
    tour.run(text, directory)
    return 0


if __name__ == "__main__":
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may lack the characters
        sys.exit(main())
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough; Python must not complain when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
