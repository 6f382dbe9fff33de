"""Attention over chunks of batch, heads, queries and keys: one task for each pair of chunks, merged as a tree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

import posenc
from posenc._core_api.arguments import (
    as_data,
    broadcasts_to,
    check_choice,
    compute_dtype,
    fail,
    fail_value,
)
from posenc.attention import AttentionGradient
from posenc.attention._backward import _assemble
from posenc.attention._inputs import (
    INFINITY,
    _check_batch,
    _check_shapes,
    _default_scale,
    _read_call_positions,
    _read_operators,
    _read_segments_of,
    _read_softcap,
    _read_visible_range,
)
from posenc.bias._positions import _is_consecutive, _read_side
from posenc.bias.operator import Bias

from ._arrays import (
    Chunks,
    DaskArray,
    Key,
    Source,
    as_chunked,
    bounds_of,
    check_known,
    common_bounds,
    cut,
    is_dask,
    lengths_of,
    read_array,
)
from ._operators import Operator, Place
from ._tasks import Backward, Forward, add, add_pairs, add_pieces, item_of, merge_parts, take, whole_gradient, zeros
from ._visible import Side, visible_pairs

__all__ = ["attention", "attention_vjp"]

FAN_IN = 4
"""Partial results that one task merges or sums. More are fewer tasks, but a worker holds all of them at once."""

At = dict[str, int]
"""The number of a chunk along each axis of the call."""


def attention(
    q: DaskArray,
    k: DaskArray,
    v: DaskArray,
    *,
    bias: Bias | Sequence[Bias] = (),
    keep: npt.ArrayLike | DaskArray | None = None,
    causal: bool = False,
    align: Literal["start", "end"] | None = None,
    window: tuple[float | None, float | None] | None = None,
    q_positions: npt.ArrayLike | DaskArray | None = None,
    k_positions: npt.ArrayLike | DaskArray | None = None,
    q_segments: npt.ArrayLike | DaskArray | None = None,
    k_segments: npt.ArrayLike | DaskArray | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | DaskArray | None = None,
    return_lse: bool = False,
) -> DaskArray | tuple[DaskArray, DaskArray]:
    """Compute attention of dask arrays, as `posenc.attention` does, by one task for each pair of chunks.

    The partial results of a chunk of queries are merged as a tree by `posenc.merge_attention`.

    Parameters
    ----------
    q, k, v : dask array (..., H, N, D), (..., G, M, D) and (..., G, M, Dv)
        Split along any axis. The chunks of k and v are made equal, those of heads fit the groups of GQA, and the axis
        of channels is merged into one chunk.
    bias : Bias or sequence of Bias
        Operators of posenc. Of `toeplitz`, `dense` and `tupe` each task gets the part that its chunks read. `cope`
        sums over later keys, so it needs keys of one chunk. `sandwich` merges heads into one chunk.
    keep, causal, align, window, q_positions, k_positions, q_segments, k_segments, scale, softcap, sink
        As in `posenc.attention`. `keep`, positions, segments and `sink` may be dask arrays.
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

    Notes
    -----
    A pair of chunks has no task if causality, the window or segments leave nothing to see; for that, positions and
    segments must be in memory, or positions left out. Partial results are float32 or wider. The result depends on the
    chunks by rounding only, and neither on the scheduler nor on the number of workers.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> q, k, v = (da.random.default_rng(0).random((8, 1000, 64), chunks=(8, 256, 64)) for _ in range(3))
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> out = posenc.dask.attention(q, k, v, bias=bias, causal=True, window=(255, 0))
    >>> whole = posenc.attention(*(x.compute() for x in (q, k, v)), bias=bias, causal=True, window=(255, 0))
    >>> bool(np.allclose(out, whole))
    True
    """
    call = _Call(
        "attention", q, k, v, bias=bias, keep=keep, causal=causal, align=align, window=window, q_positions=q_positions,
        k_positions=k_positions, q_segments=q_segments, k_segments=k_segments, scale=scale, softcap=softcap, sink=sink,
    )  # fmt: skip
    name, layer = call.name, call.layer
    outs, lses = {}, {}
    forward = Forward(*call.options)
    for at in call.rows():
        index = call.index_of_rows(at)
        parts = []
        for j in call.keys_of(at):
            key = (f"{name}-part", *index, -1 if j is None else j)
            layer[key] = (forward, *call.operands(at, j))
            parts.append(key)
        merged = _reduce(layer, f"{name}-merge", index, parts, merge_parts)
        outs[(f"{name}-out", *index, 0)] = (take, merged, 0, call.dtype)
        lses[(f"{name}-lse", *index)] = (take, merged, 1, None)
    out = call.result(f"{name}-out", outs, (*call.chunks_of_rows, (call.value_width,)), call.dtype)
    if not return_lse:
        return out
    return out, call.result(f"{name}-lse", lses, call.chunks_of_rows, call.work_dtype)


def attention_vjp(
    grad: DaskArray,
    q: DaskArray,
    k: DaskArray,
    v: DaskArray,
    *,
    out: DaskArray,
    lse: DaskArray,
    grad_lse: npt.ArrayLike | DaskArray | None = None,
    bias: Bias | Sequence[Bias] = (),
    keep: npt.ArrayLike | DaskArray | None = None,
    causal: bool = False,
    align: Literal["start", "end"] | None = None,
    window: tuple[float | None, float | None] | None = None,
    q_positions: npt.ArrayLike | DaskArray | None = None,
    k_positions: npt.ArrayLike | DaskArray | None = None,
    q_segments: npt.ArrayLike | DaskArray | None = None,
    k_segments: npt.ArrayLike | DaskArray | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | DaskArray | None = None,
) -> AttentionGradient:
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
    >>> import dask, dask.array as da, posenc, posenc.dask
    >>> q, k, v = (da.random.default_rng(0).random((2, 100, 8), chunks=(2, 30, 8)) for _ in range(3))
    >>> bias = posenc.alibi([0.5, 0.25])
    >>> out, lse = posenc.dask.attention(q, k, v, bias=bias, causal=True, return_lse=True)
    >>> gradient = posenc.dask.attention_vjp(da.ones_like(out), q, k, v, out=out, lse=lse, bias=bias, causal=True)
    >>> d_q, d_slopes = dask.compute(gradient.q, gradient.bias[0].slopes)  # together: tasks that both need run once
    >>> d_q.shape, d_slopes.shape
    ((2, 100, 8), (2,))
    """
    call = _Call(
        "attention_vjp", q, k, v, bias=bias, keep=keep, causal=causal, align=align, window=window,
        q_positions=q_positions, k_positions=k_positions, q_segments=q_segments, k_segments=k_segments, scale=scale,
        softcap=softcap, sink=sink, saved={"grad": grad, "out": out, "lse": lse, "grad_lse": grad_lse},
    )  # fmt: skip
    name, layer = call.name, call.layer
    backward = Backward(*call.options)
    outputs = ("q", "kv", "parameters") if call.options[-1] else ("q", "kv")
    of_queries: dict[Key, list[Key]] = {}
    of_keys: dict[Key, list[Key]] = {}
    of_parameters: list[Key] = []
    for at in call.rows():
        index = call.index_of_rows(at)
        for j in call.keys_of(at, without_keys=call.sources["sink"] is not None):
            pair = (*index, -1 if j is None else j)
            layer[(f"{name}-pair", *pair)] = (backward, *call.operands(at, j), *call.saved(at))
            for number, output in enumerate(outputs):
                layer[(f"{name}-{output}-of-pair", *pair)] = (item_of, (f"{name}-pair", *pair), number)
            of_parameters.append((f"{name}-parameters-of-pair", *pair))
            if j is not None:
                of_queries.setdefault(call.index_of("q", at), []).append((f"{name}-q-of-pair", *pair))
                both = (*call.index_of("k", {**at, "m": j}), *call.index_of("v", {**at, "m": j}))
                of_keys.setdefault(both, []).append((f"{name}-kv-of-pair", *pair))
    d_q = {index: [_reduce(layer, f"{name}-q", index, parts, add)] for index, parts in of_queries.items()}
    d_k: dict[Key, list[Key]] = {}
    d_v: dict[Key, list[Key]] = {}
    axes = call.cut_arrays["k"].ndim
    for both, parts in of_keys.items():  # the batch axes of k and v may differ
        root = _reduce(layer, f"{name}-kv", both, parts, add_pairs)
        for number, (gradient, index) in enumerate(((d_k, both[:axes]), (d_v, both[axes:]))):
            layer[(f"{name}-{'kv'[number]}-of-kv", *both)] = (item_of, root, number)
            gradient.setdefault(index, []).append((f"{name}-{'kv'[number]}-of-kv", *both))
    blocks = [call.blocks_of(argument, of) for argument, of in (("q", d_q), ("k", d_k), ("v", d_v))]
    parameters = call.blocks_of_parameters(of_parameters)
    of_q, of_k, of_v = (call.gradient(argument, one) for argument, one in zip("qkv", blocks, strict=True))
    of_bias, of_sink = call.gradients_of_parameters(parameters)
    return AttentionGradient(of_q, of_k, of_v, of_bias, of_sink)


# ---- the graph ----


def _reduce(layer: dict[Any, Any], name: str, index: Key, parts: list[Key], combine: Callable[..., Any]) -> Key:
    """Add tasks that combine parts in their order, as a tree; return the key of the root."""
    level = 0
    while len(parts) > 1:
        groups = [parts[first : first + FAN_IN] for first in range(0, len(parts), FAN_IN)]
        parts = []
        for number, group in enumerate(groups):
            key = (f"{name}-{level}", *index, number)
            if len(group) > 1:
                layer[key] = (combine, group)
            parts.append(key if len(group) > 1 else group[0])
        level += 1
    return parts[0]


class _Call:
    """The checked arguments of a call in chunks that fit each other, and the graph that is made of them."""

    def __init__(
        self,
        function: str,
        q: Any,
        k: Any,
        v: Any,
        *,
        bias: Any,
        keep: Any,
        causal: Any,
        align: Any,
        window: Any,
        q_positions: Any,
        k_positions: Any,
        q_segments: Any,
        k_segments: Any,
        scale: Any,
        softcap: Any,
        sink: Any,
        saved: dict[str, Any] | None = None,
    ) -> None:
        self.function = function
        arrays = {name: self._read_heads(name, array) for name, array in (("q", q), ("k", k), ("v", v))}
        batch = _check_shapes(function, *arrays.values())
        heads, n, width = arrays["q"].shape[-3:]
        _kv_heads, m, self.value_width = arrays["v"].shape[-3:]
        self.shape = (*batch, heads, n, m)
        self.dtype = as_data(function, "q", np.zeros((), arrays["q"].dtype)).dtype
        self.work_dtype = compute_dtype(np.zeros((), self.dtype))

        self.operators = _read_operators(function, bias)
        parts = tuple(part for operator in self.operators for part in operator._parts())
        self.parts = [Operator(part, n, m) for part in parts]
        for part in self.parts:
            part.bias._check_widths(function, width, self.value_width)
            part.check(function, self.work_dtype, self.shape)
            if saved is not None and part.hides_arrays:
                expected = "one without arrays, because its gradient is not split into chunks"
                fail(TypeError, function, "bias", f"operator {part.bias.name} with arrays", expected)
        self.low, self.high = _read_visible_range(function, causal, window)
        _read_softcap(function, softcap, self.work_dtype)
        factor = _default_scale(function, width, parts) if scale is None else scale
        self._check_scalars(scale, softcap)
        parameters = sum(len(part.arrays) for part in parts) + (sink is not None)
        window = window if window is None else tuple(window)
        self.options = (bool(causal), window, float(factor), softcap, self.value_width, parameters)

        is_limited = self.low > -INFINITY or self.high < INFINITY
        self.reads_positions = is_limited or any(part.reads_positions for part in parts)
        places: dict[str, Any] = dict(zip(("q_positions", "k_positions"),
                                          self._read_positions(parts, is_limited, align, q_positions, k_positions),
                                          strict=True))  # fmt: skip
        for name, segments, length in (("q_segments", q_segments, n), ("k_segments", k_segments, m)):
            places[name] = None if segments is None else self._read_segments(name, segments, length)
        for name, other in (("q_segments", "k_segments"), ("k_segments", "q_segments")):
            if places[name] is None and places[other] is not None:
                fail_value(ValueError, function, name, None, "segments of both queries and keys")

        self.axes_of_batch = tuple(f"b{axis}" for axis in reversed(range(len(batch))))
        extra: dict[str, Any] = {"keep": self._read_keep(keep), "sink": self._read_sink(sink)}
        rows = self.shape[:-1]
        for name, array in (saved or {}).items():
            wanted = rows if "lse" in name else (*rows, self.value_width)
            extra[name] = None if array is None else self._read_saved(name, array, wanted)
        for name, array in (*arrays.items(), *extra.items(), *places.items()):
            if is_dask(array):
                check_known(function, name, array)
        self._set_chunks(arrays, extra)
        self._cut(arrays, extra, places)
        self.name = f"{function}-{self._token(arrays, extra, places)}"
        self.layer: dict[Any, Any] = {}
        self._visible: dict[Key, list[list[Any]]] = {}

    # ---- arguments ----

    def _read_heads(self, argument: str, value: Any) -> DaskArray:
        array = read_array(self.function, argument, value)
        check_known(self.function, argument, array)
        as_data(self.function, argument, np.zeros((), array.dtype))
        if array.ndim < 3:
            fail(ValueError, self.function, argument, f"{array.ndim} axes", "at least 3, heads, sequence and channels")
        return array

    def _check_scalars(self, scale: Any, softcap: Any) -> None:
        """Raise the errors of `posenc.attention` for the numbers of a call."""
        nothing = np.zeros((1, 0, 1), self.dtype)
        posenc.attention(nothing, nothing, nothing, scale=scale, softcap=softcap)

    def _read_positions(self, parts: Any, is_limited: bool, align: Any, q: Any, k: Any) -> tuple[Any, Any]:
        """Return the positions of queries and keys, each as a range, an array or a dask array; None if unread."""
        n, m = self.shape[-2:]
        if q is None and k is None:
            shift = int(_read_call_positions(self.function, self.shape, parts, is_limited, align, None, None).shift)
            return (range(shift, shift + n), range(m)) if self.reads_positions else (None, None)
        if align is not None:
            check_choice(self.function, "align", align, ("start", "end"))
            fail_value(ValueError, self.function, "align", align, "None where positions are given")
        q = self._read_side("q_positions", n if q is None else q, n)
        k = self._read_side("k_positions", m if k is None else k, m)
        return (q, k) if self.reads_positions else (None, None)

    def _read_side(self, argument: str, value: Any, length: int) -> Any:
        if is_dask(value):
            if value.dtype.kind not in "iuf":
                fail(TypeError, self.function, argument, f"dtype {value.dtype}", "integers or reals")
            _check_batch(self.function, argument, value, self.shape[:-3], length)
            return value
        self._refuse_xarray(argument, value)
        array = _read_side(self.function, argument, value, length)
        _check_batch(self.function, argument, array, self.shape[:-3], length)
        if length and _is_consecutive(array):
            return range(int(array[0]), int(array[0]) + length)
        return array

    def _read_segments(self, argument: str, value: Any, length: int) -> Any:
        batch = self.shape[:-3]
        if is_dask(value):
            if value.dtype.kind not in "iu":
                fail(TypeError, self.function, argument, f"dtype {value.dtype}", "integers")
            _check_batch(self.function, argument, value, batch, length)
            return value
        self._refuse_xarray(argument, value)
        return _read_segments_of(self.function, argument, value, batch, length)

    def _refuse_xarray(self, argument: str, value: Any) -> None:
        if hasattr(value, "dims"):
            read_array(self.function, argument, value)

    def _read_keep(self, keep: Any) -> DaskArray | None:
        if keep is None:
            return None
        mask = as_chunked(self.function, "keep", keep)
        if mask.dtype != np.bool_:
            fail(TypeError, self.function, "keep", f"dtype {mask.dtype}", "bool, True = this key may be seen")
        if not broadcasts_to(mask.shape, self.shape):
            fail(ValueError, self.function, "keep", f"shape {mask.shape}", f"to broadcast to {self.shape}")
        return mask

    def _read_sink(self, sink: Any) -> DaskArray | None:
        if sink is None:
            return None
        array = as_chunked(self.function, "sink", sink)
        as_data(self.function, "sink", np.zeros((), array.dtype))
        _check_batch(self.function, "sink", array, self.shape[:-3], self.shape[-3])
        return array

    def _read_saved(self, argument: str, value: Any, shape: tuple[int, ...]) -> DaskArray:
        array = as_chunked(self.function, argument, value)
        as_data(self.function, argument, np.zeros((), array.dtype))
        if array.shape != shape:
            fail(ValueError, self.function, argument, f"shape {array.shape}", str(shape))
        return array

    # ---- chunks ----

    def _set_chunks(self, arrays: dict[str, DaskArray], extra: dict[str, Any]) -> None:
        """Choose chunks along each axis of the call that cut no chunk of q, k and v."""
        q, k, v = arrays.values()
        chunks: dict[str, Chunks] = {}
        for number, axis in enumerate(self.axes_of_batch):
            of_axis = [a.chunks[number - len(self.axes_of_batch) - 3] for a in (q, k, v)
                       if a.ndim >= len(self.axes_of_batch) + 3 - number]  # fmt: skip
            length = self.shape[number]
            chunks[axis] = lengths_of(common_bounds(bounds_of(c) for c in of_axis if sum(c) == length))
        chunks["n"] = q.chunks[-2]
        chunks["m"] = lengths_of(common_bounds(bounds_of(a.chunks[-2]) for a in (k, v)))
        chunks["h"], chunks["g"], self.kv_chunk_of = self._chunks_of_heads(q, k, v)
        self.chunks = chunks
        self.bounds = {axis: bounds_of(lengths) for axis, lengths in chunks.items()}
        if len(chunks["m"]) > 1:
            for part in self.parts:
                if part.needs_all_keys:
                    expected = f"one, because {part.bias.name} sums over keys: k.rechunk({{-2: -1}})"
                    fail(ValueError, self.function, "k", f"{len(chunks['m'])} chunks of keys", expected)

    def _chunks_of_heads(self, q: DaskArray, k: DaskArray, v: DaskArray) -> tuple[Chunks, Chunks, list[int]]:
        """Return chunks of heads and of kv heads, and the kv chunk of each chunk of heads.

        A chunk of heads is some whole groups, or a part of one group.
        """
        heads, kv_heads = q.shape[-3], k.shape[-3]
        group = heads // kv_heads if kv_heads else 1
        if any(part.needs_all_heads for part in self.parts):
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

    def _cut(self, arrays: dict[str, DaskArray], extra: dict[str, Any], places: dict[str, Any]) -> None:
        """Rechunk all arrays to the chunks of the call."""
        batch = self.axes_of_batch
        axes = {
            "q": (*batch, "h", "n", ""), "k": (*batch, "g", "m", ""), "v": (*batch, "g", "m", ""),
            "keep": (*batch, "h", "n", "m"), "sink": (*batch, "h"), "grad": (*batch, "h", "n", ""),
            "out": (*batch, "h", "n", ""), "lse": (*batch, "h", "n"), "grad_lse": (*batch, "h", "n"),
            "q_positions": (*batch, "n"), "k_positions": (*batch, "m"),
            "q_segments": (*batch, "n"), "k_segments": (*batch, "m"),
        }  # fmt: skip
        self.known = {name: None if is_dask(value) else value for name, value in places.items()}
        self.sources: dict[str, Source | None] = {}
        self.cut_arrays: dict[str, DaskArray] = {}
        for name, value in (*arrays.items(), *extra.items(), *places.items()):
            self.sources[name] = None
            if value is None or isinstance(value, range):
                continue
            array = value if is_dask(value) else da.from_array(value, chunks=value.shape)
            own = axes[name][len(axes[name]) - array.ndim :]
            self.cut_arrays[name], self.sources[name] = cut(array, own, self.chunks)

    def _token(self, *groups: dict[str, Any]) -> str:
        names = {name: array.name for name, array in self.cut_arrays.items()}
        ranges = [value for group in groups for value in group.values() if isinstance(value, range)]
        return str(tokenize(names, ranges, self.operators, self.options, self.low, self.high, self.chunks))

    # ---- chunks of the call, one after the other ----

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

    def keys_of(self, at: At, without_keys: bool = True) -> list[int | None]:
        """Return the chunks of keys that a chunk of queries sees; [None] if it sees none, or [] on request."""
        batch = tuple(at[axis] for axis in self.axes_of_batch)
        if batch not in self._visible:
            pairs = visible_pairs(self._side("q", at), self._side("k", at), self.low, self.high)
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
        batch = self.shape[:-3]
        whole = np.broadcast_to(known, (*batch, known.shape[-1]))
        index = tuple(slice(*self.bounds[axis][at[axis] : at[axis] + 2]) for axis in self.axes_of_batch)
        return whole[index].reshape(-1, known.shape[-1])

    def place(self, at: At) -> Place:
        """Return the range of a pair of chunks along each axis."""
        return {axis: (self.bounds[axis][i], self.bounds[axis][i + 1]) for axis, i in at.items() if axis != "g"}

    def operands(self, at: At, j: int | None) -> list[Any]:
        """Return the arguments of the task of a pair: keys of chunks, ranges and None."""
        if j is None:
            return [self._key("q", at), *(None,) * 7, self._key("sink", at), []]
        at = {**at, "m": j}
        first_keys = self.keys_of(at)[0] == j  # one part of the keys gets the sink
        place = self.place(at)
        parts = [part.task(f"{self.name}-bias{i}", place, self.layer) for i, part in enumerate(self.parts)]
        return [
            *(self._key(name, at) for name in ("q", "k", "v", "keep")),
            self._positions("q_positions", place["n"], at), self._positions("k_positions", place["m"], at),
            self._key("q_segments", at), self._key("k_segments", at),
            self._key("sink", at) if first_keys else None, parts,
        ]  # fmt: skip

    def saved(self, at: At) -> list[Any]:
        """Return the rest of the arguments of a pair in the backward pass."""
        array = self.cut_arrays.get("sink")
        start: list[int] = []
        if array is not None:
            axes = (*self.axes_of_batch, "h")[-array.ndim :]
            start = [
                self.bounds[axis][at[axis]] if length != 1 else 0
                for axis, length in zip(axes, array.shape, strict=True)
            ]
        return [*(self._key(name, at) for name in ("grad", "out", "lse", "grad_lse")), start]

    def _key(self, name: str, at: At) -> Key | None:
        source = self.sources[name]
        return None if source is None else source.key(at)

    def _positions(self, name: str, place: tuple[int, int], at: At) -> Any:
        """Return a range that the task makes positions of, or the key of the chunk of positions."""
        known = self.known[name]
        return known[slice(*place)] if isinstance(known, range) else self._key(name, at)

    def index_of(self, name: str, at: At) -> Key:
        """Return the index of the chunk of an array."""
        key = self._key(name, at)
        assert key is not None
        return key[1:]

    # ---- results ----

    def result(self, name: str, blocks: dict[Key, Any], chunks: tuple[Chunks, ...], dtype: Any) -> DaskArray:
        """Return the array whose chunks are the given tasks; all results of a call share the layer of its pairs."""
        graph = HighLevelGraph.from_collections(self.name, self.layer, dependencies=list(self.cut_arrays.values()))
        layers, dependencies = {**graph.layers, name: blocks}, {**graph.dependencies, name: {self.name}}
        return da.Array(HighLevelGraph(layers, dependencies), name, chunks, dtype=dtype)

    def blocks_of(self, argument: str, gradients: dict[Key, list[Key]]) -> dict[Key, Any]:
        """Return the tasks of the chunks of a gradient; a chunk without pairs is 0."""
        array, name = self.cut_arrays[argument], f"{self.name}-d-{argument}"
        dtype = as_data(self.function, argument, np.zeros((), array.dtype)).dtype
        blocks: dict[Key, Any] = {}
        for index in np.ndindex(*array.numblocks):
            if index in gradients:
                root = _reduce(self.layer, f"{name}-batch", index, gradients[index], add)
                blocks[(name, *index)] = (take, root, None, dtype)
            else:
                shape = [axis[i] for axis, i in zip(array.chunks, index, strict=True)]
                blocks[(name, *index)] = (zeros, shape, dtype)
        return blocks

    def gradient(self, argument: str, blocks: dict[Key, Any]) -> DaskArray:
        array = self.cut_arrays[argument]
        dtype = as_data(self.function, argument, np.zeros((), array.dtype)).dtype
        return self.result(f"{self.name}-d-{argument}", blocks, array.chunks, dtype)

    def blocks_of_parameters(self, pairs: list[Key]) -> list[Any]:
        """Return, for each array of each part, the task of its gradient; that of the sink comes last."""
        tasks: list[Any] = []
        count = self.options[-1]
        root = _reduce(self.layer, f"{self.name}-parameters", (), pairs, add_pieces) if pairs and count else None
        arrays = [(array, dtype) for part in self.parts
                  for array, dtype in zip(part.bias.arrays, part.bias._dtypes, strict=True)]  # fmt: skip
        if "sink" in self.cut_arrays:
            arrays.append((self.cut_arrays["sink"], None))
        for number, (array, dtype) in enumerate(arrays):
            if not hasattr(array, "shape"):  # left out, or an operator that is a part of its own
                tasks.append(array if array == () else None)
                continue
            found = as_data(self.function, "sink", np.zeros((), array.dtype)).dtype if dtype is None else dtype
            shape = list(array.shape)
            task = (zeros, shape, found) if root is None else (whole_gradient, root, number, shape, found)
            tasks.append((task, array.shape, found))
        return tasks

    def gradients_of_parameters(self, tasks: list[Any]) -> tuple[tuple[Any, ...], DaskArray | None]:
        """Return the gradients of all operators, and that of the sink."""
        arrays: list[Any] = []
        for number, one in enumerate(tasks):
            if one is None or one == ():
                arrays.append(one)
                continue
            task, shape, dtype = one
            name = f"{self.name}-d-parameter-{number}"
            block = {(name, *(0,) * len(shape)): task}
            arrays.append(self.result(name, block, tuple((length,) for length in shape), dtype))
        sink = arrays.pop() if "sink" in self.cut_arrays else None
        rest = iter(arrays)
        gradients = [part.bias.arrays._make(next(rest) for _ in part.bias.arrays) for part in self.parts]
        return _assemble(self.operators, gradients), sink
