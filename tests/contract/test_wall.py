"""The walls between the rooms: who may import which names of posenc, and which other libraries, read from the sources.

A public name is one in ``__all__`` of posenc or of a public module, or one that such a module imports as itself
(``from .comparison import comparison as comparison``).
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from imports import read_imports

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, BRIDGES = ROOT / "posenc", ROOT / "bridges" / "posenc_bridges"
MODULES = ("analysis", "check", "interop", "plot", "reference", "runtime")
LIBRARIES = {
    ("_core_api", "ml_dtypes"): 1, ("attention", "typing_extensions"): 1,
    ("bias", "typing_extensions"): 1,
}  # fmt: skip
"""Imports of other libraries than NumPy by the rooms of posenc, with their number. It only shrinks."""
ANALYSIS = {
    "posenc._core_api.arguments": "Array Float64 as_array as_data as_index as_number as_positions as_positive "
    "check_choice compute_dtype fail fail_value store_result",
}
"""Private names that posenc.analysis imports, which read and check arguments. The list only shrinks."""
DOOR = "posenc._core_api.arguments.door"
"""The name of a public function in its messages; it is for public functions in all rooms."""


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), file.name)


@cache
def public_names(module: str) -> set[str]:
    """The names that posenc ("") or one of its modules exports."""
    file = PACKAGE / module / "__init__.py"
    names: set[str] = set()
    for node in ast.walk(parsed(file if file.exists() else PACKAGE / f"{module}.py")):
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


def private_names(file: Path) -> set[str]:
    """Private names of posenc that a file imports from outside its own room, or reads as ``posenc.name``."""
    tree = parsed(file)
    names = {one.name for one in read_imports(ROOT, file, tree)}
    read = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names |= {name for name in read if re.fullmatch(rf"posenc(\.({'|'.join(MODULES)}))?\.\w+", name)}
    own = ".".join(file.relative_to(ROOT).parts[:2]) + "."
    return {name for name in names - {DOOR} if not name.startswith(own) and not is_public(name)}


def libraries(file: Path) -> Iterator[str]:
    """The libraries that a file imports, also in functions and by `import_module` of a text."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]
        elif isinstance(node, ast.Call) and re.search(r"import_module$|\b__import__$", ast.unparse(node.func)):
            text = re.match(r"f?['\"]([A-Za-z]\w*)", ast.unparse(node.args[0]))
            yield from (text[1],) if text else ()


@pytest.mark.parametrize("room", ["posenc/plot", "posenc/check", "posenc/__main__.py", "examples"])
def test_rooms_around_the_core_use_public_names(room):
    files = sorted((ROOT / room).rglob("*.py")) or [ROOT / room]
    found = {file.relative_to(ROOT).as_posix(): names for file in files if (names := private_names(file))}
    assert not found


def test_the_package_imports_numpy_alone():
    """matplotlib may be imported in posenc/plot."""
    known = {*sys.stdlib_module_names, "numpy", "posenc"}
    files = [(file.relative_to(PACKAGE).parts[0], file) for file in sorted(PACKAGE.rglob("*.py"))]
    found = Counter((room, name) for room, file in files for name in libraries(file) if name not in known)
    assert found.pop(("plot", "matplotlib"))
    assert found == LIBRARIES


BESIDE_NUMPY = """
import sys
from unittest import mock
import numpy as np

class Wall:
    def find_spec(name, *more):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "posenc", "cases"}:
            raise ImportError(name)

sys.meta_path.insert(0, Wall)
sys.modules["pytest"] = mock.MagicMock()  # cases.fixtures imports it
import posenc
from cases import CASES

posenc.quantize(np.ones((2, 4)))
for case in CASES:
    if case.module == "posenc":
        results = case.call(arguments := case.arguments(max(3, case.least)))
        if case.gradients:
            case.vjp(tuple(np.ones(np.shape(r)) for r in results), arguments)
"""


def test_every_function_computes_beside_numpy_alone(run_python):
    """No other library can be imported. test_table.py finds a function without a Case, other than `quantize`."""
    done = run_python(BESIDE_NUMPY, PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'tests'}")
    assert done.returncode == 0, done.stderr


def test_analysis_uses_public_names():
    found = {name for file in (PACKAGE / "analysis").rglob("*.py") for name in private_names(file)}
    assert found == {f"{module}.{name}" for module, names in ANALYSIS.items() for name in names.split()}


@pytest.mark.parametrize("bridge", sorted(path.name for path in BRIDGES.iterdir() if path.name != "__pycache__"))
def test_bridges_use_public_names(bridge):
    files = sorted((BRIDGES / bridge).rglob("*.py")) or [BRIDGES / bridge]
    found = {name for file in files for name in private_names(file)}
    assert sorted(found) == []
