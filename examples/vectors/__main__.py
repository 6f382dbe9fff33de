"""``python examples/vectors``: write or check the test vectors; see the package `vectors`."""

import sys
from pathlib import Path

if not __package__:  # the folder is run as a script; its parent has the package `vectors`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from posenc.__main__ import command
from vectors import PROGRAM, main

command(main, PROGRAM)
