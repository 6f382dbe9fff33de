"""Write posenc/_core.pyi, the types of the rows of csrc/ops.def: `python .ci/core_stub.py > posenc/_core.pyi`."""

from __future__ import annotations

import re

from posenc import _core

HEAD = '''"""The rows of csrc/ops.def, each called as row(function_name, operand=..., parameter=...) -> None.

.ci/core_stub.py writes this file; a test compares them. The module is private and trusts its caller. The binding checks
the memory of the operands: kinds, ranks, lengths, strides, alignment. It does not check what an option or a table
means; the functions of posenc do. So a direct call with wrong parameters may read or write out of bounds, and no call
of a public function may.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Terms = tuple[tuple[str, dict[str, Numbers | None], Numbers | None, Numbers | None], ...]

def attention_plain(*arguments: object) -> Any: ...
def rope_plain(*arguments: object) -> Any: ...
def isa() -> str: ...
def isas() -> tuple[str, ...]: ...
def set_isa(name: str, /) -> None: ...
def hold_isa() -> None: ...
def release_isa(*exception: object) -> None: ...
def hold_kernels() -> None: ...
def release_kernels(*exception: object) -> None: ...
def threads() -> int: ...
def set_threads(number: int, /) -> None: ...
def table() -> dict[str, str]: ...
def constants() -> dict[str, Any]: ...
def build() -> str: ...
'''
TYPES = {"real": "Numbers", "codes": "Numbers", "f64": "Numbers", "pos": "Numbers", "i64": "Integers", "bool": "Bools"}


def stub() -> str:
    """Return the text of posenc/_core.pyi."""
    rows = [HEAD]
    for row, signature in _core.table().items():
        if not hasattr(_core, row):
            continue
        if "operators" in signature or "@" in signature:  # its callers collect operands in a dict
            rows.append(f"def {row}(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...\n")
            continue
        operands, _, parameters = signature.partition(";")
        arguments = []
        for kind, name, marks in re.findall(r"(\w+) \+?(\w+)([?~!@#]*)\(", operands):
            of = TYPES.get(kind, "Terms")
            arguments.append(f"{name}: {of} | None = None" if "?" in marks else f"{name}: {of}")
        arguments += [f"{name.strip()}: float" for name in parameters.split(",") if name.strip()]
        listed = "".join(f"    {argument},\n" for argument in ["function: str", "/", "*", *arguments])
        rows.append(f"def {row}(\n{listed}) -> None: ...\n")
    return "".join(rows)


if __name__ == "__main__":
    print(stub(), end="")
