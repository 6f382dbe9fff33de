"""The arguments of `attention` and its gradient that are no arrays or numbers of C: operators, windows, seeds, scales.

All others pass as they are to `_core`, which reads them, finds what depends on several of them, and refuses what is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._core_api import convert, read
from .._core_api.arrays import F64, LARGEST_SCALE32, Array, Dtype
from .._core_api.door import fail, fail_value
from ..bias import operator
from ..bias.operator import Bias, Term
from ..bias.positions import Positions, read_positions
from ..relative.content import ContentBias
from .options import refuse_unknown
from .quantized import Quantized

INFINITY = float("inf")


class Inputs(NamedTuple):
    """Arguments of a call."""

    q: Array
    """The user's queries."""
    arguments: dict[str, Any]
    """Arguments of `_core.attention`: arrays, a term for each part of the operators, parameters."""
    operators: tuple[Bias, ...]
    """Operators that the user passed."""
    head_scale: Array | None
    """The scale of each head. The queries of the arguments are q times these, and the scale of the kernel is 1."""

    @property
    def dtype(self) -> Dtype:
        """The dtype of the arithmetic."""
        return convert.arithmetic(self.q)


def read_inputs(caller: str, q: object, k: object, v: object, options: Mapping[str, Any]) -> Inputs:
    """Return the arguments of `_core` for those of `attention`, for some of its options."""
    refuse_unknown(caller, options)
    arguments: dict[str, Any] = {**options}
    query = read.data("q", q)
    key, arguments["k_scale"] = read_keys(caller, "k", k, query.dtype)
    value, arguments["v_scale"] = read_keys(caller, "v", v, query.dtype)
    operators = read_operators(arguments.pop("bias", None))
    parts = tuple([part for operator in operators for part in operator.parts])
    low, high = read_window(arguments.pop("window", None))
    seed = arguments.pop("seed", None)
    if seed is not None:
        seed = read.index("seed", seed, 0, 2**64 - 1)
        arguments.update(seed_low=seed % 2**32, seed_high=seed >> 32)
    sink = arguments.get("sink")
    if sink is not None:
        sink = read.data("sink", sink)
        if not (sink < INFINITY).all():
            fail(ValueError, "sink", "NaN or +inf", "finite numbers or -inf")
    scale, head_scale = _read_scale(caller, arguments.get("scale"), query, parts)
    arguments.update(q=_scaled(query, head_scale), k=key, v=value, low=low, high=high, sink=sink, scale=scale)
    arguments["bias"] = tuple([_place(part, arguments) for part in parts])
    return Inputs(query, arguments, operators, head_scale)


def _place(part: Bias, arguments: Mapping[str, Any]) -> Term:
    """Return the term of an operator; `_core` finds the positions of most, and Python those of the others."""
    q, k, causal = arguments["q"], arguments["k"], arguments.get("causal", False)
    operator.check_heads(part, q)
    place = part.scheme.kind.place
    if place is None or q.ndim < 2 or k.ndim < 2:  # which _core refuses
        return part.term
    n, m = q.shape[-2], k.shape[-2]
    q_positions, k_positions = arguments.get("q_positions"), arguments.get("k_positions")
    if q_positions is None and k_positions is None:
        positions = Positions(n, m, float(m - n) if arguments.get("align") == "end" else 0.0)
    else:
        positions = read_positions(n, m, q_positions, k_positions)
    high = min(arguments["high"], 0.0) if isinstance(causal, read.BOOLS) and causal else arguments["high"]
    positions = positions._replace(low=arguments["low"], high=high)
    return place(part, operator.resolve_positions(part, positions), convert.arithmetic(q))


def _read_scale(caller: str, scale: object, q: Array, parts: tuple[Bias, ...]) -> tuple[Any, Array | None]:
    """Return the scale of the kernel, and the scale of each head if there is one.

    Only the gradient takes a number in an array without axes as one scale for each head, whose gradients are added.
    """
    if scale is None:
        return default_scale(q.shape[-1] if q.ndim else 0, parts), None
    is_number = isinstance(scale, (*read.BOOLS, *read.INTEGERS, float, str))  # text is refused as a number
    array = None if is_number else read.array("scale", scale)
    readers = [part.name for part in parts if isinstance(part, ContentBias)]
    heads = q.shape[-3] if q.ndim > 2 else 1
    if array is None or array.ndim == 0:
        number = read.number("scale", scale if array is None else array)
        read.check_range("scale", number, convert.arithmetic(q), LARGEST_SCALE32)
        has_gradient = caller == "attention_vjp" and isinstance(scale, np.ndarray) and not readers
        return (1.0, np.full(heads, number)) if has_gradient else (number, None)
    scales = read.data("scale", array).astype(F64, copy=False)
    if scales.shape != (heads,):
        fail(ValueError, "scale", f"shape {scales.shape}", f"a number, or {(heads,)}, one for each head")
    if readers:
        expected = f"a number, because {readers[0]} reads queries and keys"
        fail(TypeError, "scale", f"shape {scales.shape}", expected)
    for head in scales:
        read.check_range("scale", read.number("scale", head), convert.arithmetic(q), LARGEST_SCALE32)
    return 1.0, scales  # no scale of all heads: it could make a head's queries subnormal


def _scaled(q: Array, head_scale: Array | None) -> Array:
    """Return the queries times the scale of each head."""
    if head_scale is None:
        return q
    dtype = convert.arithmetic(q)
    with convert.without_warnings():
        scaled: Array = q.astype(dtype) * per_head(head_scale, q).astype(dtype)
    return scaled


def per_head(scale: Array, q: Array) -> Array:
    """Return numbers of heads with the axes of q."""
    return scale[:, None, None] if q.ndim > 2 else scale


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


def read_operators(bias: object) -> tuple[Bias, ...]:
    """Return the argument `bias` as a tuple."""
    if bias is None or (type(bias) is tuple and not bias):
        return ()
    if isinstance(bias, Bias):
        return (bias,)
    if not isinstance(bias, tuple | Sequence) or not all(isinstance(operator, Bias) for operator in bias):
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a Bias, as dense(array) returns, or several")
    return tuple(bias)


def read_window(window: object) -> tuple[float, float]:
    """Return the lowest and the highest rel that a window leaves visible."""
    if window is None:
        return -INFINITY, INFINITY
    if not isinstance(window, tuple | list) or len(window) != 2:
        fail_value(ValueError, "window", window, "(left, right), each a number or None")
    left, right = window
    low = -INFINITY if left is None else -read.number("window", left)
    return low, INFINITY if right is None else read.number("window", right)


def default_scale(width: int, parts: tuple[Bias, ...]) -> float | None:
    """Return the scale that the operators ask for, if they agree; None is ``width**-0.5``."""
    scales = [(part.name, part.scheme.default_scale(part, width)) for part in parts]
    asked = {scale for _, scale in scales if scale is not None}
    if len(asked) > 1:
        names = sorted({name for name, scale in scales if scale is not None})
        fail_value(ValueError, "scale", None, f"a number, because the defaults of {', '.join(names)} differ")
    return asked.pop() if asked else None
