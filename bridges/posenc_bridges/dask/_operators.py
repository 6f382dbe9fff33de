"""Operators on the logits in chunks: the part of an operator that a chunk of heads, queries and keys reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

import posenc
from posenc.interop import axes_of

from ._arrays import Array, Dtype
from ._blocks import Axes, Key, Place, Tasks, name_axes

FIRST_CHUNK_ONLY = {"cls_to_any": "n", "any_to_cls": "m"}
"""Arrays that only row 0 ("n") or column 0 ("m") of the logits reads."""
Start = tuple[int, ...]
"""The first index of a piece of an array along each axis."""


Part: TypeAlias = tuple[Callable[[list[Array | None]], posenc.Bias], list[Array | None], list[Start | None]]
"""The part of an operator that a chunk reads: a function that makes it, its argument, and the starts of the pieces.

The argument has a piece of each array of the operator, then of its own positions of queries and keys; None is a piece
that the chunk lacks. The gradients of the part are in float32 or wider.
"""


class _Operand(NamedTuple):
    """An array of an operator, or its own positions of queries or keys."""

    array: Array
    axes: Axes
    first_only: str | None = None
    """The axis of which only the first chunk reads the array."""


class Operator:
    """An operator of a call with n queries, to be cut into parts."""

    def __init__(self, bias: posenc.Bias, n: int) -> None:
        self.bias, self.n = bias, n
        self.operands: list[_Operand | None] = []
        others: list[object] = []
        dtypes: list[Dtype | None] = []
        for name, array, letters in zip(bias.arrays._fields, bias.arrays, axes_of(bias), strict=True):
            operand = None
            if isinstance(array, np.ndarray):
                operand = _Operand(array, name_axes("*" + letters, array.ndim), FIRST_CHUNK_ONLY.get(name))
            is_large = {"n", "m"} <= {*letters} and array.dtype != np.float64
            self.operands.append(operand)
            dtypes.append(operand and np.dtype(np.float32 if is_large else np.float64))
            others.append(array if isinstance(array, tuple) else None)
        for axis, own in zip("nm", bias.own_positions, strict=True):
            self.operands.append(None if own is None else _Operand(own, name_axes("*" + axis, own.ndim)))
        rest = type(bias.arrays), others, dict(bias.options), tuple(dtypes)
        self._make = partial(_make, type(bias), bias.name, *rest)

    def _slices(self, place: Place) -> list[tuple[slice, ...] | None]:
        """Return the slices of each array that a chunk reads."""
        return [
            slices_of(one.axes, one.array.shape, place, self.n)
            if one and (one.first_only is None or place[one.first_only][0] == 0)
            else None
            for one in self.operands
        ]

    def part(self, place: Place) -> posenc.Bias:
        """Return the part of one chunk."""
        pairs = zip(self.operands, self._slices(place), strict=True)
        return self._make([None if one is None or slices is None else _cut(one.array, slices) for one, slices in pairs])

    def task(self, name: str, number: int, place: Place, layer: Tasks) -> list[object]:
        """Return what a task makes the part of a chunk of; add the nodes that hold its arrays.

        `number` is the place of this operator among those of the call.
        """
        make: Key = (name, number)
        layer.setdefault(make, self._make)
        keys: list[Key | None] = []
        starts: list[Start | None] = []
        for i, (one, slices) in enumerate(zip(self.operands, self._slices(place), strict=True)):
            start = key = None
            if one is not None and slices is not None:
                start = tuple(each.start for each in slices)
                key = (*make, i, *start, *(each.stop for each in slices))
                if key not in layer:
                    layer[key] = _cut(one.array, slices)
            keys.append(key)
            starts.append(start)
        return [make, keys, starts]


def slices_of(axes: Axes, shape: tuple[int, ...], place: Place, n: int = 0) -> tuple[slice, ...]:
    """Return the slices of an array along its axes. An axis of length 1 is broadcast, and other axes are whole.

    Axis "l" has one number for each distance of n queries and the keys, entry j - i + n - 1.
    """
    slices = []
    for axis, length in zip(axes, shape, strict=True):
        if axis == "l":
            (first, end), (left, right) = place["n"], place["m"]
            start, count = n + left - end, end - first + right - left - 1
            slices.append(slice(start, start + count) if end > first and right > left else slice(0, 0))
        else:
            slices.append(slice(*place[axis]) if axis in place and length != 1 else slice(0, length))
    return tuple(slices)


def _make(
    kind: type[posenc.Bias], name: str, fields: type, others: list[object], options: dict[str, object],
    dtypes: tuple[Dtype | None, ...], pieces: list[Array | None],
) -> posenc.Bias:  # fmt: skip
    """Return an operator from pieces of its arrays and of its own positions, and from everything else of it."""
    *arrays, q, k = pieces
    both = [other if array is None else array for array, other in zip(arrays, others, strict=True)]
    return kind(name, fields(*both), options, dtypes, (q, k))


def _cut(array: Array, slices: tuple[slice, ...]) -> Array:
    """Return a part of an array, such that its gradient can be in the same memory order."""
    part = np.asarray(array[slices])
    return part if part.flags.c_contiguous or part.flags.f_contiguous else np.ascontiguousarray(part)
