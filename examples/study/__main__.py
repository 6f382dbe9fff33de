"""``python examples/study``: train short, test long; see the package `study`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from posenc.__main__ import Parser

if not __package__:  # the folder is run as a script; its parent has the package `study`
    sys.path[0] = str(Path(__file__).resolve().parents[1])


def study_parser() -> Parser:
    parser = Parser(
        prog="python examples/study",
        description="Train short, test long: train a small decoder with each scheme on windows of one length, and "
        "compute its perplexity on longer ones.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="400 steps, two layers of width 64 (default)")
    size.add_argument("--full", action="store_true", help="1000 steps, two layers of width 128")
    parser.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text (default: Python's own reference)")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="schemes to train; an unknown name lists them")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each scheme (default: 1)")
    parser.add_argument("--length", type=int, metavar="L", help="bytes of the windows in training (default: 64)")
    parser.add_argument("--lengths", nargs="+", type=int, metavar="N", help="bytes of the windows in the test")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory of the results (default: in posenc-study)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--why", action="store_true", help="show instead attention beyond the training length")
    instead.add_argument("--cost", action="store_true", help="compare instead ALiBi at L with sinusoids at 2L")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser()
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: expected at least 1")
    try:
        from study import attention, command, cost, text
        from study.allocation import keep_freed_memory
        from study.training import DivergedError
    except ImportError as error:
        parser.error(f'{error}; to run the study: pip install "./bridges[autograd]" matplotlib')
    keep_freed_memory()
    try:
        setting = command.with_options(command.FULL if options.full else command.QUICK, options.length, options.lengths)
        corpus = text.from_file(options.text) if options.text else text.embedded()
        out = options.out or Path("posenc-study", setting.name)
        default = command.FULL_DEFAULT if options.full and not options.why else command.DEFAULT
        methods = tuple(dict.fromkeys(options.methods or default))
        if options.cost:
            cost.study(setting, corpus, out, options.seeds)
        elif options.why:
            attention.study(setting, corpus, out, methods)
        else:
            command.study(setting, corpus, out, methods, options.seeds)
    except ValueError as error:
        parser.error(str(error))
    except DivergedError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: interrupted\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
