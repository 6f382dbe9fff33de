"""The chunks of a call of attention: along each axis, in which pairs something is visible, and which arrays are cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from dask.base import tokenize

from posenc._core_api.arguments import fail

from ._arrays import bounds_of, common_bounds, lengths_of
from ._blocks import TABLE, At, Grid, Key, Source, cut, name_axes
from ._inputs import Inputs
from ._visible import Side, visible_pairs


class ChunkedCall(Grid):
    """A call in chunks that fit each other: those of heads fit the groups of GQA, those of keys fit k and v.

    Attributes
    ----------
    rows_axes : tuple of str
        Axes of the result except the last one.
    sources : dict
        The arrays of the call by name, in these chunks.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, letters = inputs, TABLE["attention_vjp"].arrays
        self.rows_axes = name_axes("*hn", len(inputs.shape) - 1)
        found: dict[str, list[list[int]]] = {axis: [] for axis in inputs.lengths if axis not in "DV"}
        for name in "qkv":
            array = inputs.arrays[name]
            for axis, own in zip(name_axes(letters[name], array.ndim)[:-1], array.chunks, strict=False):
                if sum(own) == inputs.lengths[axis]:
                    found[axis].append(bounds_of(own))
        bounds = {axis: common_bounds(of_axis) for axis, of_axis in found.items()}
        if any("heads" in part.bias.options for part in inputs.parts):  # only their number tells the heads apart
            bounds.update({axis: [0, inputs.lengths[axis]] for axis in "hg"})
        self._fit_heads(bounds)
        super().__init__({axis: lengths_of(of_axis) for axis, of_axis in bounds.items()})
        for part in inputs.parts if len(self.chunks["m"]) > 1 else []:
            if part.bias.scheme.counts_keys:
                expected = f"one, because {part.bias.name} sums over keys: k.rechunk({{-2: -1}})"
                fail(ValueError, "k", f"{len(self.chunks['m'])} chunks of keys", expected)
        self.sources: dict[str, Source] = {}
        for name, value in (*inputs.arrays.items(), *inputs.known.items()):
            if not isinstance(value, range):
                self.sources[name] = cut(value, name_axes(letters[name], value.ndim), self.chunks)
        self._visible: dict[Key, list[list[int]]] = {}

    def _fit_heads(self, bounds: dict[str, list[int]]) -> None:
        """Cut heads and kv heads so that a chunk of heads is some whole groups, or a part of one group."""
        heads, kv_heads = self.inputs.lengths["h"], self.inputs.lengths["g"]
        group = heads // kv_heads if kv_heads else 1
        both = common_bounds([bounds["h"], [group * place for place in bounds["g"]]])
        inner = [range(a - a % group + group, b, group) for a, b in itertools.pairwise(both) if a % group or b % group]
        bounds["h"] = common_bounds([both, *inner])
        of_chunk = [(a // group, -(-b // group)) for a, b in itertools.pairwise(bounds["h"])] or [(0, 0)]
        bounds["g"] = common_bounds(of_chunk)
        self.kv_chunk_of = [bounds["g"].index(first) for first, _ in of_chunk]
        """The chunk of kv heads that each chunk of heads reads."""

    @property
    def token(self) -> str:
        """A name of the call: equal calls of equal arrays have equal tokens."""
        inputs = self.inputs
        names = {name: source.array.name for name, source in self.sources.items()}
        ranges = [value for value in inputs.known.values() if isinstance(value, range)]
        given = inputs.operators, inputs.pair, inputs.low, inputs.high
        return str(tokenize(inputs.function, names, ranges, *given, self.chunks))

    # ---- one chunk after the other ----

    def rows(self) -> Iterator[At]:
        """Yield the chunks of queries."""
        for at in self.cells(self.rows_axes):
            yield {**at, "g": self.kv_chunk_of[at["h"]]}

    def index_of_rows(self, at: At) -> Key:
        return tuple(at[axis] for axis in self.rows_axes)

    def keys_of(self, at: At) -> Sequence[int]:
        """Return the chunks of keys that a chunk of queries sees."""
        batch = tuple(at[axis] for axis in self.rows_axes[:-2])
        if batch not in self._visible:
            pairs = visible_pairs(self._side("q", "n", at), self._side("k", "m", at), self.inputs.low, self.inputs.high)
            self._visible[batch] = [np.flatnonzero(row).tolist() for row in pairs]
        return self._visible[batch][at["n"]]

    def _side(self, letter: str, axis: str, at: At) -> Side:
        """Return what is known of the queries or keys in a chunk of the batch; all batch axes together are the rows."""
        batch = self.inputs.shape[:-3]
        known = []
        for name in (f"{letter}_positions", f"{letter}_segments"):
            value = self.inputs.known.get(name)
            if isinstance(value, np.ndarray) and value.ndim > 1:
                place = self.place({axis: at[axis] for axis in self.rows_axes[:-2]})
                whole = np.broadcast_to(value, (*batch, value.shape[-1]))
                part = whole[tuple(slice(*span) for span in place.values())]
                value = part.reshape(math.prod(part.shape[:-1]), part.shape[-1])
            known.append(value)
        return Side(self.bounds[axis], *known)

    # ---- chunks that a task reads ----

    def operand(self, name: str, at: At) -> range | Key | None:
        """Return the key of the chunk of an array, or a range that the task makes positions of; None without either."""
        if name in self.sources:
            return self.sources[name].key(at)
        if name not in self.inputs.known:
            return None
        axis = "n" if name == "q_positions" else "m"
        return cast("range", self.inputs.known[name])[slice(*self.place({axis: at[axis]})[axis])]

    def index_of(self, name: str, at: At) -> Key:
        """Return the index of the chunk of an array."""
        return self.sources[name].key(at)[1:]
