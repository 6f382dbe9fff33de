"""Attention over chunks of batch, heads, queries and keys: one task for each pair of chunks, merged as a tree."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import getitem

import dask.array as da
import numpy as np

import posenc
from posenc.typing import AttentionGradient

from ._arrays import Arguments, Chunks, Dtype, fail, takes_arguments_of
from ._blocks import At, Key, Tasks, from_tasks
from ._call import Call
from ._tasks import ARRAYS, add, merge_parts, take

__all__ = ["attention", "attention_vjp"]

Combine = Callable[..., object]
MERGED_TOGETHER = 4
"""Partial results that one task merges. More are fewer tasks, but a worker holds all of them at once."""
ADDED_IN_TURN = 16
"""Partial gradients that a node of a tree of sums adds, one after the other. More are fewer levels, and workers hold
one sum for each level, but a worker that fails loses more terms."""
PAIRS_IN_TURN = 4
"""Pairs of a chunk of queries of which each adds its gradient of q to that of the pair before. So dask takes the chunks
of queries one after the other, and each chunk of keys has one partial gradient for each level of its tree."""


@takes_arguments_of(posenc.attention)
def attention(arguments: Arguments) -> da.Array | tuple[da.Array, da.Array]:
    """Compute attention of dask arrays, as `posenc.attention` does, by one task for each pair of chunks.

    The partial results of a chunk of queries are merged as a tree by `posenc.merge_attention`.

    Parameters
    ----------
    q, k, v : dask array (..., H, N, D), (..., G, M, D) and (..., G, M, Dv)
        Split along any axis. The chunks of k and v are made equal, those of heads fit the groups of GQA, and the axis
        of channels is merged into one chunk. k and v may be `Quantized`.
    bias : Bias or sequence of Bias
        Operators of posenc. Of `dense`, `tupe` and `gated_distance` each task gets the part that its chunks read;
        `toeplitz` is sent whole. `cope` sums over later keys, so it needs keys of one chunk. `sandwich` merges heads
        into one chunk.
    keep, causal, align, window, q_positions, k_positions, q_segments, k_segments, scale, softcap, sink
        As in `posenc.attention`. `keep`, positions, segments and `sink` may be dask arrays.
    dropout, seed
        0 and None: dropout is a NotImplementedError.
    invariant : bool
        If True, the bits of a query's result depend only on the query, the keys that it sees, their indices, and the
        chunks of keys. They do not depend on the chunks of queries, heads and batch. With keys of one chunk they are
        those of `posenc.attention` with ``invariant=True``.
    precision : {"high", "low"}
        Ignored: partial results are float32 or wider.
    return_lse : bool
        If True, also return the natural logarithm of the softmax's denominator, which `attention_vjp` reads.

    Returns
    -------
    out : dask array (..., H, N, Dv)
        In the dtype of q; integers become float64.
    lse : dask array (..., H, N)
        Only if `return_lse`.

    Raises
    ------
    TypeError, ValueError
        As `posenc.attention`; q, k or v that is not a dask array; `cope` over keys of several chunks.
    NotImplementedError
        `dropout` is not 0.

    Notes
    -----
    A pair of chunks has no task if causality, the window or segments leave nothing to see; for that, positions and
    segments must be in memory, or positions left out. Partial results are float32 or wider. The result depends on the
    chunks by rounding only, and neither on the scheduler nor on the number of workers.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
    >>> q, k, v = (da.random.default_rng(0).random((8, 1000, 64), chunks=(8, 256, 64)) for _ in range(3))
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> out = posenc_bridges.dask.attention(q, k, v, bias=bias, causal=True, window=(255, 0))
    >>> whole = posenc.attention(*(x.compute() for x in (q, k, v)), bias=bias, causal=True, window=(255, 0))
    >>> bool(np.allclose(out, whole))
    True
    """
    call = Call("attention", arguments)
    graph = Graph(call)
    outs: Tasks = {}
    lses: Tasks = {}
    for at in call.rows():
        index = call.index_of_rows(at)
        keys: list[int | None] = [*call.keys_of(at)]
        if not keys or (call.pair.invariant and "sink" in call.arrays and keys[0] != 0):
            keys = [None, *keys]  # an invariant sink is in leaf 0 of every tree
        parts = [graph.pair(at, j, j == keys[0]) for j in keys]
        merged = graph.reduce("merge", index, parts, merge_parts, [j or 0 for j in keys])
        outs[(*index, 0)] = (take, (getitem, merged, 0), call.dtype)
        lses[index] = (getitem, merged, 1)
    chunks = tuple(call.chunks[axis] for axis in call.rows_axes)
    graph.result("out", outs, (*chunks, (call.lengths["V"],)), call.dtype)
    graph.result("lse", lses, chunks, call.work_dtype)
    arrays = graph.arrays()
    return (arrays["out"], arrays["lse"]) if arguments["return_lse"] else arrays["out"]


@takes_arguments_of(posenc.attention_vjp)
def attention_vjp(arguments: Arguments) -> AttentionGradient:
    """Return the gradient of `attention`, as `posenc.attention_vjp` does, by one task for each pair of chunks.

    Each task reads the merged out and lse of its queries. The gradients of a chunk are summed as a tree.

    Parameters
    ----------
    grad : dask array (..., H, N, Dv)
        Cotangent of the result.
    q, k, v : dask arrays
        Arguments of `attention`.
    out, lse : dask arrays
        Both results of `attention` with ``return_lse=True``. Persist them, or the forward pass is computed again.
    grad_lse : array or dask array (..., H, N), optional
        Cotangent of lse.
    bias, keep, causal, align, window, q_positions, k_positions, q_segments, k_segments, scale, softcap, sink
        The options that were passed to `attention`.
    dropout, seed
        0 and None.
    invariant, precision
        Ignored: chunks are computed in float32 or float64.

    Returns
    -------
    AttentionGradient
        Dask arrays. ``q``, ``k`` and ``v`` are in the shapes and dtypes of their arguments, ``bias`` has one NamedTuple
        per operator, and ``sink`` is None without a sink. The gradient of an array of an operator has
        its axes of heads, queries and keys in the chunks of the call.

    Raises
    ------
    TypeError, ValueError
        As `attention`; also if `grad`, `out`, `lse` or `grad_lse` has another shape.

    Examples
    --------
    >>> import dask, dask.array as da, posenc, posenc_bridges.dask
    >>> q, k, v = (da.random.default_rng(0).random((2, 100, 8), chunks=(2, 30, 8)) for _ in range(3))
    >>> bias = posenc.alibi([0.5, 0.25])
    >>> out, lse = posenc_bridges.dask.attention(q, k, v, bias=bias, causal=True, return_lse=True)
    >>> options = dict(out=out, lse=lse, bias=bias, causal=True)
    >>> gradient = posenc_bridges.dask.attention_vjp(da.ones_like(out), q, k, v, **options)
    >>> d_q, d_slopes = dask.compute(gradient.q, gradient.bias[0].slopes)  # together: tasks that both need run once
    >>> d_q.shape, d_slopes.shape
    ((2, 100, 8), (2,))
    """
    for name in ("out", "lse"):
        if arguments[name] is None:
            fail(TypeError, f"{name} is None", "a result of attention with return_lse=True")
    call = Call("attention_vjp", arguments)
    graph = Graph(call)
    # the keys of the partial gradients of each chunk of each array
    parts: dict[str, defaultdict[Key, list[Key]]] = defaultdict(lambda: defaultdict(list))
    for at in call.rows():
        index, sums = call.index_of_rows(at), list[Key]()
        keys: list[int | None] = [*call.keys_of(at)] or [None] * ("sink" in call.arrays)
        for number, j in enumerate(keys):
            saved = [call.operand(name, at) for name in ("grad", "out", "lse", "grad_lse")]
            task = graph.pair(at, j, j == keys[0], *saved, sums.pop() if number % PAIRS_IN_TURN else None)
            sums.append(graph.item("row", task[1:], task, 0))
            if j is not None:
                both = (*call.index_of("k", {**at, "m": j}), *call.index_of("v", {**at, "m": j}))
                parts["kv"][both].append(graph.item("kv", task[1:], task, 1))
            for place, key in enumerate(call.pieces(at, j, j == keys[0])):
                if key is not None:
                    item = graph.item("parameter", (place, *task[1:]), task, 2 + place)
                    parts[f"parameter-{place}"][key[1:]].append(item)
        if sums:
            parts["q"][call.index_of("q", at)].append(graph.reduce("sum", ("row", *index), sums, add))
    axes = call.arrays["k"].ndim
    for both, of_keys in parts.pop("kv", {}).items():  # the batch axes of k and v may differ
        root = graph.reduce("sum", ("kv", *both), of_keys, add)
        parts["k"][both[:axes]].append(graph.item("k", both, root, 0))
        parts["v"][both[axes:]].append(graph.item("v", both, root, 1))
    for name in "qkv":
        graph.gradient(name, call.sources[name].array, call.arrays[name].dtype, parts[name])
    for number, (source, dtype) in enumerate(call.parameters()):
        if source is not None and dtype is not None:
            name = f"parameter-{number}"
            graph.gradient(name, source.array, dtype, parts[name])
    arrays = graph.arrays()
    return AttentionGradient(arrays["q"], arrays["k"], arrays["v"], *graph.biases(arrays))


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
        return self.add("item", (kind, *index), getitem, task, number)

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
            each = enumerate(self.call.parts)
            parts = [part.task(self.name("bias"), number, at, self.call, self.tasks) for number, part in each]
        arrays: dict[str, object] = {
            name: self.call.operand(name, at) if name in names and (name != "sink" or has_sink) else None
            for name in ARRAYS
        }
        if j is None:
            batch = self.call.place({axis: at[axis] for axis in self.call.rows_axes[:-2]}).values()
            arrays["k"] = [last - first for first, last in batch]
        return self.add("pair", index, self.call.pair, *arrays.values(), parts, *others)

    # ---- results ----

    def result(self, kind: str, blocks: Tasks, chunks: tuple[Chunks, ...], dtype: Dtype) -> None:
        """Add an array whose chunks are the given tasks, by index."""
        self._results[kind] = blocks, chunks, dtype

    def arrays(self) -> dict[str, da.Array]:
        """Return all results by kind; they share the other tasks of the call."""
        sources = [*self.call.sources.values(), *(one for part in self.call.parts for one in part.sources if one)]
        shared = self.name("pair"), self.tasks, [source.array for source in sources]
        return {kind: from_tasks(self.name(kind), *result, shared) for kind, result in self._results.items()}

    def gradient(self, name: str, array: da.Array, dtype: Dtype, parts: Mapping[Key, list[Key]]) -> None:
        """Add the gradient of an array, in its chunks, from partial gradients of each; a chunk without any is 0."""
        blocks: Tasks = {}
        for index in np.ndindex(*array.numblocks):
            if index in parts:
                blocks[index] = (take, self.reduce("sum", (name, "batch", *index), parts[index], add), dtype)
            else:
                blocks[index] = (np.zeros, [axis[i] for axis, i in zip(array.chunks, index, strict=True)], dtype)
        self.result(name, blocks, array.chunks, dtype)

    def biases(self, arrays: dict[str, da.Array]) -> tuple[tuple[object, ...], da.Array | None]:
        """Return the gradients of all operators from the results, and that of the sink."""
        numbers = itertools.count(1)

        def gradients(part: posenc.Bias) -> tuple[object, ...]:
            without = [() if isinstance(one, tuple) else None for one in part.arrays]
            named: tuple[object, ...] = part.arrays._make(
                [arrays.get(f"parameter-{next(numbers)}", one) for one in without]
            )
            return named

        of_parts = [tuple(gradients(part) for part in one.parts) for one in self.call.operators]
        of_bias = tuple(parts if len(parts) > 1 else parts[0] for parts in of_parts)
        return of_bias, arrays.get("parameter-0")
