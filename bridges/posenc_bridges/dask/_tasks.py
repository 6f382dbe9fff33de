"""The tasks of attention over chunks: a pair of chunks, and sums and merges of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

import posenc

from ._arrays import Arguments, Array, Dtype

Pair: TypeAlias = tuple[Array, Array]
ARRAYS = {
    "q": "*hnD", "k": "*gmD", "v": "*gmV", "k_scale": "*gm", "v_scale": "*gm", "keep": "*hnm",
    "q_positions": "*n", "k_positions": "*m", "q_segments": "*n", "k_segments": "*m", "sink": "*h",
}  # fmt: skip
"""The arrays that a pair reads, in the order of its operands, and their axes."""


@dataclass(frozen=True)
class Forward:
    """A task of one pair of chunks, with the arguments that all pairs share."""

    causal: bool
    window: tuple[float | None, float | None] | None
    scale: float | None
    softcap: float | None
    invariant: bool
    value_width: int

    def __call__(self, *operands: object) -> Pair:
        """Return out and lse of a pair of chunks, in float32 or wider."""
        result: Pair = posenc.attention(**self.arguments(operands), return_lse=True)
        return result

    def arguments(self, operands: Sequence[Any]) -> Arguments:
        """Return the arguments of `posenc.attention`; without keys, those of a call that sees none.

        The operands are those of `ARRAYS`, and the parts of the operators.
        """
        *arrays, parts = operands
        found: Arguments = dict(zip(ARRAYS, arrays, strict=True))
        q, scales = _widen(found.pop("q")), [found.pop(name) for name in ("k_scale", "v_scale")]
        if isinstance(found["k"], list):
            k, v = (np.zeros((*found["k"], 1, 0, width), q.dtype) for width in (q.shape[-1], self.value_width))
            return {"q": q, "k": k, "v": v, "sink": found["sink"]}
        for name, scale in zip("kv", scales, strict=True):
            found[name] = found[name] if scale is None else posenc.Quantized(found[name], scale)
        for name in ("q_positions", "k_positions"):
            if isinstance(found[name], range):
                found[name] = np.arange(found[name].start, found[name].stop, dtype=np.int64)
        shared = {name: value for name, value in asdict(self).items() if name != "value_width"}
        return {"q": q, **found, **shared, "bias": [make(*pieces) for make, *pieces in parts]}


class Backward(Forward):
    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        """Return the gradients of a pair of chunks in float32 or wider: of q, of (k, v), of sink, of arrays.

        The last operand is the gradient of q of an earlier pair, which is added, or None.
        """
        *given, grad, out, lse, grad_lse, earlier = operands
        arguments = self.arguments(given)
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


def _widen(array: Array) -> Array:
    """Return half precision as float32, so that partial results are float32."""
    return array if array.dtype.itemsize > 2 else array.astype(np.float32)


def merge_parts(parts: list[Pair]) -> Pair:
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
