"""``python examples/study``: train short, test long; see the package `study`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from posenc.__main__ import Parser

if not __package__:  # the folder is run as a script; its parent has the package `study`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

PROGRAM = "python examples/study"


def study_parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser()
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: expected at least 1")
    try:
        from study import attention_report, command, cost
        from study.allocation import keep_freed_memory
        from study.training import DivergedError
    except ImportError as error:
        parser.error(f'{error}; to run the study: pip install "./bridges[autograd]" matplotlib rich')
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


if __name__ == "__main__":
    sys.exit(main())
