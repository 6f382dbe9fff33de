"""``posenc tour``, or ``posenc`` alone: the tour on real text; also ``info``, ``study``, ``check`` and ``vectors``."""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import inspect
import os
import pkgutil
import platform
import re
import select
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import posenc

from .demos import tour
from .demos.files import make_directory, refusing

PROGRAM = "posenc" if Path(sys.argv[0]).stem == "posenc" else "python -m posenc"
INPUT_SECONDS = 1.0
"""Time to wait for standard input that was not asked for; a pipe without a writer must not block the tour."""


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line and exits with status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def tour_parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [tour] [--swap A B] [--out DIR] [--open] [FILE]"
        + "".join(f"\n       {PROGRAM} {name} [--help]" for name in ("info", "study", "check", "vectors")),
        description="The tour: the effect of each operator of posenc on real text, as a page with pictures and as "
        "slides for a lecture.",
    )
    parser.add_argument(
        "text",
        nargs="?",
        metavar="FILE",
        help="UTF-8 text, or - for standard input. By default the text on standard input if there is any, otherwise "
        "the reference texts that ship inside Python",
    )
    parser.add_argument(
        "--swap",
        nargs=2,
        metavar=("A", "B"),
        help="words of one sentence that change places (default: its two longest words, see docs/guides/commands.md)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("posenc-tour"), help="directory of index.html, slides.html and "
        "the pictures (default: posenc-tour)",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open index.html in the browser")
    parser.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    return parser


def info_parser() -> Parser:
    return Parser(
        prog=f"{PROGRAM} info",
        description="Describe the installation and the machine, for bug reports: versions, the kernels in use, the "
        "compiler and its flags, the processor and its caches, and the packages that each extra lacks.",
    )


def study_parser() -> Parser:
    parser = Parser(
        prog=f"{PROGRAM} study",
        description="Train short, test long: train a small decoder with each scheme on windows of one length, and "
        "compute its perplexity on longer ones.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="400 steps, two layers of width 64 (default)")
    size.add_argument("--full", action="store_true", help="1000 steps, two layers of width 128")
    parser.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text (default: Python's own reference)")
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME", help="schemes to train, or all; an unknown name lists them"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each scheme (default: 1)")
    parser.add_argument("--length", type=int, metavar="L", help="bytes of the windows in training (default: 64)")
    parser.add_argument("--lengths", nargs="+", type=int, metavar="N", help="bytes of the windows in the test")
    parser.add_argument(
        "--stride", type=int, metavar="N", help="bytes between sliding windows (default: the training length)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory of the results (default: posenc-study/quick or .../full)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--why", action="store_true", help="show instead how attention changes beyond the training length"
    )
    instead.add_argument(
        "--cost",
        type=int,
        nargs="*",
        metavar="L",
        help="measure instead the time and memory of ALiBi trained at L against sinusoidal positions trained at 2L, "
        "and their perplexity for these L (default: 64)",
    )
    return parser


def vectors_parser() -> Parser:
    parser = Parser(
        prog=f"{PROGRAM} vectors",
        description="Test vectors for an implementation in any language: arguments, exact results and error bounds of "
        "every function, as safetensors with a manifest in JSON and in plain text.",
    )
    parser.add_argument(
        "directory", nargs="?", type=Path, metavar="DIR", default="vectors", help="directory of the vectors "
        "(default: vectors)",
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="compare posenc with the vectors in DIR")
    return parser


def sysctl(name: str) -> str:
    """Read a variable of the kernel of macOS; empty if there is none."""
    done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def cpu() -> str:
    """Name the processor, as far as the operating system knows it."""
    model = ""
    if sys.platform == "linux":
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        model = found[1] if found else ""
    elif sys.platform == "darwin":
        model = sysctl("machdep.cpu.brand_string")
    return f"{model or platform.processor() or 'unknown model'}, {platform.machine()}, {os.cpu_count()} logical cores"


def caches() -> str:
    """List the data caches of the first core."""
    if sys.platform == "darwin":
        sizes = {name: sysctl(f"hw.{name}cachesize") for name in ("l1d", "l2", "l3")}
        return ", ".join(f"{name.upper()} {int(size) >> 10}K" for name, size in sizes.items() if size) or "unknown"
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    files = [[folder / name for name in ("level", "type", "size")] for folder in folders]
    read = [[file.read_text().strip() for file in three] for three in files if all(map(Path.exists, three))]
    return ", ".join(f"L{level} {size}" for level, kind, size in read if kind != "Instruction") or "unknown"


def blas() -> str:
    """Name the BLAS that NumPy was built with; NumPy before 1.25 does not tell it as data."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except (TypeError, KeyError):
        return "unknown"
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def version(package: str) -> str:
    """The version of an installed package, or an empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def extras() -> str:
    """List the extras of posenc, each with the packages that it lacks."""
    try:
        requirements = importlib.metadata.requires("posenc") or []
    except importlib.metadata.PackageNotFoundError:
        return "unknown, because posenc is not installed"
    lacks: dict[str, list[str]] = {}
    for requirement in requirements:
        found = re.match(r"""([\w.-]+).*;.*\bextra *== *["']([\w.-]+)["']""", requirement)
        if found:
            lacks.setdefault(found[2], []).extend([] if version(found[1]) else [found[1]])
    return ", ".join(f"{extra} (lacks {' '.join(names)})" if names else extra for extra, names in lacks.items())


def info() -> str:
    """Describe the installation and the machine, for bug reports."""
    optional = ("ml_dtypes", "rich", "matplotlib", "scipy", "autograd")
    lines = {
        "posenc": f"{posenc.__version__}, {Path(posenc.__file__).parent}",
        "isa": f"{posenc.isa()}, usable here: {', '.join(posenc.isas())}",
        "threads": str(posenc.get_num_threads()),
        "build": posenc.build_flags(),
        "cpu": cpu(),
        "caches": caches(),
        "python": f"{platform.python_version()} {platform.python_implementation()}, {platform.platform()}",
        "numpy": f"{np.__version__}, BLAS {blas()}",
        "optional": ", ".join(f"{package} {version(package) or 'not installed'}" for package in optional),
        "extras": extras(),
    }
    return "\n".join(f"{name:10}{value}" for name, value in lines.items())


def piped_input() -> bytes:
    """Read standard input unless it is a terminal; nothing if it stays silent."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    if os.name == "posix" and not select.select([sys.stdin], [], [], INPUT_SECONDS)[0]:
        print(f"{PROGRAM}: no text on standard input, continuing without (- waits for it)", file=sys.stderr)
        return b""
    return sys.stdin.buffer.read()


def read_text(file: str | None) -> tuple[str, str] | None:
    """Read the user's text as (name, text); None selects the embedded text. ValueError says what is wrong."""
    name = "standard input" if file is None or file == "-" else file
    with refusing(name):
        if file is None:
            content = piped_input()
        elif file == "-":
            content = sys.stdin.buffer.read()
        else:
            content = Path(file).read_bytes()
        return (name, content.decode("utf-8-sig")) if content or file is not None else None


def study(arguments: Sequence[str]) -> int:
    """Run ``python -m posenc study``."""
    parser = study_parser()
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: expected at least 1")
    try:
        from .demos.study import attention_report, command, cost
        from .demos.study.allocation import keep_freed_memory
        from .demos.study.training import DivergedError
    except ImportError as error:
        parser.error(f"{error}; to run the study: pip install autograd matplotlib rich")
    setting = command.FULL if options.full else command.QUICK
    name = setting.name if options.length in (None, setting.length) else f"{setting.name}-{options.length}"
    out = options.out or Path("posenc-study", name)
    if options.cost is not None and options.length is not None:
        parser.error("--length: not allowed with --cost, which takes its own lengths")
    request = command.Request(
        setting, out, options.text, options.methods, options.seeds, options.lengths, options.stride, options.length
    )
    keep_freed_memory()
    try:
        if options.cost is not None:
            cost.study(request, options.cost or [64])
        elif options.why:
            attention_report.study(request)
        else:
            command.study(request)
    except ValueError as error:
        parser.error(str(error))
    except DivergedError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: interrupted; the same command resumes from {out}\n")
    return 0


def vectors(arguments: Sequence[str]) -> int:
    """Run ``python -m posenc vectors``."""
    parser = vectors_parser()
    options = parser.parse_args(arguments)
    from .demos import vectors

    try:
        if options.check:
            return vectors.report(vectors.check(options.directory))
        print(f"{vectors.write(options.directory)} cases in {options.directory}")
    except ImportError as error:
        parser.error(f"{error}; to write vectors: pip install mpmath")
    except ValueError as error:
        parser.error(str(error))
    return 0


def check_parser() -> Parser:
    """A parser with an option for each argument of a check."""
    parser = Parser(
        prog=f"{PROGRAM} check",
        description="Check an implementation against the equations, and name the cause of a difference. The status is "
        "0 if it is right, 1 if it is wrong, and 2 if the check could not run.",
    )
    kinds = [name for name in posenc.check.__all__ if f"assert_{name}" in posenc.check.__all__]
    parser.add_argument(
        "function", metavar="MODULE:FUNCTION", help="the implementation; the current directory is searched"
    )
    parser.add_argument("--as", dest="kind", choices=kinds, required=True, help="the kind of check")
    parser.add_argument("--config", metavar="FILE", help="the config.json of the right frequencies")
    group = parser.add_argument_group("arguments of posenc.check.KIND, as Python literals or MODULE:NAME")
    names = [name for kind in kinds for name in list(inspect.signature(getattr(posenc.check, kind)).parameters)[1:]]
    for name in sorted(set(names)):
        group.add_argument(f"--{name.replace('_', '-')}", dest=f"of_{name}", metavar=name.upper())
    return parser


def object_of(text: str) -> object:
    """Return the object MODULE:NAME; modules are found in the current directory, too."""
    sys.path[:0] = [] if "" in sys.path else [""]
    return pkgutil.resolve_name(text)


def literal(text: str) -> Any:
    """Return a Python literal, the object MODULE:NAME, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return object_of(text) if ":" in text else text


def check(words: Sequence[str]) -> int:
    """Run ``python -m posenc check``."""
    parser = check_parser()
    options = vars(parser.parse_args(words))
    try:
        given = {
            name[3:]: literal(text) for name, text in options.items() if name.startswith("of_") and text is not None
        }
        if options["config"] is not None:
            given["frequencies"] = options["config"]
        arguments = given.pop("arguments", ())
        report = getattr(posenc.check, options["kind"])(object_of(options["function"]), *arguments, **given)
    except Exception as error:
        parser.error(f"{type(error).__name__}: {error}")
    print(report)
    return 0 if report else 1


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["vectors"]:
        return vectors(words[1:])
    if words[:1] == ["check"]:
        return check(words[1:])
    if words[:1] == ["study"]:
        return study(words[1:])
    if words[:1] == ["info"]:
        info_parser().parse_args(words[1:])
        print(info())
        return 0
    parser = tour_parser()
    options = parser.parse_args(words[1:] if words[:1] == ["tour"] else words)
    try:
        named_text = read_text(options.text)
        text = tour.embedded(options.swap) if named_text is None else tour.of_user(*named_text, options.swap)
        make_directory(options.out, options.out)
    except ValueError as error:
        parser.error(str(error))
    index = tour.run(text, options.out)
    if options.open:
        webbrowser.open(index.resolve().as_uri())
    return 0


def command() -> NoReturn:
    """Run the command `posenc`."""
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may lack the characters
        sys.exit(main())
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has closed it; without this Python reports an error when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    command()
