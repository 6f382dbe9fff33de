"""The public names of a package, and their annotations as `help` prints them."""

from types import FunctionType, ModuleType
from typing import Any


def public_names(namespace: dict[str, Any]) -> list[str]:
    """Return the ``__all__`` of a package from its globals: every name but modules and private names.

    A public name is written once, in the ``__all__`` of its own file, which the package imports by ``*``. Type checkers
    follow such imports themselves; they would not understand a computed ``__all__``, so it is hidden from them.
    """
    return [name for name, value in namespace.items() if not (name.startswith("_") or isinstance(value, ModuleType))]


class Annotation(str):
    """An annotation that prints as it is written; before Python 3.14, `help` would put a plain string in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show_plain_annotations(namespace: dict[str, Any]) -> None:
    """Let `help` print the annotations of the public functions and methods of a package without quotes."""
    public = [namespace[name] for name in public_names(namespace)]
    members = [member for value in public if isinstance(value, type) for member in vars(value).values()]
    for value in (*public, *members):
        function = getattr(value, "fget", getattr(value, "__func__", value))  # of a property, of a class method
        if isinstance(function, FunctionType):
            annotations = function.__annotations__
            annotations.update({name: Annotation(a) for name, a in annotations.items() if isinstance(a, str)})
