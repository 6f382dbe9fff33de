"""Calls of functions that return a `Bias`, with arguments that another library traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import posenc
from posenc import interop
from posenc.interop import Arguments

if TYPE_CHECKING:
    from typing_extensions import Self


class Operator:
    """Call of a function that returns a `Bias`, with arguments that another library traces.

    Attributes
    ----------
    name : str
        Name of the function, ``"at"`` for positions of its own, or ``"sum"``.
    arguments : dict
        Its arguments by name.
    """

    __slots__ = ("arguments", "name")
    _matrix: Callable[..., object]
    _logits: Callable[..., object]
    """The twins of `MATRIX` and `LOGITS` in the module of a derived class."""

    def __init__(self, name: str, arguments: Arguments) -> None:
        self.name, self.arguments = name, arguments

    def matrix(self, *args: object, **options: object) -> Any:
        """Return `PositionBias.matrix` as the functions of the module return arrays; float32 without ``dtype``."""
        return self._matrix(*args, **options)

    def logits(self, *args: object, **options: object) -> Any:
        """Return `ContentBias.logits` as the other functions of the module return arrays."""
        return self._logits(*args, **options)

    def at(self, *, q_positions: object = None, k_positions: object = None) -> Self:
        """Return `Bias.at`: the operator at these positions, which have no gradient."""
        return type(self)("at", {"self": self, "q_positions": q_positions, "k_positions": k_positions})

    def __add__(self, other: object) -> Self:
        if not isinstance(other, Operator | posenc.Bias):
            return NotImplemented
        return type(self)("sum", {"parts": (*_parts(self), *_parts(other))})

    def __radd__(self, other: object) -> Self:
        if type(other) is int and other == 0:  # sum() starts with 0
            return self
        if not isinstance(other, posenc.Bias):
            return NotImplemented
        return type(self)("sum", {"parts": (*_parts(other), *_parts(self))})

    def _described(self) -> str:
        shapes = (f"{name} {getattr(one, 'shape', one)}" for name, one in self.arguments.items())
        return f"{self.name}: {', '.join(shapes)}"


def _parts(operator: Operator | posenc.Bias) -> tuple[Operator | posenc.Bias, ...]:
    """Return the operators of a sum; of another operator, itself."""
    if not isinstance(operator, Operator):
        return operator.parts
    parts: tuple[Operator | posenc.Bias, ...] = operator.arguments.get("parts", (operator,))
    return parts


def call_of(bias: posenc.Bias) -> Operator:
    """Return the call that makes a `Bias`."""
    if len(bias.parts) > 1:
        return Operator("sum", {"parts": bias.parts})
    ((function, arguments, (q_positions, k_positions)),) = interop.calls_of(bias)
    made = Operator(function, arguments)
    if q_positions is None and k_positions is None:
        return made
    return Operator("at", {"self": made, "q_positions": q_positions, "k_positions": k_positions})


_METHODS: dict[str, Callable[..., posenc.Bias]] = {
    "at": lambda self, **positions: self.at(**positions),
    "sum": lambda parts: sum(parts[1:], parts[0]),
}


def make(name: str, arguments: Arguments) -> Any:
    """Return the `Bias` that an `Operator` describes, from plain arguments, or another object of posenc."""
    maker = _METHODS.get(name) or getattr(posenc, name)
    return maker(**arguments)
