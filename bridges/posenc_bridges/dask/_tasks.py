"""The tasks: a pair of chunks of attention, sums and merges of the results of pairs, and a chunk of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, cast

import numpy as np

import posenc

from ._arrays import Arguments, Array, Dtype, array_of
from ._operators import Operator, Span

ARRAYS = {
    "q": "*hnD", "k": "*gmD", "v": "*gmV", "k_scale": "*gm", "v_scale": "*gm", "keep": "*hnm",
    "q_positions": "*n", "k_positions": "*m", "q_segments": "*n", "k_segments": "*m", "sink": "*h",
}  # fmt: skip
"""The arrays that a pair reads, in the order of its operands, and their axes."""


def attention(options: Arguments, *operands: object) -> Any:
    """Return out and lse of a pair of chunks, in float32 or wider. All pairs of a call share the options."""
    return posenc.attention(**_arguments(options, operands), return_lse=True)


def attention_vjp(options: Arguments, *operands: Any) -> tuple[Any, ...]:
    """Return the gradients of a pair of chunks in float32 or wider: of q, of (k, v), of sink, of arrays.

    The last operand is the gradient of q of an earlier pair, which is added, or None.
    """
    *given, grad, out, lse, grad_lse, earlier = operands
    arguments = _arguments(options, given)
    for name in ("k", "v", "sink"):
        arguments[name] = None if arguments[name] is None else _widen(arguments[name])
    gradient = posenc.attention_vjp(grad, **arguments, out=out, lse=lse, grad_lse=grad_lse)
    of_arrays = []
    for (_, pieces, distances), arrays in zip(given[-1], gradient.bias, strict=False):  # no operators without keys
        for array, piece in zip(arrays, pieces, strict=False):
            if distances is not None and array is not None:
                whole = np.zeros(piece.shape, array.dtype)
                whole[..., distances] = array
                array = whole
            of_arrays.append(array)
    return add(earlier, gradient.q), (gradient.k, gradient.v), gradient.sink, *of_arrays


def _arguments(options: Arguments, operands: Sequence[Any]) -> Arguments:
    """Return the arguments of `posenc.attention`; without keys, those of a call that sees none.

    The operands are those of `ARRAYS`, and the parts of the operators. Without keys, k and v are their shapes.
    """
    *arrays, parts = operands
    found = {n: array_of(one) if isinstance(one, range) else one for n, one in zip(ARRAYS, arrays, strict=True)}
    found["q"] = _widen(found["q"])
    scales = [found.pop(name) for name in ("k_scale", "v_scale")]
    if isinstance(found["k"], list):
        k, v = (np.zeros(found[name], found["q"].dtype) for name in "kv")
        return {"q": found["q"], "k": k, "v": v, "sink": found["sink"]}
    for name, scale in zip("kv", scales, strict=True):
        found[name] = found[name] if scale is None else posenc.Quantized(found[name], scale)
    return {**found, **options, "bias": [make(*pieces) for make, *pieces in parts]}


def _widen(array: Array) -> Array:
    """Return half precision as float32, so that partial results are float32."""
    return array if array.dtype.itemsize > 2 else array.astype(np.float32)


def merge_parts(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Merge out and lse of pairs with one chunk of queries."""
    outs, lses = zip(*parts, strict=True)
    return posenc.merge_attention(list(outs), list(lses))


def add(a: Any, b: Any) -> Any:
    """Return the sum of two gradients: arrays, tuples of arrays, or None for 0."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, tuple):
        return tuple(map(add, a, b))
    with np.errstate(over="ignore", invalid="ignore"):
        return a + b


def take(array: Array, dtype: Dtype) -> Array:
    """Return an array in another dtype."""
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def matrix(
    operators: Sequence[tuple[Operator, list[bool]]],
    n: int,
    positions: Sequence[range | None],
    dtype: Dtype,
    spans: Sequence[Span],
    *arrays: Array,
) -> Array:
    """Return one chunk of the matrix: the sum of the matrices of parts of operators.

    The operators come with which of `arrays_of` each has. `n` is the number of all queries. `arrays` are those
    positions of queries and keys that are no range, then the pieces of the arrays of the operators.
    """
    given, matrices = iter(arrays), list[Array]()
    ranges = zip(positions, spans, strict=True)
    sides = [next(given) if one is None else array_of(one[slice(*span)]) for one, span in ranges]
    work = dtype if len(operators) == 1 else np.dtype(np.float64)
    for operator, has in operators:
        pieces = [next(given) if one else None for one in has]
        read = [one if is_read else None for one, is_read in zip(pieces, operator.reads(*spans), strict=True)]
        bias = cast("posenc.PositionBias", operator(read, operator.distances(n, *spans)))
        q, k = (one if own is None else None for one, own in zip(sides, bias.own_positions, strict=True))
        matrices.append(bias.matrix(*map(len, sides), q_positions=q, k_positions=k, dtype=work))
    return take(reduce(np.add, matrices), dtype)
