"""Check the arguments of `attention` and its gradient, and convert them to kernel operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F64,
    I64,
    LARGEST_SCALE32,
    Array,
    Dtype,
    as_array,
    as_bool,
    as_data,
    as_index,
    as_number,
    broadcasts_to,
    cast_operand,
    check_choice,
    check_range,
    compute_dtype,
    fail,
    fail_value,
)
from .._core_api.constants import LARGEST_POSITION, MOST_WIDTH
from ..bias.operator import Bias, ContentBias, allows_shift, is_placed, resolve_positions
from ..bias.positions import Positions, read_positions
from ..bias.terms import Call, Term
from .quantized import Quantized

INFINITY = float("inf")
Shape = tuple[int, ...]
KernelTerm = tuple[str, dict[str, Array | None], Array | None, Array | None]
"""An operator as `_core.attention` takes it: a row, its operands, and positions of its own or None."""


class Inputs(NamedTuple):
    """Checked arguments of a call."""

    q: Array
    k: Array
    v: Array
    sink: Array | None
    shape: Shape
    """Shape of the logits: (batch axes, H, N, M)."""
    operators: tuple[Bias, ...]
    """Operators that the user passed."""
    parts: tuple[Bias, ...]
    """These operators and those inside them: one per term of the kernel."""
    positions: Positions
    part_positions: tuple[Positions, ...]
    """Positions that each part reads: its own or those of the call."""
    operands: dict[str, Array | None]
    """Operands of the kernel before the terms: q, k, v, k_scale, v_scale, keep, q_positions, k_positions, q_segments,
    k_segments, sink."""
    terms: tuple[Term, ...]
    """Terms of the kernel, one per part."""
    parameters: dict[str, float]
    """Parameters of the kernel: scale, softcap, the lowest and the highest visible rel, the position of query 0,
    dropout, and the halves of its seed."""
    dtype: Dtype
    """The dtype of the arithmetic."""
    rows: Shape
    """The shape of lse, as the user has it."""
    is_one_head: bool
    """True if the user's q, k and v have no axis of heads; those here have one of length 1."""
    unscaled: Array | None = None
    """The user's q, with an axis of heads, if each head has a scale of its own: then `q` is q times `q_scale`."""
    q_scale: Array | None = None
    """One number for each head: the scale divided by that of the kernel, a power of two."""

    @property
    def result_dtype(self) -> Dtype:
        """The dtype of the user's q, native."""
        return (self.q if self.unscaled is None else self.unscaled).dtype.newbyteorder("=")

    def with_heads(self, array: Array) -> Array:
        """View an array of the user's, such as `out`, with an axis of heads."""
        return array[None] if self.is_one_head else array

    def kernel_terms(self, gradients: Sequence[Mapping[str, Array]] = ()) -> tuple[KernelTerm, ...]:
        """Return the terms as the kernel takes them, with arrays for the gradients of their rows.

        A term names the positions of its operator if the operator has its own, unless the numbers of the term are
        already those at these positions: then its row is not that of the operator.
        """
        found: list[KernelTerm] = []
        for i, (part, term) in enumerate(zip(self.parts, self.terms, strict=True)):
            has_own = is_placed(part) and term.row == part.name
            q, k = self.part_positions[i].as_arrays() if has_own else (None, None)
            found.append((term.row, {**term.operands, **gradients[i]} if gradients else term.operands, q, k))
        return tuple(found)


def read_inputs(
    function: str,
    q: object,
    k: object,
    v: object,
    *,
    bias: object,
    keep: object,
    causal: object,
    align: object,
    window: object,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
    q_segments: object,
    k_segments: object,
    scale: object,
    softcap: object,
    sink: object,
    dropout: object,
    seed: object,
) -> Inputs:
    """Return the checked arguments of `attention`."""
    query = as_data(function, "q", q)
    key, k_scale = read_keys(function, "k", k, query.dtype)
    value, v_scale = read_keys(function, "v", v, query.dtype)
    is_one_head = query.ndim == key.ndim == value.ndim == 2
    if is_one_head:
        query, key, value = query[None], key[None], value[None]
        k_scale, v_scale = (None if codes is None else codes[None] for codes in (k_scale, v_scale))
    batch = check_shapes(function, query, key, value)
    heads, n, width = query.shape[-3:]
    shape, dtype = (*batch, heads, n, key.shape[-2]), compute_dtype(query)

    operators = read_operators(function, bias)
    parts = tuple([part for operator in operators for part in operator.parts]) if operators else ()
    low, high = read_visible_range(function, causal, window)
    cap = 0.0 if softcap is None else read_softcap(function, softcap, dtype)
    positions = read_call_positions(function, shape, parts, low, high, align, q_positions, k_positions)
    if positions.arrays is not None and all(map(allows_shift, parts)):
        positions = positions.as_consecutive()
    visible = None if keep is None else _read_keep(function, keep, shape)
    of_queries = of_keys = None
    if not (q_segments is None and k_segments is None):
        of_queries, of_keys = _read_segments(function, q_segments, k_segments, shape)
    logits = None if sink is None else _read_sink(function, sink, shape, is_one_head)
    part_positions: tuple[Positions, ...] = ()
    terms: tuple[Term, ...] = ()
    if parts:
        part_positions = tuple([resolve_part_positions(function, part, positions, batch) for part in parts])
        call = Call(function, dtype, shape, width, value.shape[-1])
        terms = tuple([part._term(call, own) for part, own in zip(parts, part_positions, strict=True)])
    unscaled, q_scale = None, _read_scales(function, scale, heads, parts, dtype)
    if scale is None:
        factor = default_scale(function, width, parts, terms)
    elif q_scale is not None:
        largest = float(np.abs(q_scale).max(initial=0.0))
        factor = 2.0 ** np.frexp(largest)[1] if largest else 1.0
        unscaled, q_scale = query, q_scale / factor
        query = query.astype(dtype) * q_scale.astype(dtype)[:, None, None]
    else:
        factor = as_number(function, "scale", scale)
        check_range(function, "scale", factor, dtype, LARGEST_SCALE32)
    q_at, k_at = positions.arrays or (None, None)
    operands = {
        "q": query,
        "k": key if key.dtype is dtype else cast_operand(function, "k", key, dtype),
        "v": value if value.dtype is dtype else cast_operand(function, "v", value, dtype),
        "k_scale": k_scale, "v_scale": v_scale, "keep": visible, "q_positions": q_at, "k_positions": k_at,
        "q_segments": of_queries, "k_segments": of_keys,
        "sink": None if logits is None else _repeat_sink(function, logits, dtype, n),
    }  # fmt: skip
    parameters = {
        "scale": factor, "softcap": cap, "low": low, "high": high, "shift": positions.shift,
        **read_dropout(function, dropout, seed),
    }  # fmt: skip
    return Inputs(
        query, key, value, logits, shape, operators, parts, positions, part_positions, operands, terms, parameters,
        dtype, (n,) if is_one_head else shape[:-1], is_one_head, unscaled, q_scale,
    )  # fmt: skip


def _read_scales(function: str, scale: object, heads: int, parts: tuple[Bias, ...], dtype: Dtype) -> Array | None:
    """Return the scale of each head, float64, or None for a number.

    Only the gradient takes a number in an array without axes as one scale for each head, whose gradients are added.
    """
    axes = np.ndim(scale) if isinstance(scale, list | tuple) else getattr(scale, "ndim", 0)
    readers = [part.name for part in parts if isinstance(part, ContentBias)]
    if axes == 0:
        has_gradient = function == "attention_vjp" and isinstance(scale, np.ndarray) and not readers
        return np.full(heads, as_number(function, "scale", scale)) if has_gradient else None
    scales = as_data(function, "scale", scale).astype(F64, copy=False)
    if scales.shape != (heads,):
        fail(ValueError, function, "scale", f"shape {scales.shape}", f"a number, or {(heads,)}, one for each head")
    if readers:
        expected = f"a number, because {readers[0]} reads queries and keys"
        fail(TypeError, function, "scale", f"shape {scales.shape}", expected)
    for number in scales:
        check_range(function, "scale", as_number(function, "scale", number), dtype, LARGEST_SCALE32)
    return scales


def read_keys(function: str, argument: str, value: object, dtype: Dtype) -> tuple[Array, Array | None]:
    """Return keys or values and, if they are quantised, their scales; `dtype` is that of q."""
    if not isinstance(value, Quantized):
        return as_data(function, argument, value), None
    if function != "attention":
        fail(TypeError, function, argument, "type Quantized", "an array, as dequantize() returns")
    if dtype.char == "d":
        fail(TypeError, function, "q", "dtype float64", f"at most float32, because {argument} is quantised")
    if value.axis != -1:
        fail_value(ValueError, function, f"axis of {argument}", value.axis, "-1, a scale for each token and head")
    return value.codes, value.scale


def check_shapes(function: str, q: Array, k: Array, v: Array) -> Shape:
    """Return the batch axes of q, k and v, broadcast."""
    of_q, of_k, of_v = q.shape, k.shape, v.shape
    if len(of_q) < 3 or len(of_k) < 3 or len(of_v) < 3:
        argument, axes = next((name, x.ndim) for name, x in (("q", q), ("k", k), ("v", v)) if x.ndim < 3)
        expected = "at least 3, heads, sequence and channels, or 2 axes of q, k and v, for one head"
        fail(ValueError, function, argument, f"{axes} axes", expected)
    heads, n, width = of_q[-3:]
    kv_heads, m, k_width = of_k[-3:]
    v_width = of_v[-1]
    if k_width != width:
        fail(ValueError, function, "k", f"width {k_width}", f"{width}, the width of q")
    if of_v[-3] != kv_heads or of_v[-2] != m:
        fail(ValueError, function, "v", f"shape {of_v}", f"(..., {kv_heads}, {m}, Dv), as k")
    if heads % kv_heads if kv_heads else heads:
        fail(ValueError, function, "k", f"{kv_heads} heads", f"a divisor of the {heads} heads of q")
    if width > MOST_WIDTH or v_width > MOST_WIDTH:
        argument, channels = ("q", width) if width > MOST_WIDTH else ("v", v_width)
        fail(ValueError, function, argument, f"width {channels}", f"at most {MOST_WIDTH}")
    if n > LARGEST_POSITION or m > LARGEST_POSITION:  # possible for arrays without channels, which have no memory
        argument, length = ("q", n) if n > LARGEST_POSITION else ("k", m)
        fail(ValueError, function, argument, f"sequence axis {length}", "at most 2**53 positions")
    batch = of_q[:-3]
    if batch == of_k[:-3] == of_v[:-3]:  # np.broadcast_shapes takes longer than the kernel does for a few tokens
        return batch
    for argument, own in (("k", of_k[:-3]), ("v", of_v[:-3])):
        try:
            batch = np.broadcast_shapes(batch, own)
        except ValueError:
            fail(ValueError, function, argument, f"batch axes {own}", f"to broadcast against {batch}")
    return batch


def read_operators(function: str, bias: object) -> tuple[Bias, ...]:
    """Return the argument `bias` as a tuple."""
    if bias is None or (type(bias) is tuple and not bias):
        return ()
    if isinstance(bias, Bias):
        return (bias,)
    if not isinstance(bias, tuple | Sequence) or not all(isinstance(operator, Bias) for operator in bias):
        fail(TypeError, function, "bias", f"type {type(bias).__name__}", "a Bias, as dense(array) returns, or several")
    return tuple(bias)


def read_visible_range(function: str, causal: object, window: object) -> tuple[float, float]:
    """Return the lowest and the highest visible rel."""
    is_causal = as_bool(function, "causal", causal)
    low, high = -INFINITY, INFINITY
    if window is not None:
        if not isinstance(window, tuple | list) or len(window) != 2:
            fail_value(ValueError, function, "window", window, "(left, right), each a number or None")
        left, right = window
        low = -INFINITY if left is None else -as_number(function, "window", left)
        high = INFINITY if right is None else as_number(function, "window", right)
    return low, min(high, 0.0) if is_causal else high


def read_softcap(function: str, softcap: object, dtype: Dtype) -> float:
    """Return the cap, 0 for none, clipped so that the cap and its inverse are finite in `dtype`.

    Clipping leaves results unchanged.
    """
    if softcap is None:
        return 0.0
    cap = as_number(function, "softcap", softcap)
    if cap <= 0:
        fail_value(ValueError, function, "softcap", softcap, "a positive number or None")
    largest = 1e300 if dtype is F64 else 1e37
    return min(max(cap, 1 / largest), largest)


def read_dropout(function: str, dropout: object, seed: object) -> dict[str, float]:
    """Return the kernel's parameters of dropout; the seed is split into numbers that a double represents."""
    chance, number = as_number(function, "dropout", dropout), 0
    if not 0 <= chance < 1:
        fail_value(ValueError, function, "dropout", dropout, "a probability from 0 to below 1")
    if seed is not None:
        number = as_index(function, "seed", seed, 0, 2**64 - 1)
    elif chance > 0:
        fail_value(ValueError, function, "seed", None, "an integer, because dropout is not 0")
    return {"dropout": chance, "seed_low": number % 2**32, "seed_high": number >> 32}


def default_scale(function: str, width: int, parts: Iterable[Bias], terms: Iterable[Term]) -> float:
    """Return the scale that the operators ask for, if they agree, else ``width**-0.5``."""
    asked = {term.scale for term in terms if term.scale is not None}
    if len(asked) > 1:
        names = {part.name for part, term in zip(parts, terms, strict=True) if term.scale is not None}
        expected = f"a number, because the defaults of {', '.join(sorted(names))} differ"
        fail_value(ValueError, function, "scale", None, expected)
    return asked.pop() if asked else float((width or 1) ** -0.5)


def read_call_positions(
    function: str,
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
        if align is not None:
            check_choice(function, "align", align, ("start", "end"))
        elif n != m and (low > -INFINITY or high < INFINITY or any(part.reads_positions for part in parts)):
            expected = f"'start', or 'end' as in decoding, because N = {n} and M = {m} differ"
            fail_value(ValueError, function, "align", None, expected)
        return Positions(n, m, float(m - n) if align == "end" else 0.0, None, low, high)
    positions = read_positions(function, n, m, q_positions, k_positions)._replace(low=low, high=high)
    if align is not None:
        check_choice(function, "align", align, ("start", "end"))
        fail_value(ValueError, function, "align", align, "None where positions are given")
    arrays = positions.arrays or ()
    for argument, array, length in zip(("q_positions", "k_positions"), arrays, (n, m), strict=True):
        check_batch(function, argument, array, shape[:-3], length)
    return positions


def resolve_part_positions(function: str, part: Bias, call: Positions, batch: Shape) -> Positions:
    """Return the positions that a part reads; its own must fit the batch axes."""
    if not is_placed(part):
        return call
    for argument, own in zip(("q_positions", "k_positions"), part.own_positions, strict=True):
        if own is not None and not broadcasts_to(own.shape[:-1], batch):
            has = f"batch axes {own.shape[:-1]} ({part.name}.at)"
            fail(ValueError, function, argument, has, f"to broadcast to {batch}")
    return resolve_positions(function, part, call)


def _read_keep(function: str, keep: object, shape: Shape) -> Array:
    mask = as_array(function, "keep", keep)
    if mask.dtype != np.bool_:
        fail(TypeError, function, "keep", f"dtype {mask.dtype}", "bool, True = this key may be seen")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        *batch, _, _, m = shape
        hint = "; pass keep[..., None, None, :] if it masks keys" if mask.shape == (*batch, m) else ""
        fail(ValueError, function, "keep", f"shape {mask.shape}", f"to broadcast to {shape}{hint}")


def _read_segments(function: str, q_segments: object, k_segments: object, shape: Shape) -> tuple[Array, Array]:
    *batch, _, n, m = shape
    if q_segments is None or k_segments is None:
        missing = "q_segments" if q_segments is None else "k_segments"
        fail_value(ValueError, function, missing, None, "segments of both queries and keys")
    of_queries = read_segments_of(function, "q_segments", q_segments, tuple(batch), n)
    return of_queries, read_segments_of(function, "k_segments", k_segments, tuple(batch), m)


def read_segments_of(function: str, argument: str, segments: object, batch: Shape, length: int) -> Array:
    array = as_array(function, argument, segments)
    if array.dtype.kind not in "iu":
        fail(TypeError, function, argument, f"dtype {array.dtype}", "integers")
    if array.dtype.char in "QL" and array.size and int(array.max()) >= 2**63:
        fail(ValueError, function, argument, int(array.max()), "at most 2**63 - 1")
    array = array.astype(I64, copy=False)
    check_batch(function, argument, array, batch, length)
    return array


def _read_sink(function: str, sink: object, shape: Shape, is_one_head: bool) -> Array:
    array = as_data(function, "sink", sink)
    if is_one_head and array.ndim == 0:
        array = array[None]
    *batch, heads, _, _ = shape
    check_batch(function, "sink", array, tuple(batch), heads)
    if not (array < INFINITY).all():
        fail(ValueError, function, "sink", "NaN or +inf", "finite numbers or -inf")
    return array


def _repeat_sink(function: str, sink: Array, dtype: Dtype, n: int) -> Array:
    """Return the sinks of (..., H) heads for n queries each, (..., H, N); no memory is taken."""
    return np.broadcast_to(cast_operand(function, "sink", sink, dtype)[..., None], (*sink.shape, n))


def check_batch(function: str, argument: str, array: Array, batch: Shape, length: int) -> None:
    """Refuse an array that is not (N,) or (batch axes, N); it has no axis of heads."""
    if array.ndim < 1 or array.shape[-1] != length or not broadcasts_to(array.shape[:-1], batch):
        expected = f"({length},)" + (f" or {(*batch, length)}" if batch else "")
        fail(ValueError, function, argument, f"shape {array.shape}", expected)
