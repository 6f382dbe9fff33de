"""Check the arguments of `attention` and its gradient, and convert them to kernel operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import convert, read
from .._core_api.arrays import F64, I64, LARGEST_SCALE32, Array, Dtype
from .._core_api.constants import LARGEST_POSITION
from .._core_api.door import fail, fail_value
from ..bias import operator
from ..bias.operator import Bias, Call
from ..bias.positions import Positions, read_positions
from ..relative.content import ContentBias
from .options import Options, read_options
from .quantized import Quantized

INFINITY = float("inf")
Shape = tuple[int, ...]


class HeadScale(NamedTuple):
    """A scale of each head: the queries of the kernel are `q` times `factors`."""

    q: Array
    """The user's queries, with an axis of heads."""
    factors: Array
    """The scale of each head. That of the kernel is 1."""


class Inputs(NamedTuple):
    """Checked arguments of a call, with an axis of heads."""

    operators: tuple[Bias, ...]
    """Operators that the user passed."""
    positions: tuple[Positions, ...]
    """Positions that each part of the operators reads: its own or those of the call."""
    arguments: dict[str, Any]
    """Arguments of the kernel: q, k, v and the other arrays, a term for each part of the operators, parameters."""
    shape: Shape
    """Shape of the logits: (batch axes, H, N, M)."""
    dtype: Dtype
    """The dtype of the arithmetic."""
    result_dtype: Dtype
    """The dtype of the user's q, native."""
    head_scale: HeadScale | None
    """None if the scale is a number."""
    sink_shape: Shape
    """The shape of the user's sink."""
    options: Options
    """All options of the call."""
    is_one_head: bool
    """True if the user's q, k and v have no axis of heads; those here have one of length 1."""

    def with_heads(self, array: Array) -> Array:
        """View an array of the user's, such as `out`, with an axis of heads."""
        return array[None] if self.is_one_head else array

    def without_heads(self, array: Array) -> Array:
        """View a result as the user has it."""
        return array[0] if self.is_one_head else array


def read_inputs(caller: str, q: object, k: object, v: object, options: Mapping[str, object]) -> Inputs:
    """Return the checked arguments of `attention`, for some of its options."""
    option = read_options(caller, options)
    query = read.data("q", q)
    key, k_scale = read_keys(caller, "k", k, query.dtype)
    value, v_scale = read_keys(caller, "v", v, query.dtype)
    sink = None if option["sink"] is None else read.data("sink", option["sink"])
    sink_shape = () if sink is None else sink.shape
    is_one_head = query.ndim == key.ndim == value.ndim == 2
    if is_one_head:
        query, key, value = query[None], key[None], value[None]
        k_scale, v_scale = (None if scale is None else scale[None] for scale in (k_scale, v_scale))
        sink = None if sink is None else np.atleast_1d(sink)
    batch = check_shapes(query, key, value)
    heads, n, width = query.shape[-3:]
    shape = (*batch, heads, n, key.shape[-2])
    dtype, result_dtype = convert.arithmetic(query), query.dtype.newbyteorder("=")

    operators = read_operators(option["bias"])
    parts = tuple([part for operator in operators for part in operator.parts])
    low, high = read_visible_range(option["causal"], option["window"])
    of_call = read_call_positions(
        shape, parts, low, high, option["align"], option["q_positions"], option["k_positions"]
    )
    keep = None if option["keep"] is None else _read_keep(option["keep"], shape)
    q_segments = k_segments = None
    if not (option["q_segments"] is None and option["k_segments"] is None):
        q_segments, k_segments = _read_segments(option["q_segments"], option["k_segments"], shape)
    if sink is not None:
        _check_sink(sink, shape)
    positions = tuple([operator.resolve_positions(part, of_call, batch) for part in parts])
    call = Call(dtype, shape, width, value.shape[-1], caller == "attention_vjp")
    terms = tuple([operator.place_term(part, call, at) for part, at in zip(parts, positions, strict=True)])
    scale, head_scale = _read_scale(caller, option["scale"], query, parts)
    if head_scale is not None:
        with convert.without_warnings():
            query = query.astype(dtype) * head_scale.factors.astype(dtype)[:, None, None]
    if option["dropout"] and option["seed"] is None:
        fail_value(ValueError, "seed", None, "an integer, because dropout is not 0")
    dropout = min(round(option["dropout"] * 2**16), 2**16 - 1) / 2**16  # the kernels draw 16 bits for each weight
    cap, seed = option["softcap"], option["seed"] or 0
    q_positions, k_positions = of_call.arrays or (None, None)
    arguments = {
        "q": query, "k": key, "v": value, "k_scale": k_scale, "v_scale": v_scale, "keep": keep,
        "q_positions": q_positions, "k_positions": k_positions, "q_segments": q_segments, "k_segments": k_segments,
        "sink": sink, "bias": terms, "scale": scale, "softcap": 0.0 if cap is None else _clip_softcap(cap, dtype),
        "low": low, "high": high, "shift": of_call.shift, "precision": option["precision"],
        "dropout": dropout, "seed_low": seed % 2**32, "seed_high": seed >> 32,
    }  # fmt: skip
    return Inputs(
        operators, positions, arguments, shape, dtype, result_dtype, head_scale, sink_shape, option, is_one_head
    )


def _read_scale(caller: str, scale: object, q: Array, parts: tuple[Bias, ...]) -> tuple[float, HeadScale | None]:
    """Return the scale of the kernel, and the scale of each head if there is one.

    Only the gradient takes a number in an array without axes as one scale for each head, whose gradients are added.
    """
    heads, width = q.shape[-3], q.shape[-1]
    dtype = convert.arithmetic(q)
    if scale is None:
        return default_scale(width, parts), None
    readers = [part.name for part in parts if isinstance(part, ContentBias)]
    is_number = isinstance(scale, (*read.BOOLS, *read.INTEGERS, float, str))  # text is refused as a number
    array = None if is_number else read.array("scale", scale)
    if array is None or array.ndim == 0:
        number = read.number("scale", scale if array is None else array)
        read.check_range("scale", number, dtype, LARGEST_SCALE32)
        has_gradient = caller == "attention_vjp" and isinstance(scale, np.ndarray) and not readers
        if not has_gradient:
            return number, None
        scales = np.full(heads, number)
    else:
        scales = read.data("scale", array).astype(F64, copy=False)
        if scales.shape != (heads,):
            fail(ValueError, "scale", f"shape {scales.shape}", f"a number, or {(heads,)}, one for each head")
        if readers:
            expected = f"a number, because {readers[0]} reads queries and keys"
            fail(TypeError, "scale", f"shape {scales.shape}", expected)
        for head in scales:
            read.check_range("scale", read.number("scale", head), dtype, LARGEST_SCALE32)
    return 1.0, HeadScale(q, scales)  # no scale of all heads: it could make a head's queries subnormal


def read_keys(caller: str, argument: str, value: object, dtype: Dtype) -> tuple[Array, Array | None]:
    """Return keys or values and, if they are quantised, their scales; `dtype` is that of q."""
    if not isinstance(value, Quantized):
        return read.data(argument, value), None
    if caller != "attention":
        fail(TypeError, argument, "type Quantized", "an array, as dequantize() returns")
    if dtype.char == "d":
        fail(TypeError, "q", "dtype float64", f"at most float32, because {argument} is quantised")
    if value.axis != -1:
        fail_value(ValueError, f"axis of {argument}", value.axis, "-1, a scale for each token and head")
    return value.codes, value.scale


def check_shapes(q: Array, k: Array, v: Array) -> Shape:
    """Return the batch axes of q, k and v, broadcast."""
    of_q, of_k, of_v = q.shape, k.shape, v.shape
    if len(of_q) < 3 or len(of_k) < 3 or len(of_v) < 3:
        argument, axes = next((name, x.ndim) for name, x in (("q", q), ("k", k), ("v", v)) if x.ndim < 3)
        expected = "at least 3, heads, sequence and channels, or 2 axes of q, k and v, for one head"
        fail(ValueError, argument, f"{axes} axes", expected)
    _, n, width = of_q[-3:]
    kv_heads, m, k_width = of_k[-3:]
    if k_width != width:
        fail(ValueError, "k", f"width {k_width}", f"{width}, the width of q")
    if of_v[-3] != kv_heads or of_v[-2] != m:
        fail(ValueError, "v", f"shape {of_v}", f"(..., {kv_heads}, {m}, Dv), as k")
    if n > LARGEST_POSITION or m > LARGEST_POSITION:  # possible for arrays without channels, which have no memory
        argument, length = ("q", n) if n > LARGEST_POSITION else ("k", m)
        fail(ValueError, argument, f"sequence axis {length}", "at most 2**53 positions")
    batch = of_q[:-3]
    if batch == of_k[:-3] == of_v[:-3]:  # np.broadcast_shapes takes longer than the kernel does for a few tokens
        return batch
    for argument, own in (("k", of_k[:-3]), ("v", of_v[:-3])):
        try:
            batch = np.broadcast_shapes(batch, own)
        except ValueError:
            fail(ValueError, argument, f"batch axes {own}", f"to broadcast against {batch}")
    return batch


def read_operators(bias: object) -> tuple[Bias, ...]:
    """Return the argument `bias` as a tuple."""
    if bias is None or (type(bias) is tuple and not bias):
        return ()
    if isinstance(bias, Bias):
        return (bias,)
    if not isinstance(bias, tuple | Sequence) or not all(isinstance(operator, Bias) for operator in bias):
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a Bias, as dense(array) returns, or several")
    return tuple(bias)


def read_visible_range(causal: bool, window: object) -> tuple[float, float]:
    """Return the lowest and the highest visible rel."""
    low, high = -INFINITY, INFINITY
    if window is not None:
        if not isinstance(window, tuple | list) or len(window) != 2:
            fail_value(ValueError, "window", window, "(left, right), each a number or None")
        left, right = window
        low = -INFINITY if left is None else -read.number("window", left)
        high = INFINITY if right is None else read.number("window", right)
    return low, min(high, 0.0) if causal else high


def _clip_softcap(cap: float, dtype: Dtype) -> float:
    """Return the cap, clipped so that the cap and its inverse are finite in `dtype`; results stay the same."""
    largest = 1e300 if dtype is F64 else 1e37
    return min(max(cap, 1 / largest), largest)


def default_scale(width: int, parts: tuple[Bias, ...]) -> float:
    """Return the scale that the operators ask for, if they agree, else ``width**-0.5``."""
    scales = [(part.name, part.scheme.default_scale(part, width)) for part in parts]
    asked = {scale for _, scale in scales if scale is not None}
    if len(asked) > 1:
        names = sorted({name for name, scale in scales if scale is not None})
        fail_value(ValueError, "scale", None, f"a number, because the defaults of {', '.join(names)} differ")
    return asked.pop() if asked else float((width or 1) ** -0.5)


def read_call_positions(
    shape: Shape,
    parts: tuple[Bias, ...],
    low: float,
    high: float,
    align: object,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
) -> Positions:
    """Return the positions of a call, with the limits of the visible distances."""
    n, m = shape[-2:]
    if q_positions is None and k_positions is None:
        lacks_align = align is None and n != m
        if lacks_align and (low > -INFINITY or high < INFINITY or any(part.reads_positions for part in parts)):
            expected = f"'start', or 'end' as in decoding, because N = {n} and M = {m} differ"
            fail_value(ValueError, "align", None, expected)
        return Positions(n, m, float(m - n) if align == "end" else 0.0, None, low, high)
    positions = read_positions(n, m, q_positions, k_positions)._replace(low=low, high=high)
    if align is not None:
        fail_value(ValueError, "align", align, "None where positions are given")
    arrays = positions.arrays or ()
    for argument, array, length in zip(("q_positions", "k_positions"), arrays, (n, m), strict=True):
        check_batch(argument, array, shape[:-3], length)
    return positions.as_consecutive() if all(map(operator.allows_shift, parts)) else positions


def _read_keep(keep: object, shape: Shape) -> Array:
    mask = read.array("keep", keep)
    if mask.dtype != np.bool_:
        fail(TypeError, "keep", f"dtype {mask.dtype}", "bool, True = this key may be seen")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        *batch, _, _, m = shape
        hint = "; pass keep[..., None, None, :] if it masks keys" if mask.shape == (*batch, m) else ""
        fail(ValueError, "keep", f"shape {mask.shape}", f"to broadcast to {shape}{hint}")


def _read_segments(q_segments: object, k_segments: object, shape: Shape) -> tuple[Array, Array]:
    if q_segments is None or k_segments is None:
        missing = "q_segments" if q_segments is None else "k_segments"
        fail_value(ValueError, missing, None, "segments of both queries and keys")
    *batch, _, n, m = shape
    of_queries = _read_segments_of("q_segments", q_segments, tuple(batch), n)
    return of_queries, _read_segments_of("k_segments", k_segments, tuple(batch), m)


def _read_segments_of(argument: str, segments: object, batch: Shape, length: int) -> Array:
    array = read.array(argument, segments)
    if array.dtype.kind not in "iu":
        fail(TypeError, argument, f"dtype {array.dtype}", "integers")
    if array.dtype.char in "QL" and array.size and int(array.max()) >= 2**63:
        fail(ValueError, argument, int(array.max()), "at most 2**63 - 1")
    array = array.astype(I64, copy=False)
    check_batch(argument, array, batch, length)
    return array


def _check_sink(sink: Array, shape: Shape) -> None:
    *batch, heads, _, _ = shape
    check_batch("sink", sink, tuple(batch), heads)
    if not (sink < INFINITY).all():
        fail(ValueError, "sink", "NaN or +inf", "finite numbers or -inf")


def check_batch(argument: str, array: Array, batch: Shape, length: int) -> None:
    """Refuse an array that is not (N,) or (batch axes, N); it has no axis of heads."""
    if array.ndim < 1 or array.shape[-1] != length or not convert.broadcasts_to(array.shape[:-1], batch):
        expected = f"({length},)" + (f" or {(*batch, length)}" if batch else "")
        fail(ValueError, argument, f"shape {array.shape}", expected)
