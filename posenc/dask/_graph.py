"""The graph of a call of attention: tasks of pairs of chunks, trees of sums and merges, and the arrays they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from posenc._core_api.arguments import as_data
from posenc.attention.backward import assemble

from ._arrays import Chunks, DaskArray, Key, Tasks, from_blocks
from ._chunks import At, ChunkedCall
from ._tasks import add, add_pieces, item_of, take, whole_gradient, zeros

MERGED_TOGETHER = 4
"""Partial results that one task merges. More are fewer tasks, but a worker holds all of them at once."""
ADDED_IN_TURN = 16
"""Partial gradients that a node of a tree of sums adds, one after the other. More are fewer levels, and workers hold
one sum for each level, but a worker that fails loses more terms."""


class Graph:
    """The tasks of a call.

    The name of a task is "function-kind-token", because dask's dashboard and progress bar group tasks by the words
    before the token.
    """

    def __init__(self, call: ChunkedCall) -> None:
        self.call, self.inputs = call, call.inputs
        self.token = call.token
        self.tasks: Tasks = {}

    def name(self, kind: str) -> str:
        return f"{self.inputs.function}-{kind}-{self.token}"

    def add(self, kind: str, index: Key, task: tuple[Any, ...]) -> Key:
        """Add a task that is no chunk of a result; return its key."""
        key = (self.name(kind), *index)
        self.tasks[key] = task
        return key

    def item(self, kind: str, index: Key, task: Key, number: int) -> Key:
        """Add a task that takes one of the results of another, so that the others need not be held or sent."""
        return self.add("item", (kind, *index), (item_of, task, number))

    def reduce(
        self,
        kind: str,
        index: Key,
        parts: Sequence[Key],
        combine: Callable[..., Any],
        leaves: Iterable[int] | None = None,
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

    def _node(self, kind: str, index: Key, parts: Sequence[Key], combine: Callable[..., Any]) -> Key:
        """Add the tasks of a node of a tree; return the key of the last one.

        A merge takes all parts at once. A sum adds one part after the other, so a worker need not hold the parts.
        """
        if kind == "merge" and len(parts) > 1:
            return self.add(kind, index, (combine, parts))
        total, *others = parts
        for number, part in enumerate(others):
            total = self.add(kind, (*index, number), (combine, [total, part]))
        return total

    # ---- arguments of the tasks of a pair ----

    def operands(self, at: At, j: int | None, has_sink: bool) -> list[Any]:
        """Return the arguments of the task of a pair: keys of chunks, ranges and None.

        Without keys, j is None. Exactly one pair of a chunk of queries has the sink.
        """
        call = self.call
        if j is None:
            return [call.key("q", at), *(None,) * 9, call.key("sink", at), []]
        at = {**at, "m": j}
        place = call.place(at)
        parts = [part.task(self.name("bias"), i, place, self.tasks) for i, part in enumerate(self.inputs.parts)]
        return [
            *(call.key(name, at) for name in ("q", "k", "v", "k_scale", "v_scale", "keep")),
            *(call.positions(name, at) for name in ("q_positions", "k_positions")),
            *(call.key(name, at) for name in ("q_segments", "k_segments")),
            call.key("sink", at) if has_sink else None, parts,
        ]  # fmt: skip

    def saved(self, at: At) -> list[Any]:
        """Return the rest of the arguments of a pair in the backward pass."""
        call = self.call
        array = call.cut_arrays.get("sink")
        start: list[int] = []
        if array is not None:
            axes = (*call.axes_of_batch, "h")[-array.ndim :]
            start = [
                call.bounds[axis][at[axis]] if length != 1 else 0
                for axis, length in zip(axes, array.shape, strict=True)
            ]
        return [*(call.key(name, at) for name in ("grad", "out", "lse", "grad_lse")), start]

    # ---- results ----

    def result(self, kind: str, blocks: Tasks, chunks: tuple[Chunks, ...], dtype: Any) -> DaskArray:
        """Return the array whose chunks are the given tasks, by index; all results share the other tasks of the call.

        All tasks of the call must have been added.
        """
        shared, reads = (self.name("pair"), self.tasks), list(self.call.cut_arrays.values())
        return from_blocks(self.name(kind), blocks, chunks, dtype, shared=shared, reads=reads)

    def blocks_of(self, argument: str, gradients: dict[Key, list[Key]]) -> Tasks:
        """Return the tasks of the chunks of a gradient; a chunk without pairs is 0."""
        array, dtype = self._argument(argument)
        blocks: Tasks = {}
        for index in np.ndindex(*array.numblocks):
            if index in gradients:
                root = self.reduce("sum", (argument, "batch", *index), gradients[index], add)
                blocks[index] = (take, root, None, dtype)
            else:
                shape = [axis[i] for axis, i in zip(array.chunks, index, strict=True)]
                blocks[index] = (zeros, shape, dtype)
        return blocks

    def gradient(self, argument: str, blocks: Tasks) -> DaskArray:
        array, dtype = self._argument(argument)
        return self.result(argument, blocks, array.chunks, dtype)

    def _argument(self, name: str) -> tuple[DaskArray, np.dtype[Any]]:
        """Return an array of the call, and the dtype of its gradient."""
        array = self.call.cut_arrays[name]
        return array, as_data(self.inputs.function, name, np.zeros((), array.dtype)).dtype

    def blocks_of_parameters(self, pairs: list[Key]) -> list[Any]:
        """Return, for each array of each part, the task of its gradient; that of the sink comes last."""
        tasks: list[Any] = []
        arrays = [(array, dtype) for part in self.inputs.parts
                  for array, dtype in zip(part.bias.arrays, part.bias.dtypes, strict=True)]  # fmt: skip
        if "sink" in self.call.cut_arrays:
            arrays.append(self._argument("sink"))
        root = self.reduce("sum", ("parameters",), pairs, add_pieces) if pairs and arrays else None
        for number, (array, dtype) in enumerate(arrays):
            if not hasattr(array, "shape"):  # left out, or an operator that is a part of its own
                tasks.append(array if array == () else None)
                continue
            shape = list(array.shape)
            task = (zeros, shape, dtype) if root is None else (whole_gradient, root, number, shape, dtype)
            tasks.append((task, array.shape, dtype))
        return tasks

    def gradients_of_parameters(self, tasks: list[Any]) -> tuple[tuple[Any, ...], DaskArray | None]:
        """Return the gradients of all operators, and that of the sink."""
        arrays: list[Any] = []
        for number, one in enumerate(tasks):
            if one is None or one == ():
                arrays.append(one)
                continue
            task, shape, dtype = one
            block = {(0,) * len(shape): task}
            arrays.append(self.result(f"parameter-{number}", block, tuple((length,) for length in shape), dtype))
        sink = arrays.pop() if "sink" in self.call.cut_arrays else None
        rest = iter(arrays)
        gradients = [part.bias.arrays._make(next(rest) for _ in part.bias.arrays) for part in self.inputs.parts]
        return assemble(self.inputs.operators, gradients), sink
