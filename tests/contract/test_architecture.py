"""The architecture: which files may include or import which, read from the sources as text.

The folders of csrc/kernels and of posenc have an order. A file may use its own folder and the folders below it. Rooms
around the core, and the bridges, use public names: those in ``__all__`` of posenc or of a public module, or that such a
module imports as itself (``from .a import b as b``).
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC, KERNELS, PACKAGE = ROOT / "csrc", ROOT / "csrc" / "kernels", ROOT / "posenc"
C_FILES = sorted(file for pattern in ("*.c", "*.h", "*.def") for file in CSRC.rglob(pattern))


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


# ---- C ----

MAY_INCLUDE = {
    "base": (),
    "bias": ("base",),
    "tile": ("base", "bias"),
    "bf16": ("base", "bias", "tile"),
    "relative": ("base", "bias", "tile"),
    "attention": ("base", "bias", "tile", "relative"),
    "absolute": ("base",),
    "rotary": ("base", "absolute"),
}
"""The folders that a folder of csrc/kernels may include, besides itself and the headers in csrc."""


def code_of(file: Path) -> str:
    """The text of a C file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_c_includes_only_the_rooms_below():
    """Kernels and the headers in csrc include neither the binding nor the runtime, the runtime nothing of Python, and
    only the binding includes Python and NumPy."""
    assert {path.name for path in KERNELS.iterdir() if path.is_dir()} == set(MAY_INCLUDE)
    offenders = []
    for file in C_FILES:
        room, parent = file.relative_to(CSRC).parts[0], file.parent.name
        may = ("", parent, *MAY_INCLUDE.get(parent, MAY_INCLUDE))
        for included in re.findall(r'^#include [<"]([^">]+)', code_of(file), flags=re.MULTILINE):
            folder = included.rpartition("/")[0]
            is_of_binding = room != "python" and (folder in ("python", "numpy") or included == "Python.h")
            is_above = (room == "kernels" and folder not in may) or (file.parent == CSRC and folder == "runtime")
            if is_of_binding or is_above:
                offenders.append(f"{name_of(file)} includes {included}")
    assert offenders == []


# ---- Python ----

ORDER = (
    "_core", "_core_api", "runtime", "absolute", "rotary", "bias", "relative", "attention", "reference",
    "posenc", "analysis", "plot", "check", "typing", "interop", "__main__",
)  # fmt: skip
"""A module may import from its own room and the rooms before it. "posenc" is the package with its public names."""
MODULES = ("analysis", "check", "interop", "plot", "reference", "runtime", "typing")
LIBRARIES = {("_core_api", "ml_dtypes"): 1, ("attention", "typing_extensions"): 1, ("bias", "typing_extensions"): 2}
"""Imports of other libraries than NumPy by the rooms of posenc, with the number of names. It only shrinks."""
ANALYSIS = {
    "_core_api.arrays.Array", "_core_api.arrays.Float64", "_core_api.convert", "_core_api.door.fail",
    "_core_api.door.fail_value", "_core_api.read",
}  # fmt: skip
"""Private names that posenc.analysis imports. The list only shrinks."""
DOOR = "posenc._core_api.door.door"
"""The name of a public function in its messages; all rooms of posenc import it from here, and bridges from interop."""


@cache
def imported(file: Path) -> list[str]:
    """Dotted names that a file imports, also in functions and by import_module; `from a import b` is a.b. A module that
    is computed may be any room that the file has as a string."""
    tree, package = ast.parse(file.read_text("utf-8")), list(file.relative_to(ROOT).parent.parts)
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and re.search(r"import_module$|\b__import__$", ast.unparse(node.func)):
            text = re.fullmatch(r"f?['\"](\.?)([A-Za-z][\w.]*).*", ast.unparse(node.args[0]))
            computed = [f"posenc.{room}" for room in ORDER if room in strings]
            names += [".".join(package) + f".{text[2]}" if text[1] else text[2]] if text else computed
    return names


@cache
def public_names(module: str) -> set[str]:
    """The names that posenc ("") or one of its modules exports."""
    file = PACKAGE / module / "__init__.py"
    names: set[str] = set()
    for node in ast.walk(ast.parse((file if file.exists() else PACKAGE / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.name == alias.asname}
    return names


def is_public(name: str) -> bool:
    first, *rest = name.split(".")[1:] or ["__all__"]
    if first == "interop":  # its types are for the bridges, too
        return not any(name.startswith("_") for name in rest)
    if first in MODULES:
        return not rest or rest[0].startswith("__") or (len(rest) == 1 and rest[0] in public_names(first))
    return first.startswith("__") or (not rest and first in public_names(""))


def private_names(room: Path) -> Iterator[str]:
    """Private names of posenc that the files of a room import from outside it, or read as ``posenc.name``."""
    shared = {DOOR} if room.is_relative_to(PACKAGE) else set()
    for file in sorted(room.rglob("*.py")) or [room]:
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        read = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
        names = {name for name in read if re.fullmatch(rf"posenc(\.({'|'.join(MODULES)}))?\.\w+", name)}
        names |= {name for name in imported(file) if name.split(".")[0] == "posenc"}
        own = ".".join(file.relative_to(ROOT).parts[:2]) + "."
        yield from (name for name in names - shared if not name.startswith(own) and not is_public(name))


def room_of(name: str) -> str:
    """The folder of a dotted name: posenc.rotary.rope is in rotary; posenc.rope is a name of the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ORDER else "posenc"


def test_python_imports_only_the_rooms_below():
    """And no private name of another room. The package itself imports all rooms of operators, and others when they are
    used."""
    offenders, libraries = [], Counter[tuple[str, str]]()
    for file in sorted(PACKAGE.rglob("*.py")):
        first = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        room = "posenc" if first == "__init__" else first
        assert room in ORDER
        for name in imported(file):
            top, *inside = name.split(".")
            if top != "posenc":
                libraries[room, top] += top not in {*sys.stdlib_module_names, "numpy"}
                continue
            inside = inside[1:] if inside and inside[0] in ORDER else inside
            is_private = room_of(name) != room and any(re.match(r"_(?!_)", part) for part in inside)
            if room != "posenc" and (ORDER.index(room_of(name)) > ORDER.index(room) or is_private):
                offenders.append(f"{name_of(file)} imports {name}")
    assert offenders == []
    assert libraries.pop(("plot", "matplotlib"))
    assert +libraries == LIBRARIES


@pytest.mark.parametrize(
    ("room", "private"),
    [
        ("posenc/plot", set()),
        ("posenc/check", set()),
        ("posenc/__main__.py", set()),
        ("examples", set()),
        ("bridges/posenc_bridges", set()),
        ("posenc/analysis", {f"posenc.{name}" for name in ANALYSIS}),
    ],
)
def test_rooms_around_the_core_use_public_names(room, private):
    assert set(private_names(ROOT / room)) == private


def test_an_import_of_a_clone_that_is_not_built_says_so(tmp_path):
    """The error is one sentence with the command that builds posenc, and no circular import."""
    built = shutil.ignore_patterns("_core.*so", "_core.*pyd", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "posenc", ignore=built)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import posenc"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    message = done.stderr.strip().split("\n")[-1]
    assert message.startswith("ImportError: ")
    assert "pip install" in message
    assert "circular" not in done.stderr


def test_the_map_of_tests_names_every_file_of_the_contract():
    """CONTRIBUTING.md, "Find the place of a test"."""
    rows = re.findall(r"^\|.*\| `contract` \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    named = sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))
    assert named == sorted(file.stem[5:] for file in Path(__file__).parent.glob("test_*.py"))
