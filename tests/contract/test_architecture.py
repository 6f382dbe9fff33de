"""The architecture: which files may include or import which, read from the sources as text.

The folders of csrc/kernels and of posenc have an order. A file may use its own folder and the folders below it, and
only the file of an operator may name the operator. Each test lists the offenders.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from imports import ORDER, Imports

ROOT = Path(__file__).resolve().parents[2]
CSRC, KERNELS, PACKAGE = ROOT / "csrc", ROOT / "csrc" / "kernels", ROOT / "posenc"

C_FILES = sorted(file for pattern in ("*.c", "*.h", "*.def") for file in CSRC.rglob(pattern))
PYTHON_FILES = sorted(PACKAGE.rglob("*.py"))


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


def test_operators_are_found():
    assert {"alibi", "fire", "toeplitz", "shaw"} <= set(OPERATORS)


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


GENERIC = [
    file for file in PYTHON_FILES
    if file.parent.name in ("_core_api", "attention")
    or (file.parent.name == "bias" and file.stem in ("operator", "parameters", "positions", "terms"))
    or (file.parent.name in ("bias", "relative") and re.match(r"_[a-z]", file.name))
]  # fmt: skip
"""Python files that serve every operator."""


def documentation(tree: ast.AST) -> set[int]:
    """The ids of docstrings and of other strings that stand alone."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every identifier, and of every string that may be one; prose may name an operator."""
    silent = documentation(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield line, node.name
        elif isinstance(node, ast.arg):
            yield line, node.arg
        elif isinstance(node, ast.alias):
            yield line, node.name
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
            and re.fullmatch(r"[\w.]+", node.value)
        ):
            yield line, node.value


def parsed(file: Path) -> ast.AST:
    return ast.parse(file.read_text(encoding="utf-8"), file.name)


@pytest.mark.parametrize("operator", OPERATORS)
def test_generic_python_names_no_operator(operator):
    offenders = [
        f"{name_of(file)}:{line}: {name}"
        for file in GENERIC
        for line, name in names_in(parsed(file))
        if any(names_operator(word, operator) for word in name.split("."))
    ]
    assert not offenders, listed(offenders)


# ---- one name in every layer ----

KERNEL_ROOMS = {"absolute", "rotary", "bias", "relative", "attention"}
ROOMS = KERNEL_ROOMS | {"analysis"}
"""The rooms of operators. Other folders hold what every room uses, or sort tests by another question."""


def test_the_rooms_of_operators_have_one_name_in_every_layer():
    assert {path.name for path in KERNELS.iterdir() if path.is_dir()} - {"base", "sixteen", "tile"} == KERNEL_ROOMS
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} >= ROOMS
    tests = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("test_*.py"))}
    assert tests - {"contract", "docs", "examples", "check", "reference"} == ROOMS
    assert {path.stem for path in (ROOT / "docs" / "functions").glob("*.md")} == ROOMS


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_is_in_the_same_room_of_c_and_of_python(operator):
    module = getattr(import_module("posenc"), operator).__module__
    assert own_file(operator).parent.name == module.split(".")[1]


STATIC = re.compile(r"^(?:static|INLINE)\s[^;{}()=]*?\b(\w+)\s*\([^;{}]*\)\s*\{", re.MULTILINE)
STRUCT = re.compile(r"^(?:typedef\s+)?struct\s+(\w+)\s*\{|^\}\s*(\w+);", re.MULTILINE)


def hooks_of(text: str) -> set[str]:
    """The functions that a file passes as hooks of its operators, .distance = alibi."""
    return set(re.findall(r"\.\w+ = (\w+)", text))


def test_no_function_or_struct_of_one_name_is_in_two_files():
    """A static function that a file passes as a hook of its operator has the name of the hook in every such file."""
    where: dict[str, list[str]] = {}
    for file in C_FILES:
        text = code_of(file)
        names = set(STATIC.findall(text)) - hooks_of(text)
        names |= {first or last for first, last in STRUCT.findall(text)}
        for name in names:
            where.setdefault(name, []).append(name_of(file))
    assert len(where) > 100
    offenders = [f"{name}: {', '.join(files)}" for name, files in sorted(where.items()) if len(files) > 1]
    assert not offenders, listed(offenders)


# ---- Python: imports ----

IMPORTS = Imports(PACKAGE)


def test_every_room_of_python_is_in_the_list():
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} <= set(ORDER)


def test_python_imports_only_the_rooms_below():
    """Imports inside functions count, and import_module does."""
    assert not IMPORTS.upward(), listed(IMPORTS.upward())


def test_python_files_import_in_no_circle():
    circles = [{file.as_posix() for file in circle} for circle in IMPORTS.circles()]
    assert circles == []


def test_python_imports_no_private_name_of_another_room():
    assert not IMPORTS.private(), listed([str(one) for one in IMPORTS.private()])


# ---- constants ----

CONSTANTS = code_of(CSRC / "constants.def")
NUMBERS = dict(re.findall(r"^CONSTANT\((\w+), (\d+)\)", CONSTANTS, flags=re.MULTILINE))
OPTIONS = {
    name: tuple(option.partition("_")[2].lower() for option in options.split(", "))
    for name, options in re.findall(r"^OPTIONS\((\w+), ([^)]+)\)", CONSTANTS, flags=re.MULTILINE)
}
TABLEAUS = tuple(re.findall(r"^TABLEAU\((\w+),", CONSTANTS, flags=re.MULTILINE))


def c_numbers() -> dict[str, set[int]]:
    """Every enumerator and macro of csrc that is a plain integer."""
    found: dict[str, set[int]] = {}
    for file in C_FILES:
        text = code_of(file)
        for name, value in [*re.findall(r"\b([A-Z]\w+) = (\d+)[,\s}]", text), *NUMBERS.items(),
                            *re.findall(r"^#define ([A-Z]\w+) (\d+)\s*$", text, flags=re.MULTILINE)]:  # fmt: skip
            found.setdefault(name, set()).add(int(value))
    return found


def python_numbers(tree: ast.AST) -> Iterator[tuple[int, str, int]]:
    """(line, name, value) of every name that is bound to an integer literal, also in tuples."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and type(value.value) is int:
                        yield node.lineno, name.id, value.value


def test_constants_are_found():
    assert int(NUMBERS["BLOCK_M"]) == 64
    assert OPTIONS["PADDINGS"] == ("zero", "circular", "replicate")
    assert "euler" in TABLEAUS


def test_c_says_a_shared_constant_once():
    offenders = []
    for file in C_FILES:
        if file.name == "constants.def":
            continue
        for name in (*NUMBERS, *OPTIONS):
            if re.search(rf"\b{name} = |#define {name}\b", code_of(file)):
                offenders.append(f"{name_of(file)}: {name}")
    assert not offenders, listed(offenders)


def test_python_repeats_no_number_of_c():
    """A Python name repeats a constant if C has the same name, in any case, with the same value."""
    numbers = {(name.lower().strip("_"), value) for name, values in c_numbers().items() for value in values}
    offenders = [
        f"{name_of(file)}:{line}: {name} = {value}"
        for file in PYTHON_FILES
        for line, name, value in python_numbers(parsed(file))
        if (name.lower().strip("_"), value) in numbers
    ]
    assert not offenders, listed(offenders)


def may_spell(node: ast.AST) -> bool:
    """Types have to spell their strings, and so has a look-up of codes, map(MODES.index, (...))."""
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value).endswith("Literal")
    return isinstance(node, ast.Call) and ast.unparse(node).startswith("map(") and ".index," in ast.unparse(node)


def test_python_repeats_no_list_of_options():
    lists = [set(options) for options in (*OPTIONS.values(), TABLEAUS)]
    offenders = []
    for file in PYTHON_FILES:
        tree = parsed(file)
        spelled = {id(inner) for node in ast.walk(tree) if may_spell(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and id(node) not in spelled:
                strings = {e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
                if any(options <= strings for options in lists):
                    offenders.append(f"{name_of(file)}:{node.lineno}: {ast.unparse(node)}")
    assert not offenders, listed(offenders)


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
