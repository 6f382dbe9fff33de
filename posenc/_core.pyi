"""The rows of csrc/ops.def, each called as row(function_name, *operands, *parameters) -> None."""

from typing import Any

def __getattr__(row: str) -> Any: ...
