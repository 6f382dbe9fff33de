"""The chunks of a call of attention: along each axis, in which pairs something is visible, and which arrays are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from posenc._core_api.arguments import fail

from ._arrays import Chunks, DaskArray, Key, Source, bounds_of, common_bounds, cut, is_dask, lengths_of
from ._inputs import Inputs
from ._operators import Place
from ._visible import Side, visible_pairs

At = dict[str, int]
"""The number of a chunk along each axis of the call."""


class ChunkedCall:
    """A call in chunks that fit each other: those of heads fit the groups of GQA, those of keys fit k and v."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.axes_of_batch = tuple(f"b{axis}" for axis in reversed(range(len(inputs.shape) - 3)))
        self._set_chunks()
        self._cut()
        self._visible: dict[Key, list[list[int]]] = {}

    def _set_chunks(self) -> None:
        """Choose chunks along each axis of the call that cut no chunk of q, k and v."""
        q, k, v = (self.inputs.arrays[name] for name in "qkv")
        chunks: dict[str, Chunks] = {}
        for number, axis in enumerate(self.axes_of_batch):
            of_axis = [a.chunks[number - len(self.axes_of_batch) - 3] for a in (q, k, v)
                       if a.ndim >= len(self.axes_of_batch) + 3 - number]  # fmt: skip
            length = self.inputs.shape[number]
            chunks[axis] = lengths_of(common_bounds(bounds_of(c) for c in of_axis if sum(c) == length))
        chunks["n"] = q.chunks[-2]
        chunks["m"] = lengths_of(common_bounds(bounds_of(a.chunks[-2]) for a in (k, v)))
        chunks["h"], chunks["g"], self.kv_chunk_of = self._chunks_of_heads(q, k, v)
        self.chunks = chunks
        self.bounds = {axis: bounds_of(lengths) for axis, lengths in chunks.items()}
        if len(chunks["m"]) > 1:
            for part in self.inputs.parts:
                if part.needs_all_keys:
                    expected = f"one, because {part.bias.name} sums over keys: k.rechunk({{-2: -1}})"
                    fail(ValueError, self.inputs.function, "k", f"{len(chunks['m'])} chunks of keys", expected)

    def _chunks_of_heads(self, q: DaskArray, k: DaskArray, v: DaskArray) -> tuple[Chunks, Chunks, list[int]]:
        """Return chunks of heads and of kv heads, and the kv chunk of each chunk of heads.

        A chunk of heads is some whole groups, or a part of one group.
        """
        heads, kv_heads = q.shape[-3], k.shape[-3]
        group = heads // kv_heads if kv_heads else 1
        if any(part.needs_all_heads for part in self.inputs.parts):
            return (heads,), (kv_heads,), [0]
        of_kv = [[group * place for place in bounds_of(array.chunks[-3])] for array in (k, v)]
        bounds = common_bounds([bounds_of(q.chunks[-3]), *of_kv])
        inner = {
            place
            for a, b in itertools.pairwise(bounds)
            if a % group or b % group
            for place in range(a - a % group + group, b, group)
        }
        bounds = sorted({*bounds, *inner})
        pairs = itertools.pairwise(bounds)
        of_chunk = [(a // group, -(-b // group)) for a, b in pairs] or [(0, 0)]
        kv = sorted(set(of_chunk))
        return lengths_of(bounds), tuple(b - a for a, b in kv), [kv.index(one) for one in of_chunk]

    def _cut(self) -> None:
        """Rechunk all arrays to the chunks of the call."""
        batch, places = self.axes_of_batch, self.inputs.places
        axes = {
            "q": (*batch, "h", "n", ""), "k": (*batch, "g", "m", ""), "v": (*batch, "g", "m", ""),
            "k_scale": (*batch, "g", "m"), "v_scale": (*batch, "g", "m"),
            "keep": (*batch, "h", "n", "m"), "sink": (*batch, "h"), "grad": (*batch, "h", "n", ""),
            "out": (*batch, "h", "n", ""), "lse": (*batch, "h", "n"), "grad_lse": (*batch, "h", "n"),
            "q_positions": (*batch, "n"), "k_positions": (*batch, "m"),
            "q_segments": (*batch, "n"), "k_segments": (*batch, "m"),
        }  # fmt: skip
        self.known = {name: None if is_dask(value) else value for name, value in places.items()}
        self.sources: dict[str, Source | None] = {}
        self.cut_arrays: dict[str, DaskArray] = {}
        for name, value in (*self.inputs.arrays.items(), *places.items()):
            self.sources[name] = None
            if value is None or isinstance(value, range):
                continue
            array = value if is_dask(value) else da.from_array(value, chunks=value.shape)
            own = axes[name][len(axes[name]) - array.ndim :]
            self.cut_arrays[name], self.sources[name] = cut(array, own, self.chunks)

    @property
    def token(self) -> str:
        """A name of the call: equal calls of equal arrays have equal tokens."""
        names = {name: array.name for name, array in self.cut_arrays.items()}
        ranges = [value for value in self.inputs.places.values() if isinstance(value, range)]
        inputs = self.inputs
        given = inputs.operators, inputs.pair_options, inputs.low, inputs.high
        return str(tokenize(inputs.function, names, ranges, *given, self.chunks))

    # ---- one chunk after the other ----

    @property
    def chunks_of_rows(self) -> tuple[Chunks, ...]:
        """Chunks of the result along its axes but the last: (batch axes, H, N)."""
        return tuple(self.chunks[axis] for axis in (*self.axes_of_batch, "h", "n"))

    def rows(self) -> Iterator[At]:
        """Yield the chunks of queries."""
        for index in np.ndindex(*map(len, self.chunks_of_rows)):
            at = dict(zip((*self.axes_of_batch, "h", "n"), index, strict=True))
            at["g"] = self.kv_chunk_of[at["h"]]
            yield at

    def index_of_rows(self, at: At) -> Key:
        return tuple(at[axis] for axis in (*self.axes_of_batch, "h", "n"))

    def keys_of(self, at: At, without_keys: bool = True) -> Sequence[int | None]:
        """Return the chunks of keys that a chunk of queries sees; [None] if it sees none, or [] on request."""
        batch = tuple(at[axis] for axis in self.axes_of_batch)
        if batch not in self._visible:
            pairs = visible_pairs(self._side("q", at), self._side("k", at), self.inputs.low, self.inputs.high)
            self._visible[batch] = [np.flatnonzero(row).tolist() for row in pairs]
        return self._visible[batch][at["n"]] or ([None] if without_keys else [])

    def _side(self, letter: str, at: At) -> Side:
        """Return what is known of the queries or keys in a chunk of the batch."""
        known = [self._of_batch(self.known[f"{letter}_{kind}"], at) for kind in ("positions", "segments")]
        return Side(self.bounds["n" if letter == "q" else "m"], *known)

    def _of_batch(self, known: Any, at: At) -> Any:
        """Return positions or segments of a chunk of the batch as (rows, N); all batch axes together are the rows."""
        if not isinstance(known, np.ndarray) or known.ndim == 1:
            return known
        batch = self.inputs.shape[:-3]
        whole = np.broadcast_to(known, (*batch, known.shape[-1]))
        index = tuple(slice(*self.bounds[axis][at[axis] : at[axis] + 2]) for axis in self.axes_of_batch)
        return whole[index].reshape(-1, known.shape[-1])

    def place(self, at: At) -> Place:
        """Return the range of a pair of chunks along each axis."""
        return {axis: (self.bounds[axis][i], self.bounds[axis][i + 1]) for axis, i in at.items() if axis != "g"}

    # ---- chunks that a task reads ----

    def key(self, name: str, at: At) -> Key | None:
        """Return the key of the chunk of an array, None if the call has no such array."""
        source = self.sources[name]
        return None if source is None else source.key(at)

    def index_of(self, name: str, at: At) -> Key:
        """Return the index of the chunk of an array."""
        key = self.key(name, at)
        assert key is not None
        return key[1:]

    def positions(self, name: str, at: At) -> range | Key | None:
        """Return a range that the task makes positions of, or the key of the chunk of positions."""
        known, axis = self.known[name], "n" if name == "q_positions" else "m"
        return known[slice(*self.place(at)[axis])] if isinstance(known, range) else self.key(name, at)
