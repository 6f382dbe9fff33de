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
from .options import DEFAULTS, refuse_unknown
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
    if not options.keys() <= DEFAULTS.keys():
        refuse_unknown(caller, options)
    query, head_scale = read.data("q", q), None
    arguments: dict[str, Any] = {**options, "q": query, "k": k, "v": v}
    for argument in ("k", "v"):
        if isinstance(arguments[argument], Quantized):
            arguments |= read_quantized(caller, argument, arguments[argument], query.dtype)
    operators = read_operators(arguments.pop("bias", None))
    parts = [part for operator in operators for part in operator.parts]
    window, seed, sink = arguments.pop("window", None), arguments.pop("seed", None), options.get("sink")
    if window is not None:
        arguments["low"], arguments["high"] = read_window(window)
    if seed is not None:
        seed = read.index("seed", seed, 0, 2**64 - 1)
        arguments["seed_low"], arguments["seed_high"] = seed % 2**32, seed >> 32
    if sink is not None:
        arguments["sink"] = read.data("sink", sink)
        if not (arguments["sink"] < INFINITY).all():
            fail(ValueError, "sink", "NaN or +inf", "finite numbers or -inf")
    if options.get("scale") is None:
        arguments["scale"] = default_scale(query, parts)
    else:
        arguments["scale"], head_scale = _read_scale(caller, options["scale"], query, parts)
    if head_scale is not None:
        dtype = convert.arithmetic(query)
        with convert.without_warnings():
            arguments["q"] = query.astype(dtype) * per_head(head_scale, query).astype(dtype)
    arguments["bias"] = tuple([_place(part, arguments) for part in parts])
    return Inputs(query, arguments, operators, head_scale)


def _place(part: Bias, arguments: Mapping[str, Any]) -> Term:
    """Return the term of an operator; `_core` finds the positions of most, and Python those of the others."""
    q, place, causal = arguments["q"], part._scheme.kind.place, arguments.get("causal", False)
    operator.check_heads(part, q)
    if place is None:
        return part._term
    k = read.data("k", arguments["k"])
    if q.ndim < 2 or k.ndim < 2:  # which _core refuses
        return part._term
    n, m = q.shape[-2], k.shape[-2]
    q_positions, k_positions = arguments.get("q_positions"), arguments.get("k_positions")
    if q_positions is None and k_positions is None:
        positions = Positions(n, m, float(m - n) if arguments.get("align") == "end" else 0.0)
    else:
        positions = read_positions(n, m, q_positions, k_positions)
    low, high = arguments.get("low", -INFINITY), arguments.get("high", INFINITY)
    high = min(high, 0.0) if isinstance(causal, read.BOOLS) and causal else high
    positions = positions._replace(low=low, high=high)
    return place(part, operator.resolve_positions(part, positions), convert.arithmetic(q))


def _read_scale(caller: str, scale: object, q: Array, parts: Sequence[Bias]) -> tuple[Any, Array | None]:
    """Return the scale of the kernel, and the scale of each head if there is one.

    Only the gradient takes a number in an array without axes as one scale for each head, whose gradients are added.
    """
    is_number = isinstance(scale, (*read.BOOLS, *read.INTEGERS, float, str))  # text is refused as a number
    array = None if is_number else read.array("scale", scale)
    readers = [part.name for part in parts if isinstance(part, ContentBias)]
    heads = operator.heads_of(q)
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


def per_head(scale: Array, q: Array) -> Array:
    """Return numbers of heads with the axes of q."""
    return scale[:, None, None] if q.ndim > 2 else scale


def read_quantized(caller: str, argument: str, value: Quantized, dtype: Dtype) -> dict[str, Array]:
    """Return quantised keys or values as arguments of `_core`; `dtype` is that of q."""
    if caller != "attention":
        fail(TypeError, argument, "type Quantized", "an array, as dequantize() returns")
    if dtype.char == "d":
        fail(TypeError, "q", "dtype float64", f"at most float32, because {argument} is quantised")
    if value.axis != -1:
        fail_value(ValueError, f"axis of {argument}", value.axis, "-1, a scale for each token and head")
    return {argument: value.codes, f"{argument}_scale": value.scale}


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
    if not isinstance(window, tuple | list) or len(window) != 2:
        fail_value(ValueError, "window", window, "(left, right), each a number or None")
    left, right = window
    low = -INFINITY if left is None else -read.number("window", left)
    high = INFINITY if right is None else read.number("window", right)
    if low > high and -1 in (left, right):  # flash-attention writes -1 for no limit
        fail_value(ValueError, "window", window, "None, not -1, for no limit; no query would see a key")
    return low, high


def default_scale(q: Array, parts: Sequence[Bias]) -> float | None:
    """Return the scale that the operators ask for, if they agree; None is ``width**-0.5``."""
    asked: dict[float, str] = {}
    for part in parts:
        scale = part._scheme.default_scale and part._scheme.default_scale(part, q.shape[-1] if q.ndim else 0)
        if scale is not None:
            asked.setdefault(scale, part.name)
    if len(asked) > 1:
        names = ", ".join(sorted({*asked.values()}))
        fail_value(ValueError, "scale", None, f"a number, because the defaults of {names} differ")
    return next(iter(asked), None)
