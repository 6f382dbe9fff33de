"""The architecture: which files may include or import which, read from the sources as text.

The folders of csrc/kernels and of posenc have an order. A file may use its own folder and the folders below it, and
only the file of an operator may name the operator. Each test lists the offenders.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from imports import ORDER, Imports

ROOT = Path(__file__).resolve().parents[2]
CSRC, KERNELS, PACKAGE = ROOT / "csrc", ROOT / "csrc" / "kernels", ROOT / "posenc"

C_FILES = sorted(file for pattern in ("*.c", "*.h", "*.def") for file in CSRC.rglob(pattern))


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def listed(offenders: Iterable[object]) -> str:
    return "\n".join(["", *map(str, offenders)])


# ---- C: folders of kernels ----

MAY_INCLUDE = {
    "base": (),
    "bias": ("base",),
    "tile": ("base", "bias"),
    "sixteen": ("base", "bias", "tile"),
    "relative": ("base", "bias", "tile"),
    "attention": ("base", "bias", "tile", "relative"),
    "absolute": ("base",),
    "rotary": ("base", "absolute"),
}
"""The folders that a folder of csrc/kernels may include, besides itself and the headers in csrc."""


def code_of(file: Path) -> str:
    """The text of a C file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read_text(encoding="utf-8"), flags=re.DOTALL)


def includes(file: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', code_of(file), flags=re.MULTILINE)


def test_every_room_of_kernels_is_in_the_list():
    assert {path.name for path in KERNELS.iterdir() if path.is_dir()} == set(MAY_INCLUDE)


def test_kernels_include_only_the_rooms_below():
    offenders = []
    for room, below in MAY_INCLUDE.items():
        for file in sorted((KERNELS / room).iterdir()):
            for included in includes(file):
                if included.rpartition("/")[0] not in (room, *below, ""):
                    offenders.append(f"{name_of(file)} includes {included}")
    assert not offenders, listed(offenders)


def test_kernels_include_neither_the_binding_nor_the_runtime():
    """The headers in csrc, which kernels include, obey the same rule, and the runtime includes nothing of Python."""
    files = [file for file in C_FILES if file.is_relative_to(KERNELS) or file.parent == CSRC]
    offenders = [
        f"{name_of(f)} includes {i}" for f in files for i in includes(f) if i.startswith(("python/", "runtime/"))
    ]
    runtime = [file for file in C_FILES if file.is_relative_to(CSRC / "runtime")]
    offenders += [f"{name_of(f)} includes {i}" for f in runtime for i in includes(f) if i.startswith("python/")]
    assert not offenders, listed(offenders)


def test_only_the_binding_includes_python_and_numpy():
    found = [name_of(file) for file in C_FILES if re.search(r"#include [<\"](Python\.h|numpy/)", code_of(file))]
    assert [file for file in found if not file.startswith("csrc/python/")] == []
    assert found


# ---- operators are named by their own files alone ----

ROW = re.compile(r"^(?:DISTANCE|PAIR|POSITION|CONTENT)\((\w+),", flags=re.MULTILINE)
TABLE = code_of(CSRC / "ops.def")
OPERATORS = ROW.findall(TABLE)
KERNELS_OF_THEIR_OWN = set(re.findall(r"^OP\((\w+),", TABLE, flags=re.MULTILINE))
"""Rows that are no operator; a name such as toeplitz_matrix is theirs."""


def names_operator(identifier: str, operator: str) -> bool:
    """Return whether the operator is a word of the identifier, as in PE_shaw, SHAW_V and shaw_vjp."""
    return f"_{operator}_" in f"_{identifier.lower()}_" and identifier not in KERNELS_OF_THEIR_OWN


def own_file(operator: str) -> Path:
    """The file that defines the struct of functions of an operator."""
    (file,) = (file for file in C_FILES if f"FN({operator}_op) =" in code_of(file))
    return file


@pytest.mark.parametrize("operator", OPERATORS)
def test_c_names_an_operator_in_its_own_file_alone(operator):
    """Encodings and analyses include no bias, so their layers may be called dense."""
    own = own_file(operator)
    offenders = []
    for file in C_FILES:
        if file == own or file.name == "ops.def" or file.parent.name in ("absolute", "rotary"):
            continue
        identifiers = set(re.findall(r"[A-Za-z_]\w*", code_of(file)))
        offenders += [f"{name_of(file)}: {i}" for i in sorted(identifiers) if names_operator(i, operator)]
    assert not offenders, listed(offenders)


# ---- one name in every layer ----


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_is_in_the_same_room_of_c_and_of_python(operator):
    module = getattr(import_module("posenc"), operator).__module__
    assert own_file(operator).parent.name == module.split(".")[1]


# ---- Python: imports ----

IMPORTS = Imports(PACKAGE)


def test_every_room_of_python_is_in_the_list():
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} <= set(ORDER)


def test_python_imports_only_the_rooms_below():
    """Imports inside functions count, and import_module does."""
    assert not IMPORTS.upward(), listed(IMPORTS.upward())


def test_python_imports_no_private_name_of_another_room():
    assert not IMPORTS.private(), listed([str(one) for one in IMPORTS.private()])


# ---- constants ----


# ---- a clone that is not built ----


def test_an_import_of_a_clone_that_is_not_built_says_so(tmp_path):
    """The error is one sentence with the command that builds posenc, and no circular import."""
    shutil.copytree(
        PACKAGE, tmp_path / "posenc", ignore=shutil.ignore_patterns("_core.*so", "_core.*pyd", "__pycache__")
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", "import posenc"], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip
    assert done.returncode == 1
    message = done.stderr.strip().split("\n")[-1]
    assert message.startswith("ImportError: ")
    assert "pip install" in message
    assert "circular" not in done.stderr
