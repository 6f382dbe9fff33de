"""Attention over chunks of batch, heads, queries and keys: one task for each pair of chunks, merged as a tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, TypeAlias

import dask.array as da
import numpy.typing as npt

from posenc import Bias
from posenc._core_api.arguments import door
from posenc.interop import AttentionGradient

from ._blocks import Key, Tasks
from ._call import Call
from ._graph import Graph
from ._quantized import Quantized
from ._tasks import add, item_of, merge_parts, take

__all__ = ["attention", "attention_vjp"]

PAIRS_IN_TURN = 4
"""Pairs of a chunk of queries of which each adds its gradient of q to that of the pair before. So dask takes the chunks
of queries one after the other, and each chunk of keys has one partial gradient for each level of its tree."""
Operators: TypeAlias = Bias | Sequence[Bias] | None
Lazy: TypeAlias = npt.ArrayLike | da.Array | None
Align: TypeAlias = Literal["start", "end"] | None
Precision: TypeAlias = Literal["high", "low"]
Window: TypeAlias = tuple[float | None, float | None] | None


@door
def attention(
    q: da.Array, k: da.Array | Quantized, v: da.Array | Quantized, *, bias: Operators = (), keep: Lazy = None,
    causal: bool = False, align: Align = None, window: Window = None, q_positions: Lazy = None,
    k_positions: Lazy = None, q_segments: Lazy = None, k_segments: Lazy = None, scale: float | None = None,
    softcap: float | None = None, sink: Lazy = None, dropout: float = 0.0, seed: int | None = None,
    invariant: bool = False, precision: Precision = "high", return_lse: bool = False,
) -> da.Array | tuple[da.Array, da.Array]:  # fmt: skip
    """Compute attention of dask arrays, as `posenc.attention` does, by one task for each pair of chunks.

    The partial results of a chunk of queries are merged as a tree by `posenc.merge_attention`.

    Parameters
    ----------
    q, k, v : dask array (..., H, N, D), (..., G, M, D) and (..., G, M, Dv)
        Split along any axis. The chunks of k and v are made equal, those of heads fit the groups of GQA, and the axis
        of channels is merged into one chunk. k and v may be `Quantized`.
    bias : Bias or sequence of Bias
        Operators of posenc. Of `toeplitz`, `dense`, `tupe` and `gated_distance` each task gets the part that its chunks
        read. `cope` sums over later keys, so it needs keys of one chunk. `sandwich` merges heads into one chunk.
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
    call = Call("attention", locals())
    graph = Graph(call)
    outs: Tasks = {}
    lses: Tasks = {}
    for at in call.rows():
        index = call.index_of_rows(at)
        keys: list[int | None] = [*call.keys_of(at)]
        if not keys or (invariant and sink is not None and keys[0] != 0):
            keys = [None, *keys]  # an invariant sink is in leaf 0 of every tree
        parts = [graph.pair(at, j, j == keys[0]) for j in keys]
        merged = graph.reduce("merge", index, parts, merge_parts, [j or 0 for j in keys])
        outs[(*index, 0)] = (take, (item_of, merged, 0), call.dtype)
        lses[index] = (item_of, merged, 1)
    chunks = tuple(call.chunks[axis] for axis in call.rows_axes)
    graph.result("out", outs, (*chunks, (call.lengths["V"],)), call.dtype)
    graph.result("lse", lses, chunks, call.work_dtype)
    arrays = graph.arrays()
    return (arrays["out"], arrays["lse"]) if return_lse else arrays["out"]


@door
def attention_vjp(
    grad: da.Array, q: da.Array, k: da.Array, v: da.Array, *, out: da.Array, lse: da.Array, grad_lse: Lazy = None,
    bias: Operators = (), keep: Lazy = None, causal: bool = False, align: Align = None, window: Window = None,
    q_positions: Lazy = None, k_positions: Lazy = None, q_segments: Lazy = None, k_segments: Lazy = None,
    scale: float | None = None, softcap: float | None = None, sink: Lazy = None, dropout: float = 0.0,
    seed: int | None = None, invariant: bool = False, precision: Precision = "high",
) -> AttentionGradient:  # fmt: skip
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
        per operator, and ``sink`` is None without a sink. The gradient of an array of an operator is one chunk.

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
    call = Call("attention_vjp", locals())
    graph = Graph(call)
    of_queries, of_keys, of_k, of_v = (defaultdict[Key, list[Key]](list) for _ in range(4))
    of_parameters: list[Key] = []
    for at in call.rows():
        index, sums = call.index_of_rows(at), list[Key]()
        keys: list[int | None] = [*call.keys_of(at)] or [None] * (sink is not None)
        for number, j in enumerate(keys):
            earlier = sums.pop() if number % PAIRS_IN_TURN else None
            task = graph.pair(at, j, j == keys[0], *graph.saved(at), earlier)
            sums.append(graph.item("row", task[1:], task, 0))
            if j is not None:
                both = (*call.index_of("k", {**at, "m": j}), *call.index_of("v", {**at, "m": j}))
                of_keys[both].append(graph.item("kv", task[1:], task, 1))
        if sums:
            root = graph.reduce("sum", ("row", *index), sums, add)
            of_queries[call.index_of("q", at)].append(graph.item("q", index, root, 0))
            of_parameters.append(graph.item("parameters", index, root, 1))
    axes = call.arrays["k"].ndim
    for both, parts in of_keys.items():  # the batch axes of k and v may differ
        root = graph.reduce("sum", ("kv", *both), parts, add)
        of_k[both[:axes]].append(graph.item("k", both, root, 0))
        of_v[both[axes:]].append(graph.item("v", both, root, 1))
    for name, of_name in (("q", of_queries), ("k", of_k), ("v", of_v)):
        graph.gradient(name, of_name)
    graph.parameters(of_parameters)
    arrays = graph.arrays()
    return AttentionGradient(arrays["q"], arrays["k"], arrays["v"], *graph.biases(arrays))
