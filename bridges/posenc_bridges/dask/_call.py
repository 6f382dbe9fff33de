"""A call of attention: its checked arguments, the chunks along each axis, and the pairs in which something is seen."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from math import inf
from typing import Any, TypeAlias, cast

import dask.array as da
import numpy as np
from dask.base import tokenize

import posenc

from ._arrays import Arguments, Array, check, fail, is_lazy, read_array, read_numbers, read_places
from ._blocks import At, Chunks, Key, Source, bounds_of, common_bounds, cut, lengths_of, name_axes
from ._operators import Operator, Span, arrays_of
from ._quantized import Quantized
from ._tasks import ARRAYS

GRADIENT = {"grad": "*hnV", "out": "*hnV", "lse": "*hn", "grad_lse": "*hn"}
LETTERS = {**ARRAYS, **GRADIENT}
"""The axes of all arrays of a call; csrc/ops.def names those of the operators."""

Known: TypeAlias = range | Array | None
"""Positions or segments in memory; None if nothing reads them, or if they are dask arrays."""


class Call:
    """A call in chunks that fit each other: those of heads fit the groups of GQA, those of keys fit k and v.

    Attributes
    ----------
    arrays : dict
        Arrays of the call by name, as dask arrays.
    known : dict
        Positions and segments that are in memory by name, each a range or an array.
    shape : tuple of int
        Shape of the logits: (batch axes, H, N, M).
    lengths : dict
        The length of each axis of the call.
    rows_axes : tuple of str
        Axes of the result except the last one.
    run_pair : partial
        The task of a pair of chunks: a function of its operands.
    low, high : float
        The lowest and the highest visible distance.
    chunks, bounds : dict
        The lengths of the chunks along each axis, and where they begin and end.
    sources : dict
        The arrays of the call by name, in these chunks.
    parts : list
        The operators, each with its `Operator` and its `arrays_of` in these chunks.
    """

    def __init__(self, task: Callable[..., object], given: Arguments) -> None:
        self.arrays: dict[str, da.Array] = {}
        self.known: dict[str, range | Array] = {}
        self._read_arrays(given)
        q, k, v = (self.arrays[name] for name in "qkv")
        batch = np.broadcast_shapes(*(one.shape[:-3] for one in (q, k, v)))
        self.shape = (*batch, *q.shape[-3:-1], k.shape[-2])
        self.lengths = dict(zip(name_axes("*hnm", len(self.shape)), self.shape, strict=True))
        self.lengths |= {"g": k.shape[-3], "D": k.shape[-1], "V": v.shape[-1]}
        self.rows_axes = name_axes("*hn", len(self.shape) - 1)
        self.dtype = q.dtype.newbyteorder("=")
        self.work_dtype = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)

        for name, letters in GRADIENT.items():
            wanted = tuple(self.lengths[axis] for axis in name_axes(letters, len(batch) + len(letters) - 1))
            if name in self.arrays and self.arrays[name].shape != wanted:
                fail(ValueError, f"{name} has shape {self.arrays[name].shape}", str(wanted))

        bias = given["bias"]
        self.operators = (bias,) if isinstance(bias, posenc.Bias) else tuple(bias or ())
        parts = [part for operator in self.operators for part in operator.parts]
        for part in parts if "grad" in given else ():
            if any(isinstance(array, tuple) and array for array in part.arrays):
                expected = "an operator without arrays, because its gradient cannot be split into chunks"
                fail(TypeError, f"bias has operator {part.name} with arrays", expected)
        left, right = given["window"] or (None, None)
        self.low = -inf if left is None else -left
        self.high = min(inf if right is None else right, 0 if given["causal"] else inf)
        are_read = self.low > -inf or self.high < inf or any(part.reads_positions for part in parts)
        self._read_positions(given, are_read)
        self.options = {name: given[name] for name in ("causal", "softcap", "invariant")}
        self.options |= {"window": (left, right), "scale": None if given["scale"] is None else float(given["scale"])}
        self.run_pair = partial(task, self.options)
        self.chunks = self._fit_chunks(any("heads" in part.options for part in parts))
        self.bounds = {axis: bounds_of(lengths) for axis, lengths in self.chunks.items()}
        if len(self.chunks["m"]) > 1 and any(part.name == "cope" for part in parts):
            expected = "one, because cope sums over keys: k.rechunk({-2: -1})"
            fail(ValueError, f"k has {len(self.chunks['m'])} chunks of keys", expected)
        self.sources: dict[str, Source] = {
            name: cut(value, name_axes(LETTERS[name], value.ndim), self.chunks)
            for name, value in (*self.arrays.items(), *self.known.items())
            if not isinstance(value, range)
        }
        self.parts = [
            (part, Operator(part), [one and cut(*one, self.chunks) for one in arrays_of(part)]) for part in parts
        ]
        self._visible: dict[Key, list[list[int]]] = {}

    def _read_arrays(self, given: Arguments) -> None:
        """Read all arrays but positions, and raise the errors of posenc for shapes, dtypes and options."""
        checked = dict(given)
        for name in LETTERS:
            value = given.get(name)
            if isinstance(value, posenc.Quantized):
                expected = "posenc_bridges.dask.Quantized, or posenc.attention for arrays in memory"
                fail(TypeError, f"{name} has type Quantized of arrays in memory", expected)
            if isinstance(value, Quantized) and "grad" in given:
                fail(TypeError, f"{name} has type Quantized", "a dask array, as dequantize() returns")
            if isinstance(value, Quantized) and name != "q":
                self.arrays[f"{name}_scale"], self.arrays[name] = value.scale, value.codes
                checked[name] = value.like()
            elif name in ("q", "k", "v"):
                checked[name] = self.arrays[name] = read_numbers(name, value)
            elif is_lazy(value):
                is_integer = name.endswith(("positions", "segments"))
                checked[name] = self.arrays[name] = (read_array if is_integer else read_numbers)(name, value)
            elif value is not None and name.endswith("segments"):
                self.known[name] = np.asarray(value)
            elif value is not None and not name.endswith("positions"):
                self.arrays[name] = read_numbers(name, da.from_array(np.asarray(value), chunks=-1))
            if name in ("q", "k", "v") and self.arrays[name].ndim < 3:
                fail(ValueError, f"{name} has {self.arrays[name].ndim} axes", "at least 3: heads, sequence, channels")
        if np.size(given["scale"]) > 1:
            fail(TypeError, f"scale has shape {np.shape(given['scale'])}", "a number in posenc_bridges.dask")
        # the gradient has the same checks, but to rehearse it touches memory of the size of q
        check(posenc.attention, {name: value for name, value in checked.items() if name not in GRADIENT})
        if given["dropout"]:
            fail(NotImplementedError, f"dropout is {given['dropout']}", "0; posenc_bridges.dask has no dropout")

    def _read_positions(self, given: Arguments, are_read: bool) -> None:
        """Read the positions of queries and keys, as a range where they count up by one."""
        for name, length in zip(("q_positions", "k_positions"), self.shape[-2:], strict=True):
            start = self.shape[-1] - length if given["align"] == "end" else 0
            array = read_places(name, length if given[name] is None else given[name], start)
            if isinstance(array, np.ndarray) and array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu":
                is_consecutive = bool((np.diff(array) == 1).all())
                array = range(int(array[0]), int(array[-1]) + 1) if is_consecutive else array
            self.arrays.pop(name, None)
            if are_read:
                (self.arrays if isinstance(array, da.Array) else self.known)[name] = array

    def _fit_chunks(self, has_whole_heads: bool) -> dict[str, Chunks]:
        """Return the coarsest chunks along each axis that cut no chunk of q, k and v."""
        found: dict[str, list[list[int]]] = {axis: [] for axis in self.lengths if axis not in "DV"}
        for name in "qkv":
            array = self.arrays[name]
            for axis, own in zip(name_axes(LETTERS[name], array.ndim)[:-1], array.chunks, strict=False):
                if sum(own) == self.lengths[axis]:
                    found[axis].append(bounds_of(own))
        bounds = {axis: common_bounds(of_axis) for axis, of_axis in found.items()}
        if has_whole_heads:  # only their number tells the heads of some operators apart
            bounds.update({axis: [0, self.lengths[axis]] for axis in "hg"})
        # A chunk of heads is some whole groups, or a part of one group.
        group = self.lengths["h"] // self.lengths["g"] if self.lengths["g"] else 1
        both = common_bounds([bounds["h"], [group * place for place in bounds["g"]]])
        inner = [range(a - a % group + group, b, group) for a, b in itertools.pairwise(both) if a % group or b % group]
        bounds["h"] = common_bounds([both, *inner])
        of_chunk = [(a // group, -(-b // group)) for a, b in itertools.pairwise(bounds["h"])] or [(0, 0)]
        bounds["g"] = common_bounds(of_chunk)
        self.kv_chunk_of = [bounds["g"].index(first) for first, _ in of_chunk]
        """The chunk of kv heads that each chunk of heads reads."""
        return {axis: lengths_of(of_axis) for axis, of_axis in bounds.items()}

    @cached_property
    def token(self) -> str:
        """A name of the call: equal calls of equal arrays have equal tokens."""
        names = {name: source.array.name for name, source in self.sources.items()}
        ranges = [value for value in self.known.values() if isinstance(value, range)]
        return str(tokenize(self.run_pair.func.__name__, names, ranges, self.operators, self.options, self.chunks))

    # ---- one chunk after the other ----

    def rows(self) -> Iterator[At]:
        """Yield the chunks of queries."""
        for index in np.ndindex(*(len(self.chunks[axis]) for axis in self.rows_axes)):
            at = dict(zip(self.rows_axes, index, strict=True))
            yield {**at, "g": self.kv_chunk_of[at["h"]]}

    def span(self, axis: str, at: At) -> Span:
        """Return the range of a chunk along an axis."""
        return self.bounds[axis][at[axis]], self.bounds[axis][at[axis] + 1]

    def index_of_rows(self, at: At) -> Key:
        return tuple(at[axis] for axis in self.rows_axes)

    def keys_of(self, at: At) -> Sequence[int]:
        """Return the chunks of keys that a chunk of queries sees."""
        batch = tuple(at[axis] for axis in self.rows_axes[:-2])
        if batch not in self._visible:
            known = [self.known.get(name) for name in ("q_positions", "q_segments", "k_positions", "k_segments")]
            has_rows = any(isinstance(one, np.ndarray) and one.ndim > 1 for one in known)
            rows = itertools.product(*(range(*self.span(axis, at)) for axis in self.rows_axes[:-2] if has_rows))
            pairs = np.zeros((len(self.chunks["n"]), len(self.chunks["m"])), bool)
            for row in rows if self.low <= self.high else ():
                self._find_pairs(pairs, *(self._row_of(one, row) for one in known))
            self._visible[batch] = [np.flatnonzero(row).tolist() for row in pairs]
        return self._visible[batch][at["n"]]

    def _row_of(self, known: Known, row: tuple[int, ...]) -> Any:
        """Return the positions or segments (N,) of a row of the batch."""
        if not isinstance(known, np.ndarray) or known.ndim < 2:
            return known
        return np.broadcast_to(known, (*self.shape[:-3], known.shape[-1]))[row]

    def _find_pairs(
        self, pairs: Array, q_positions: Known, q_segments: Known, k_positions: Known, k_segments: Known
    ) -> None:
        """Set each of `pairs` (chunks of queries, chunks of keys) in which a query may see a key.

        A pair with both a query and a key of one segment is taken to have all distances between the least and the
        greatest one, so a few pairs are set although they are empty.
        """
        has_segments = q_segments is not None and k_segments is not None
        queries = runs_of(self.bounds["n"], q_positions, q_segments if has_segments else None)
        keys = runs_of(self.bounds["m"], k_positions, k_segments if has_segments else None)
        for segment in queries.keys() & keys.keys():
            (i, first, last), (j, left, right) = (np.array(one[segment]).T for one in (queries, keys))
            may_see = (right - first[:, None] >= self.low) & (left - last[:, None] <= self.high)
            pairs[np.ix_(i.astype(int), j.astype(int))] |= may_see

    # ---- chunks that a task reads ----

    def operand(self, name: str, at: At) -> range | Key | None:
        """Return the key of the chunk of an array, or a range that the task makes positions of; None without either."""
        if name in self.sources:
            return self.sources[name].key(at)
        if name not in self.known:
            return None
        return cast("range", self.known[name])[slice(*self.span("n" if name == "q_positions" else "m", at))]


def runs_of(bounds: Sequence[int], positions: Known, segments: Known) -> dict[int, list[tuple[float, ...]]]:
    """Return, for each segment, (chunk, least position, greatest position) of the chunks with a part of the segment.

    Without segments, a chunk is part of segment 0.
    """
    found: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for number, (a, b) in enumerate(itertools.pairwise(bounds)):
        if segments is None and not isinstance(positions, np.ndarray) and a < b:
            found[0].append((number, *((-inf, inf) if positions is None else (positions[a], positions[b - 1]))))
            continue
        places = np.zeros(b - a) if positions is None else np.asarray(positions[a:b])
        of_chunk = np.zeros(b - a, int) if segments is None else np.asarray(segments[a:b])
        order = np.argsort(of_chunk, kind="stable")
        names, firsts = np.unique(of_chunk[order], return_index=True)
        ends = (ufunc.reduceat(places[order], firsts).tolist() for ufunc in (np.minimum, np.maximum))
        for name, least, most in zip(names.tolist(), *ends, strict=True):
            found[name].append((number, -inf, inf) if positions is None else (number, least, most))
    return found
