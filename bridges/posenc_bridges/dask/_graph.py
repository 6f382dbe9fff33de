"""The graph of a call of attention: tasks of pairs of chunks, trees of sums and merges, and the arrays they make."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import dask.array as da
import numpy as np

import posenc

from ._arrays import Chunks, Dtype
from ._blocks import At, Key, Tasks, from_tasks
from ._call import Call
from ._operators import slices_of
from ._tasks import ARRAYS, add, item_of, take, whole_gradient

MERGED_TOGETHER = 4
"""Partial results that one task merges. More are fewer tasks, but a worker holds all of them at once."""
ADDED_IN_TURN = 16
"""Partial gradients that a node of a tree of sums adds, one after the other. More are fewer levels, and workers hold
one sum for each level, but a worker that fails loses more terms."""
Combine = Callable[..., object]


class Graph:
    """The tasks of a call.

    The name of a task is "function-kind-token", because dask's dashboard and progress bar group tasks by the words
    before the token.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.token = call, call.token
        self.tasks: Tasks = {}
        self._results: dict[str, tuple[Tasks, tuple[Chunks, ...], Dtype]] = {}

    def name(self, kind: str) -> str:
        return f"{self.call.function}-{kind}-{self.token}"

    def add(self, kind: str, index: Key, *task: object) -> Key:
        """Add a task that is no chunk of a result; return its key."""
        key = (self.name(kind), *index)
        self.tasks[key] = task
        return key

    def item(self, kind: str, index: Key, task: Key, number: int) -> Key:
        """Add a task that takes one of the results of another, so that the others need not be held or sent."""
        return self.add("item", (kind, *index), item_of, task, number)

    def reduce(
        self, kind: str, index: Key, parts: Sequence[Key], combine: Combine, leaves: Iterable[int] | None = None
    ) -> Key:
        """Add tasks that combine parts in their order, as a tree; return the key of the root.

        Part i is leaf i of the tree, or leaf ``leaves[i]``: then a tree that lacks some leaves has the shape of the
        tree with all leaves.
        """
        nodes = dict(zip(range(len(parts)) if leaves is None else leaves, parts, strict=True))
        fan_in = MERGED_TOGETHER if kind == "merge" else ADDED_IN_TURN
        level = 0
        while len(nodes) > 1:
            groups: dict[int, list[Key]] = {}
            for place, part in nodes.items():
                groups.setdefault(place // fan_in, []).append(part)
            nodes = {place: self._node(kind, (*index, level, place), group, combine) for place, group in groups.items()}
            level += 1
        (root,) = nodes.values()
        return root

    def _node(self, kind: str, index: Key, parts: Sequence[Key], combine: Combine) -> Key:
        """Add the tasks of a node of a tree; return the key of the last one.

        A merge takes all parts at once. A sum adds one part after the other, so a worker need not hold the parts.
        """
        if kind == "merge" and len(parts) > 1:
            return self.add(kind, index, combine, parts)
        total, *others = parts
        for number, part in enumerate(others):
            total = self.add(kind, (*index, number), combine, total, part)
        return total

    # ---- arguments of the tasks of a pair ----

    def pair(self, at: At, j: int | None, has_sink: bool, *others: object) -> Key:
        """Add the task of a pair, which reads keys of chunks, ranges, and the parts of the operators.

        Without keys, j is None, and k is the lengths of the batch axes, because q may lack axes of k and v. Exactly one
        pair of a chunk of queries has the sink.
        """
        index = *self.call.index_of_rows(at), -1 if j is None else j
        parts: list[object] = []
        names = ("q", "sink") if j is None else ARRAYS
        if j is not None:
            at = {**at, "m": j}
            if self.call.parts:
                place, name = self._place(at), self.name("bias")
                parts = [part.task(name, number, place, self.tasks) for number, part in enumerate(self.call.parts)]
        arrays: dict[str, object] = {
            name: self.call.operand(name, at) if name in names and (name != "sink" or has_sink) else None
            for name in ARRAYS
        }
        if j is None:
            batch = self.call.place({axis: at[axis] for axis in self.call.rows_axes[:-2]}).values()
            arrays["k"] = [last - first for first, last in batch]
        return self.add("pair", index, self.call.pair, *arrays.values(), parts, *others)

    def saved(self, at: At) -> list[object]:
        """Return what a pair of the backward pass reads besides: results, cotangents, and where the sink begins."""
        sink = self.call.sources.get("sink")
        start = [one.start for one in slices_of(sink.axes, sink.array.shape, self._place(at))] if sink else []
        return [*(self.call.operand(name, at) for name in ("grad", "out", "lse", "grad_lse")), start]

    def _place(self, at: At) -> dict[str, tuple[int, int]]:
        return self.call.place({axis: number for axis, number in at.items() if axis != "g"})

    # ---- results ----

    def result(self, kind: str, blocks: Tasks, chunks: tuple[Chunks, ...], dtype: Dtype) -> None:
        """Add an array whose chunks are the given tasks, by index."""
        self._results[kind] = blocks, chunks, dtype

    def arrays(self) -> dict[str, da.Array]:
        """Return all results by kind; they share the other tasks of the call."""
        shared = self.name("pair"), self.tasks, [source.array for source in self.call.sources.values()]
        return {kind: from_tasks(self.name(kind), *result, shared) for kind, result in self._results.items()}

    def gradient(self, name: str, parts: dict[Key, list[Key]]) -> None:
        """Add the gradient of an argument; a chunk without pairs is 0."""
        array = self.call.sources[name].array
        blocks: Tasks = {}
        for index in np.ndindex(*array.numblocks):
            if index in parts:
                blocks[index] = (take, self.reduce("sum", (name, "batch", *index), parts[index], add), array.dtype)
            else:
                lengths = [axis[i] for axis, i in zip(array.chunks, index, strict=True)]
                blocks[index] = (np.zeros, lengths, array.dtype)
        self.result(name, blocks, array.chunks, array.dtype)

    def parameters(self, rows: list[Key]) -> None:
        """Add the gradients of the arrays of all operators and of the sink, from those of chunks of queries."""
        arrays = [pair for part in self.call.parts for pair in zip(part.bias.arrays, part.bias.dtypes, strict=True)]
        arrays += [(one.array, one.array.dtype) for name, one in self.call.sources.items() if name == "sink"]
        root = self.reduce("sum", ("parameters",), rows, add) if rows and arrays else None
        for number, (array, dtype) in enumerate(arrays):
            if dtype is not None and hasattr(array, "shape"):  # not left out, and no operator that is a part of its own
                task = whole_gradient, root, number, list(array.shape), dtype
                chunks = tuple((length,) for length in array.shape)
                self.result(f"parameter-{number}", {(0,) * len(chunks): task}, chunks, dtype)

    def biases(self, arrays: dict[str, da.Array]) -> tuple[tuple[object, ...], da.Array | None]:
        """Return the gradients of all operators from the results, and that of the sink."""
        numbers = itertools.count()

        def gradients(part: posenc.Bias) -> tuple[object, ...]:
            without = [() if isinstance(one, tuple) else None for one in part.arrays]
            return part.arrays._make([arrays.get(f"parameter-{next(numbers)}", one) for one in without])

        of_parts = [tuple(gradients(part) for part in one.parts) for one in self.call.operators]
        of_bias = tuple(parts if len(parts) > 1 else parts[0] for parts in of_parts)
        return of_bias, arrays.get(f"parameter-{next(numbers)}")
