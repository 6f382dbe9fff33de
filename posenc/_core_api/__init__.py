"""Convert between user arguments and the operands of `posenc._core`.

`posenc` imports this package first, so an import of a clone that is not built fails here, by name.
"""

from importlib import import_module
from pathlib import Path

try:
    import_module("posenc._core")
except ModuleNotFoundError as error:
    if error.name != "posenc._core":  # a module that _core itself needs
        raise
    clone = Path(__file__).parents[2]
    raise ImportError(f'posenc is not built for this Python; run `python -m pip install -e "{clone}"`') from None
