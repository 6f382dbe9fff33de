"""Attention over chunks of batch, heads, queries and keys: one task for each pair of chunks, merged as a tree."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import getitem
from typing import Any

import dask.array as da
import numpy as np

import posenc
from posenc.typing import AttentionGradient

from . import _tasks
from ._arrays import Arguments, Dtype, fail, twin_of
from ._blocks import At, Chunks, Key, Source, Tasks, from_tasks
from ._call import GRADIENT, Call

__all__ = ["attention", "attention_vjp"]

MERGED_TOGETHER = 4
"""Partial results that one task merges. More are fewer tasks, but a worker holds all of them at once."""
ADDED_IN_TURN = 16
"""Partial gradients that a node of a tree of sums adds, one after the other. More are fewer levels, and workers hold
one sum for each level, but a worker that fails loses more terms."""
PAIRS_IN_TURN = 4
"""Pairs of a chunk of queries of which each adds its gradient of q to that of the pair before. So dask takes the chunks
of queries one after the other, and each chunk of keys has one partial gradient for each level of its tree."""


@twin_of(posenc.attention)
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
    graph = Graph(_tasks.attention, arguments)
    outs, lses = Tasks(), Tasks()
    for at in graph.rows():
        index = graph.index_of_rows(at)
        keys: list[int | None] = [*graph.keys_of(at)]
        if not keys or (arguments["invariant"] and "sink" in graph.arrays and keys[0] != 0):
            keys = [None, *keys]  # an invariant sink is in leaf 0 of every tree
        parts = [graph.pair(at, j, j == keys[0])[0] for j in keys]
        merged = graph.reduce("merge", index, parts, [j or 0 for j in keys])
        outs[(*index, 0)] = (_tasks.take, (getitem, merged, 0), graph.dtype)
        lses[index] = (getitem, merged, 1)
    chunks = tuple(graph.chunks[axis] for axis in graph.rows_axes)
    out = graph.result("out", outs, (*chunks, (graph.lengths["V"],)), graph.dtype)
    lse = graph.result("lse", lses, chunks, graph.work_dtype)
    return (out, lse) if arguments["return_lse"] else out


@twin_of(posenc.attention_vjp)
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
    graph = Graph(_tasks.attention_vjp, arguments)
    # the keys of the partial gradients of each chunk of each array
    parts: dict[str, defaultdict[Key, list[Key]]] = defaultdict(lambda: defaultdict(list))
    axes = graph.arrays["k"].ndim
    for at in graph.rows():
        index, sums = graph.index_of_rows(at), list[Key]()
        keys: list[int | None] = [*graph.keys_of(at)] or [None] * ("sink" in graph.arrays)
        saved = [graph.operand(name, at) for name in GRADIENT]
        for number, j in enumerate(keys):
            earlier = sums.pop() if number % PAIRS_IN_TURN else None
            task, pieces = graph.pair(at, j, j == keys[0], *saved, earlier)
            sums.append(graph.item("row", task[1:], task, 0))
            if j is not None:
                k, v = (graph.sources[name].key({**at, "m": j})[1:] for name in "kv")
                parts["kv"][(*k, *v)].append(graph.item("kv", task[1:], task, 1))
            for place, key in enumerate(pieces):
                if key is not None:
                    item = graph.item("parameter", (place, *task[1:]), task, 2 + place)
                    parts[f"parameter-{place}"][key[1:]].append(item)
        if sums:
            parts["q"][graph.sources["q"].key(at)[1:]].append(graph.reduce("sum", ("row", *index), sums))
    for both, of_keys in parts.pop("kv", {}).items():  # the batch axes of k and v may differ
        root = graph.reduce("sum", ("kv", *both), of_keys)
        parts["k"][both[:axes]].append(graph.item("k", both, root, 0))
        parts["v"][both[axes:]].append(graph.item("v", both, root, 1))
    totals = {
        name: {at: graph.reduce("sum", (name, "batch", *at), keys) for at, keys in of_name.items()}
        for name, of_name in parts.items()
    }

    def gradient(name: str, source: Source | None, dtype: Dtype | None) -> Any:
        """Return the gradient of an array, in its chunks; a chunk that no pair reads has the gradient 0."""
        if source is None or dtype is None:
            return None
        array, found, blocks = source.array, totals.get(name, {}), Tasks()
        for at in np.ndindex(*array.numblocks):
            shape = [axis[i] for axis, i in zip(array.chunks, at, strict=True)]
            blocks[at] = (_tasks.take, found[at], dtype) if at in found else (np.zeros, shape, dtype)
        return graph.result(name, blocks, array.chunks, dtype)

    grad_q, grad_k, grad_v = (gradient(name, graph.sources[name], graph.arrays[name].dtype) for name in "qkv")
    names = (f"parameter-{number}" for number in itertools.count())
    sink = graph.sources.get("sink")
    of_sink = gradient(next(names), sink, sink and sink.array.dtype)
    of_parts = []
    for bias, _, sources in graph.parts:
        fields = zip(bias.arrays, sources, bias.dtypes, names, strict=False)
        of_parts.append(
            bias.arrays._make([() if isinstance(a, tuple) else gradient(n, *rest) for a, *rest, n in fields])
        )
    parts_left = iter(of_parts)
    of_bias = [tuple(itertools.islice(parts_left, len(one.parts))) for one in graph.operators]
    return AttentionGradient(grad_q, grad_k, grad_v, tuple(one if len(one) > 1 else one[0] for one in of_bias), of_sink)


class Graph(Call):
    """A call and its tasks.

    The name of a task is "function-kind-token", because dask's dashboard and progress bar group tasks by the words
    before the token.
    """

    def __init__(self, task: Callable[..., object], given: Arguments) -> None:
        super().__init__(task, given)
        self.tasks = Tasks()

    def name(self, kind: str) -> str:
        return f"{self.run_pair.func.__name__}-{kind}-{self.token}"

    def add(self, kind: str, index: Key, *task: object) -> Key:
        """Add a task that is no chunk of a result; return its key."""
        key = (self.name(kind), *index)
        self.tasks[key] = task
        return key

    def item(self, kind: str, index: Key, task: Key, number: int) -> Key:
        """Add a task that takes one of the results of another, so that the others need not be held or sent."""
        return self.add("item", (kind, *index), getitem, task, number)

    def reduce(self, kind: str, index: Key, parts: Sequence[Key], leaves: Iterable[int] | None = None) -> Key:
        """Add tasks that merge or sum parts in their order, as a tree; return the key of the root.

        Part i is leaf i of the tree, or leaf ``leaves[i]``: then a tree that lacks some leaves has the shape of the
        tree with all leaves.
        """
        nodes = dict(zip(range(len(parts)) if leaves is None else leaves, parts, strict=True))
        fan_in, level = MERGED_TOGETHER if kind == "merge" else ADDED_IN_TURN, 0
        while len(nodes) > 1:
            groups: dict[int, list[Key]] = {}
            for place, part in nodes.items():
                groups.setdefault(place // fan_in, []).append(part)
            nodes = {place: self._node(kind, (*index, level, place), group) for place, group in groups.items()}
            level += 1
        (root,) = nodes.values()
        return root

    def _node(self, kind: str, index: Key, parts: Sequence[Key]) -> Key:
        """Add the tasks of a node of a tree; return the key of the last one.

        A merge takes all parts at once. A sum adds one part after the other, so a worker need not hold the parts.
        """
        if kind == "merge" and len(parts) > 1:
            return self.add(kind, index, _tasks.merge_parts, parts)
        total, *others = parts
        for number, part in enumerate(others):
            total = self.add(kind, (*index, number), _tasks.add, total, part)
        return total

    def pair(self, at: At, j: int | None, has_sink: bool, *others: object) -> tuple[Key, list[Key | None]]:
        """Add the task of a pair, which reads keys of chunks, ranges, and the parts of the operators.

        Return its key, and the keys of the chunks of sink and of the arrays of the operators; None for one that the
        pair does not read. Without keys, j is None, and k and v are their shapes, because q may lack axes of them.
        Exactly one pair of a chunk of queries has the sink.
        """
        at = at if j is None else {**at, "m": j}
        names = {*(_tasks.ARRAYS if j is not None else ("q", "sink"))} - {"" if has_sink else "sink"}
        arrays: dict[str, Any] = {name: self.operand(name, at) if name in names else None for name in _tasks.ARRAYS}
        parts: list[list[Any]] = []
        if j is None:
            batch = [last - first for first, last in (self.span(axis, at) for axis in self.rows_axes[:-2])]
            arrays["k"], arrays["v"] = ([*batch, 1, 0, self.lengths[axis]] for axis in "DV")
        else:
            spans = self.span("n", at), self.span("m", at)
            for number, (_, operator, sources) in enumerate(self.parts):
                node = self.name("bias"), number
                self.tasks.setdefault(node, operator)
                pairs = zip(sources, operator.reads(*spans), strict=True)
                keys = [source.key(at) if source and is_read else None for source, is_read in pairs]
                parts.append([node, keys, operator.distances(self.lengths["n"], *spans)])
        index = *self.index_of_rows(at), -1 if j is None else j
        pieces = [arrays["sink"], *(key for _, keys, _ in parts for key in keys[:-2])]
        return self.add("pair", index, self.run_pair, *arrays.values(), parts, *others), pieces

    def result(self, kind: str, blocks: Tasks, chunks: tuple[Chunks, ...], dtype: Dtype) -> da.Array:
        """Return the array whose chunks are the given tasks, by index. All results of a call share the other tasks."""
        sources = [*self.sources.values(), *(one for *_, given in self.parts for one in given if one)]
        shared = self.name("pair"), self.tasks, [source.array for source in sources]
        return from_tasks(self.name(kind), blocks, chunks, dtype, shared)
