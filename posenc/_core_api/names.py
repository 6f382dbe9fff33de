"""Annotations as `help` prints them."""

from collections.abc import Iterable
from types import FunctionType


class Annotation(str):
    """An annotation that prints as it is written; before Python 3.14, `help` would put a plain string in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show_plain_annotations(namespace: dict[str, object], names: Iterable[str]) -> None:
    """Let `help` print the annotations of the public functions and methods of a package without quotes."""
    public = [namespace[name] for name in names]
    members = [member for value in public if isinstance(value, type) for member in vars(value).values()]
    for value in (*public, *members):
        function = getattr(value, "fget", getattr(value, "__func__", value))  # of a property, of a class method
        if isinstance(function, FunctionType):
            annotations = function.__annotations__
            annotations.update({name: Annotation(a) for name, a in annotations.items() if isinstance(a, str)})
