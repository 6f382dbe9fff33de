"""The command `posenc`: its version, and the description of the installation for bug reports."""

import importlib.metadata
import inspect
import pydoc
import re
import subprocess
import sys
import typing

import numpy as np
import pytest

import posenc
from posenc import __main__ as command


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(["--version"])
    assert capsys.readouterr().out == f"posenc {posenc.__version__}\n"


def test_info_describes_package_machine_and_extras(capsys):
    assert command.main(["info"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == [
        "posenc", "isa", "threads", "build", "cpu", "caches", "python", "numpy", "optional", "extras",
    ]  # fmt: skip
    assert lines["posenc"].startswith(posenc.__version__)
    assert lines["isa"].startswith(posenc.isa())
    assert lines["build"] == posenc.build_flags()
    assert lines["numpy"].startswith(f"{np.__version__}, BLAS ")


def test_info_names_what_an_extra_lacks(monkeypatch):
    requirements = ["numpy>=1.23", 'pytest>=8; extra == "test"', 'nowhere; extra == "far"', "rich; extra == 'far'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: requirements)
    monkeypatch.setattr(command, "version", lambda package: "" if package == "nowhere" else "1")
    assert command.extras() == "test, far (lacks nowhere)"


def test_info_knows_no_extras_of_a_package_that_is_not_installed(monkeypatch):
    def not_installed(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "requires", not_installed)
    assert command.extras() == "unknown, because posenc is not installed"
    assert command.version("posenc-is-not-that") == ""


def test_blas_is_unknown_where_numpy_does_not_tell(monkeypatch):
    def show_config():
        pass

    monkeypatch.setattr(np, "show_config", show_config)
    assert command.blas() == "unknown"


def test_module_and_command_are_one_program():
    done = subprocess.run([sys.executable, "-m", "posenc", "--help"], capture_output=True, text=True, check=True)
    assert re.match(r"usage: python -m posenc ", done.stdout)
    assert "--version" in done.stdout


def test_info_has_help_of_its_own(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(["info", "--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: {command.PROGRAM} info [-h]\n")
    assert "FILE" not in said
    with pytest.raises(SystemExit, match=r"^2$"):
        command.main(["info", "--out", "here"])
    assert "info: unrecognized arguments: --out here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "of", [posenc.rope, posenc.Bias.at, posenc.PositionBias, posenc.threads, posenc.analysis.decay],
    ids=lambda of: of.__qualname__,
)  # fmt: skip
def test_help_shows_plain_annotations(of):
    """Before Python 3.14, `help` prints the representation of an annotation: a string would have quotes."""
    shown = pydoc.plain(pydoc.render_doc(of))
    assert "->" in shown
    assert not re.search(r"(?:: |-> )'[\w.]+[ |\[']", "".join(line for line in shown.splitlines() if "->" in line))


def test_annotations_are_still_those_of_the_source():
    hints = typing.get_type_hints(posenc.alibi_slopes)
    assert hints["heads"] is int
    assert inspect.signature(posenc.alibi_slopes, eval_str=True).parameters["heads"].annotation is int
