"""Operators on the logits in chunks: the part of an operator that a chunk of heads, queries and keys reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc import _core
from posenc._core_api.arguments import F32, F64, Array
from posenc.attention.inputs import resolve_part_positions
from posenc.bias.operator import Bias, is_placed
from posenc.bias.parameters import array_axes
from posenc.bias.positions import Positions
from posenc.bias.terms import Call, Term

from ._arrays import Key

FIRST_CHUNK_ONLY = {"cls_to_any": "n", "any_to_cls": "m"}
"""Arrays that only row 0 ("n") or column 0 ("m") of the logits reads."""
Range = tuple[int, int]
"""The first index of a chunk, and the one after its last."""
Place = dict[str, Range]
"""The range of a chunk along each axis of the call: "n", "m", "h", and "b0", "b1", ... from the last batch axis on."""
Starts = tuple[tuple[int, ...] | None, ...]
"""For each array of an operator, where the part begins; None for an array that the part lacks."""


class Part(NamedTuple):
    """The part of an operator that a chunk reads. Its gradients are in float32 or wider."""

    bias: Bias
    starts: Starts


class _Half(NamedTuple):
    """Arrays of a part, and where they begin."""

    arrays: tuple[Any, ...]
    starts: Starts


class _Maker(NamedTuple):
    """Everything of an operator but its arrays."""

    bias_type: type[Bias]
    name: str
    fields: type[Any]
    options: dict[str, Any]
    dtypes: tuple[Any, ...]

    def __call__(self, *halves: _Half) -> Part:
        """Return a part from its arrays, each of which is in one of the halves."""

        def joined(items: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(
                next((one for one in of_array if one is not None), None) for of_array in zip(*items, strict=True)
            )

        arrays = self.fields._make(joined([half.arrays for half in halves]))
        bias = self.bias_type(self.name, arrays, self.options, self.dtypes)
        return Part(bias, joined([half.starts for half in halves]))


class Operator:
    """An operator of a call with n queries and m keys, to be cut into parts.

    Which axes of an array are cut is read from the row of the operator in csrc/ops.def.
    """

    def __init__(self, bias: Bias, n: int, m: int) -> None:
        self.bias, self.n, self.m = bias, n, m
        letters = array_axes(bias.name) if bias.name in _core.table() else {}
        self.own_positions = bias.own_positions
        self.axes = {
            name: _name_axes(array, letters[name if name in letters else _only(letters)])
            for name, array in zip(bias.arrays._fields, bias.arrays, strict=True)
            if isinstance(array, np.ndarray)
        }
        dtypes = tuple(self._gradient_dtype(name) for name in bias.arrays._fields)
        self.maker = _Maker(type(bias), bias.name, type(bias.arrays), dict(bias.options), dtypes)
        cut_by_both = any({"n", "m"} <= {*axes} for axes in self.axes.values())
        self.halves: tuple[str, ...] = ("",)
        if not cut_by_both and {"n", "m"} <= {axis for axes in self.axes.values() for axis in axes}:
            self.halves = ("n", "m")

    def _gradient_dtype(self, name: str) -> np.dtype[Any] | None:
        """Return the dtype of the gradient of a part: float64, or that of the arithmetic for one number per pair."""
        if name not in self.axes:
            return None
        is_float32 = {"n", "m"} <= {*self.axes[name]} and getattr(self.bias.arrays, name).dtype != F64
        return F32 if is_float32 else F64

    @property
    def needs_all_heads(self) -> bool:
        """True if nothing but the number of heads tells which head a row belongs to."""
        return "heads" in self.bias.options

    @property
    def hides_arrays(self) -> bool:
        """True if an array lies inside another object, so that its gradient cannot be put together from parts."""
        return any(isinstance(field, tuple) and not isinstance(field, Bias) and field for field in self.bias.arrays)

    @property
    def needs_all_keys(self) -> bool:
        return self.bias.counts_keys

    def term(self, call: Call) -> Term:
        """Return the term of a call, of one query and key if these suffice; raise the errors of its arrays."""
        *leading, n, m = call.shape
        if not any({"n", "m", "l"} & {*axes} for axes in self.axes.values()):
            n, m = min(n, 1), min(m, 1)
        return self.bias._term(call._replace(shape=(*leading, n, m)), Positions(n, m))

    def check_own_positions(self, function: str, batch: tuple[int, ...]) -> None:
        """Refuse positions of the operator's own that do not fit the call."""
        resolve_part_positions(function, self.bias, Positions(self.n, self.m), batch)

    def part(self, place: Place) -> Part:
        """Return the part of one chunk."""
        return self._placed(self.maker(*(self._half(half, place) for half in self.halves)), place)

    def _placed(self, part: Part, place: Place) -> Part:
        """Return a part with the positions of its chunk, if the operator has positions of its own."""
        given = {
            side: own[self._slices_of_own(own, axis, place)]
            for side, own, axis in zip(("q_positions", "k_positions"), self.own_positions, ("n", "m"), strict=True)
            if own is not None
        }
        bias: Any = part.bias
        return part._replace(bias=bias.at(**given)) if given else part

    def _slices_of_own(self, own: Array, axis: str, place: Place) -> tuple[Any, ...]:
        """Return the slices of positions (batch axes, N); a batch axis of length 1 is broadcast."""
        return tuple(
            slice(*place[name]) if name == axis or (name in place and length != 1) else slice(None)
            for name, length in zip(_name_axes(own, axis), own.shape, strict=True)
        )

    def task(self, name: str, number: int, place: Place, layer: dict[Key, Any]) -> Any:
        """Return the argument of a task that reads the part of a chunk; add the nodes that hold its arrays.

        `number` is the place of this operator among those of the call.
        """
        keys = []
        for half in self.halves:
            key = (name, number, half, *self._identity(half, place))
            if key not in layer:
                found = self._half(half, place)
                layer[key] = self._placed(self.maker(found), place) if len(self.halves) == 1 else found
            keys.append(key)
        return keys[0] if len(keys) == 1 else (self.maker, *keys)

    def _belongs(self, name: str, half: str) -> bool:
        other = {"n": "m", "m": "n", "": ""}[half]
        if FIRST_CHUNK_ONLY.get(name, half) == other and half:
            return False
        return not half or other not in self.axes[name]

    def _slices(self, name: str, place: Place) -> tuple[slice, ...]:
        """Return the slices of an array along its axes; an axis of length 1 is broadcast, and other axes are whole."""
        array = getattr(self.bias.arrays, name)
        (first, end), (left, right) = place["n"], place["m"]
        slices = []
        for axis, length in zip(self.axes[name], array.shape, strict=True):
            if axis == "l":
                start = self.n + left - end
                slices.append(slice(start, start + end - first + right - left - 1) if end > first and right > left
                              else slice(0, 0))  # fmt: skip
            elif axis in place and length != 1:
                slices.append(slice(*place[axis]))
            else:
                slices.append(slice(0, length))
        return tuple(slices)

    def _identity(self, half: str, place: Place) -> tuple[int, ...]:
        """Return what tells the parts of different chunks apart."""
        found: list[int] = []
        if is_placed(self.bias):
            found += [end for axis in sorted(place) if axis != "h" for end in place[axis]]
        for name in self.axes:
            if self._belongs(name, half):
                slices = self._slices(name, place)
                for one, axis in zip(slices, self.axes[name], strict=True):
                    if axis in place or axis == "l":
                        found += [one.start, one.stop]
                found.append(self._is_read(name, place))
        return tuple(found)

    def _is_read(self, name: str, place: Place) -> bool:
        axis = FIRST_CHUNK_ONLY.get(name)
        return axis is None or place[axis][0] == 0

    def _half(self, half: str, place: Place) -> _Half:
        arrays: list[Any] = []
        starts: list[tuple[int, ...] | None] = []
        for name, array in zip(self.bias.arrays._fields, self.bias.arrays, strict=True):
            if name not in self.axes or not self._belongs(name, half) or not self._is_read(name, place):
                arrays.append(array if isinstance(array, tuple) else None)  # nested operators are parts of their own
                starts.append(None)
                continue
            slices = self._slices(name, place)
            arrays.append(_contiguous(array[(..., *slices)]))
            starts.append(tuple(one.start for one in slices))
        return _Half(tuple(arrays), tuple(starts))


def _only(letters: dict[str, str]) -> str:
    """Return the name of the only operand of a row, where that is not the name of the array it is made from."""
    (name,) = letters
    return name


def _name_axes(array: Array, letters: str) -> tuple[str, ...]:
    """Return the axes of an array: its last ones have letters, and others before are batch axes."""
    batch = [f"b{axis}" for axis in reversed(range(array.ndim - len(letters)))]
    return (*batch, *letters[max(0, len(letters) - array.ndim) :])


def _contiguous(array: Array) -> Array:
    """Return an array whose gradient can be in the same memory order."""
    return array if array.flags.c_contiguous or array.flags.f_contiguous else np.ascontiguousarray(array)
