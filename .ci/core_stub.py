"""Write posenc/_core.pyi, the types of the rows of csrc/ops.def: `python .ci/core_stub.py > posenc/_core.pyi`."""

from __future__ import annotations

import re

from posenc import _core

HEAD = '''"""The rows of csrc/ops.def, each called as row(function_name, operand=..., parameter=...) -> its results.

.ci/core_stub.py writes this file; a test compares them. The binding reads what NumPy reads, converts it to the dtypes
of the row, checks ranks, lengths and numbers, and allocates results that are not passed. What an option or a table
means, the functions of posenc check.
"""

from collections.abc import Iterator
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Numbers = npt.ArrayLike

class Arrays(np.ndarray[Any, np.dtype[Any]]):  # only for type checkers: one array, or a tuple of several
    def __iter__(self) -> Iterator[npt.NDArray[Any]]: ...

@overload
def read(row: str, /, **operands: Any) -> Arrays: ...
@overload
def read(function: str, row: str, /, **operands: Any) -> Arrays: ...
def set_helpers(reader: object, shown: object, caster: object, /) -> None: ...
def isa() -> str: ...
def isas() -> tuple[str, ...]: ...
def set_isa(name: str, /) -> None: ...
def begin_rehearsal() -> None: ...
def end_rehearsal() -> None: ...
def threads() -> int: ...
def set_threads(number: int, /) -> None: ...
def table() -> dict[str, str]: ...
def constants() -> dict[str, Any]: ...
def build() -> str: ...
'''


def stub() -> str:
    """Return the text of posenc/_core.pyi."""
    rows = [HEAD]
    for row, signature in _core.table().items():
        if not hasattr(_core, row):
            continue
        if "operators" in signature or "@" in signature:  # its callers collect operands in a dict
            rows.append(f'def {row}(function: str = "", /, **operands: Any) -> Any: ...\n')
            continue
        operands, _, parameters = signature.partition(";")
        inputs, _, results = operands.partition("->")
        required, optional = [], []
        named = r"\w+ \+?(\w+)([^\w\s(]*)\("
        for name, marks in re.findall(named, inputs):
            if "?" in marks:
                optional.append(f"{name}: Any = None")
            else:
                required.append(f"{name}: Numbers")
        names = [name for name, _ in re.findall(named, results)]
        optional += [f"{name}: Any = None" for name in names]
        for parameter in filter(None, map(str.strip, parameters.split(","))):
            name, of = re.split(r"[^\w]", parameter, maxsplit=1)[0], "str" if ":" in parameter else "float"
            if "=" in parameter:
                optional.append(f"{name}: {of} | None = None")
            else:
                required.append(f"{name}: {of}")
        optional += ["dtype: Any = None", "**settings: Any"]  # start, and lengths by their letters
        listed = "".join(f"    {argument},\n" for argument in ['function: str = ""', "/", "*", *required, *optional])
        rows.append(f"def {row}(\n{listed}) -> {'npt.NDArray[Any]' if len(names) == 1 else 'Any'}: ...\n")
    return "".join(rows)


if __name__ == "__main__":
    print(stub(), end="")
