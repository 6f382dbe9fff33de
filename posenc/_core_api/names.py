"""The public names of a package."""

from types import ModuleType
from typing import Any


def public_names(namespace: dict[str, Any]) -> list[str]:
    """Return the ``__all__`` of a package from its globals: every name but modules and private names.

    A public name is written once, in the ``__all__`` of its own file, which the package imports by ``*``. Type checkers
    follow such imports themselves; they would not understand a computed ``__all__``, so it is hidden from them.
    """
    return [name for name, value in namespace.items() if not (name.startswith("_") or isinstance(value, ModuleType))]
