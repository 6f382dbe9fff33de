"""Read the imports of a Python package without running it: those inside functions, and by `import_module`, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ORDER = (
    "_core", "_core_api", "runtime", "absolute", "rotary", "bias", "relative", "attention", "reference",
    "posenc", "analysis", "plot", "check", "interop", "__main__",
)  # fmt: skip
"""A module may import from its own room and the rooms before it. "posenc" is the package with its public names."""


class Import(NamedTuple):
    file: Path
    line: int
    name: str
    """Dotted; `from a import b` is a.b."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def room_of(name: str) -> str:
    """The folder of a dotted name: posenc.rotary.rope is in rotary; posenc.rope is a name of the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ORDER else "posenc"


def read_imports(root: Path, file: Path, tree: ast.AST) -> Iterator[Import]:
    """The imports of posenc in a file below the root, or in a part of it."""
    package = list(file.relative_to(root).parent.parts)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and re.search(r"import_module$|\b__import__$", ast.unparse(node.func)):
            names = called(node, package, tree)
        yield from (Import(file.relative_to(root), node.lineno, name) for name in names if is_ours(name))


def is_ours(name: str) -> bool:
    return name.split(".")[0] == "posenc"


def called(node: ast.Call, package: list[str], tree: ast.AST) -> list[str]:
    """The module of a call of import_module. One that is computed may be any room that the file has as a string."""
    asked = node.args[0] if node.args else None
    if isinstance(asked, ast.Constant) and isinstance(asked.value, str):
        return [".".join(package) + asked.value if asked.value.startswith(".") else asked.value]
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return [f"posenc.{room}" for room in ORDER if room in strings]


class Imports:
    """The imports of the package from itself."""

    def __init__(self, package: Path) -> None:
        self.root = package.parent
        self.files = sorted(package.rglob("*.py"))
        trees = {file: ast.parse(file.read_text("utf-8"), file.name) for file in self.files}
        self.found = [one for file, tree in trees.items() for one in read_imports(self.root, file, tree)]

    def room(self, file: Path) -> str:
        first = file.relative_to(self.root / "posenc").parts[0].removesuffix(".py")
        return "posenc" if first == "__init__" else first

    def upward(self) -> list[Import]:
        """Imports of a room above. The package itself imports all rooms of operators, and others when they are used."""
        found = []
        for one in self.found:
            room = self.room(self.root / one.file)
            if room != "posenc" and ORDER.index(room_of(one.name)) > ORDER.index(room):
                found.append(one)
        return found

    def private(self) -> list[Import]:
        """Imports of a name or a module with an underscore from another room. `_core` and `_core_api` are rooms."""
        found = []
        for one in self.found:
            inside = one.name.split(".")[1:]
            inside = inside[1:] if inside and inside[0] in ORDER else inside
            private = any(re.match(r"_(?!_)", part) for part in inside)
            room = self.room(self.root / one.file)
            if private and room not in ("posenc", room_of(one.name)):  # the package names what its rooms define
                found.append(one)
        return found
