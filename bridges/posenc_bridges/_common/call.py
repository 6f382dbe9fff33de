"""Arguments of a call as arrays, integers, numbers and a hashable spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

import posenc
from posenc.interop import Arguments

from .operator import Operator, make

Path = tuple[str | int, ...]
"""Path of an array inside the arguments of a call: the name of an argument, then indices and names inside it."""
T = TypeVar("T")

ARRAY, INTEGER, NUMBER = range(3)
"""Leaves: each stands in a spec for the next item of a list of a `Call`."""
Spec: TypeAlias = "Node | int | str | Callable[..., object] | posenc.Bias | posenc.RopeFrequencies | None"
"""A node, a leaf, or a constant: None, a flag, a text, a function of the user, an object that a bridge keeps whole."""
Node: TypeAlias = tuple[str, tuple[str, ...], tuple[Spec, ...]]
"""(kind, names of the arguments, arguments) of a call inside the arguments of a call, or of all arguments together.

The kind is the name of a function or class of posenc, or "call". That of a tuple or list is "tuple" or "list", and
there are no names.
"""
NESTED = (Operator, tuple, list)
"""Types of arguments that contain others."""
_WITH_FIELDS = (posenc.RopeFrequencies, posenc.Quantized)
_FIELDS = {kind.__name__: tuple(inspect.signature(kind).parameters) for kind in _WITH_FIELDS}
"""Classes of posenc whose values are arguments, and the names of their fields."""


def walk(value: object, leaf: Callable[[object], T], node: Callable[[str, Sequence[str], list[T]], T]) -> T:
    """Return ``leaf(value)``, or ``node(kind, names, values)`` of a value that contains others, from the inside out."""
    if isinstance(value, Operator):
        given = value.arguments
        return node(value.name, tuple(given), [walk(one, leaf, node) for one in given.values()])
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return node(kind, (), [walk(one, leaf, node) for one in value])
    return leaf(value)


def make_node(kind: str, names: Sequence[str], values: list[object]) -> object:
    """Return the object that a node describes."""
    if names:
        return make(kind, dict(zip(names, values, strict=True)))
    return values if kind == "list" else tuple(values)


def _keep_node(kind: str, names: Sequence[str], values: list[Spec]) -> Node:
    return kind, tuple(names), tuple(values)


class Call:
    """Arguments of a call, flattened.

    Attributes
    ----------
    spec : Node
        The arguments, with a leaf in place of each array, integer and number.
    arrays, integers, numbers : list
        These items, in their order. An array is anything that no other list and no spec can hold.
    has_objects : bool
        True if `is_constant` accepted an object in the spec.
    """

    def __init__(
        self,
        arguments: Arguments,
        convert: Callable[[object], object] = lambda value: value,
        types: tuple[type, ...] = (),
        symbols: tuple[type, ...] = (),
        is_constant: Callable[[object], bool] = lambda value: False,
    ) -> None:
        """Flatten the arguments; `convert` may replace values that are no constants.

        An instance of `types` is an array then, one of `symbols` an integer, and what `is_constant` accepts is kept.
        """
        self.arrays: list[Any] = []
        self.integers: list[int] = []
        self.numbers: list[float] = []
        self.has_objects = False
        self._convert, self._types, self._integers, self._is_constant = convert, types, (int, *symbols), is_constant
        values: list[Spec] = []
        for one in arguments.values():
            if isinstance(one, types) and getattr(one, "ndim", False):  # most arguments, in less time
                self.arrays.append(one)
                values.append(ARRAY)
            elif one is None or isinstance(one, (bool, str)):
                values.append(one)
            else:
                values.append(walk(one, self._flatten, _keep_node))
        self.spec: Node = "call", tuple(arguments), tuple(values)

    def _flatten(self, value: object) -> Spec:
        if value is None or isinstance(value, (bool, str)):
            return value
        if self._is_constant(value):
            self.has_objects = True
            return cast("Spec", value)
        if isinstance(value, self._integers):
            self.integers.append(cast("int", value))
            return INTEGER
        if isinstance(value, float):
            self.numbers.append(value)
            return NUMBER
        if isinstance(value, _WITH_FIELDS):
            name = type(value).__name__
            converted: object = Operator(name, {field: getattr(value, field) for field in _FIELDS[name]})
        else:
            converted = self._convert(value)
        if converted is not value:
            return walk(converted, self._flatten, _keep_node)
        if callable(value) and not isinstance(value, (type, *self._types)):
            return value
        self.arrays.append(value)
        return ARRAY

    def keep(self) -> None:
        """Copy the arrays of NumPy, which the caller may change before the gradient is computed."""
        self.arrays = [one.copy() if isinstance(one, np.ndarray) else one for one in self.arrays]

    def paths(self) -> Iterator[Path]:
        """Yield the path of each array."""
        return paths(self.spec)

    def arguments(self, arrays: Iterable[object] | None = None) -> Arguments:
        """Return the arguments, with other arrays."""
        return arguments(self.spec, self.arrays if arrays is None else arrays, self.integers, self.numbers)


def paths(node: Node, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each array of a spec, which is also the path of its gradient."""
    kind, names, values = node
    for number, value in enumerate(values):
        if isinstance(value, tuple):
            yield from paths(value, _path_inside(kind, names, path, number))
        elif type(value) is int and value == ARRAY:
            yield (names[number],) if kind == "call" else _path_inside(kind, names, path, number)


def _path_inside(kind: str, names: tuple[str, ...], path: Path, number: int) -> Path:
    if not names:
        return (*path, number)
    if kind == "sum" or (kind, names[number]) == ("at", "self"):
        return path
    if kind in _FIELDS:  # the first field of RopeFrequencies has the gradient of the argument
        return path if kind == "RopeFrequencies" and number == 0 else (*path, number)
    return (*path, names[number], 0) if kind == "at" else (*path, names[number])


def arguments(
    spec: Node,
    arrays: Iterable[object],
    integers: Iterable[int],
    numbers: Iterable[float],
    node: Callable[[str, Sequence[str], list[object]], object] = make_node,
) -> Arguments:
    """Return the arguments of a spec with these items; `node` returns the objects that nodes describe."""
    items = iter(arrays), iter(integers), iter(numbers)

    def build(value: object) -> object:
        if type(value) is int:
            return next(items[value])
        if type(value) is not tuple:
            return value
        kind, names, values = value
        return node(kind, names, [build(one) for one in values])

    _, names, values = spec
    return {  # most arguments are leaves
        name: next(items[value]) if type(value) is int else build(value)
        for name, value in zip(names, values, strict=True)
    }
