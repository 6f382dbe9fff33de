"""The layers of the model, each one node of autograd's with its gradient, float32 in and out.

A node costs autograd about 50 us in all, more than the arithmetic of the small ones: so what belongs together is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from autograd.extend import defvjp, defvjp_argnums, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]

EPSILON = np.float32(1e-5)


def _normal(x: Any) -> tuple[Any, Any]:
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
    return centred * inverse, inverse


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def layer_norm(x: Any, gain: Any) -> Any:
    """``gain (x - mean) / sqrt(variance + 1e-5)`` over the last axis."""
    return _normal(x)[0] * gain


def _norm_vjp(g: Any, _: Any, x: Any, gain: Any) -> tuple[Any, Any]:
    normal, inverse = _normal(x)
    scaled = g * gain
    along = (scaled * normal).mean(-1, keepdims=True)
    of_x = inverse * (scaled - scaled.mean(-1, keepdims=True) - normal * along)
    return of_x, (g * normal).sum(tuple(range(g.ndim - 1)))


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def into_heads(x: Any, weight: Any, shape: tuple[int, int, int]) -> Any:
    """``x weight``, (batch n, width), seen as (batch, heads, n, width of a head); `shape` is (batch, n, heads)."""
    return np.dot(x, weight).reshape(*shape, -1).transpose(0, 2, 1, 3)


def _flat(heads: Any) -> Any:
    """(batch, heads, n, width of a head) as (batch n, width)."""
    batch, count, n, width = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch * n, count * width)


def _dot_vjp(g: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    return np.dot(g, weight.T), np.dot(g.T, x).T


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def out_of_heads(seen: Any, weight: Any) -> Any:
    """``x weight`` of what the heads saw, (batch, heads, n, width of a head)."""
    return np.dot(_flat(seen), weight)


def _out_vjp(g: Any, _: Any, seen: Any, weight: Any) -> tuple[Any, Any]:
    batch, heads, n, width = seen.shape
    of_flat, of_weight = _dot_vjp(g, _flat(seen), weight)
    return of_flat.reshape(batch, n, heads, width).transpose(0, 2, 1, 3), of_weight


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def relu_of(x: Any, weight: Any) -> Any:
    """``max(x weight, 0)``; its slope at 0 is 0."""
    return np.maximum(np.dot(x, weight), np.float32(0))


def _at_once(function: Any, vjp: Any) -> None:
    """All gradients of a node from one call: ``vjp(g, result, *arguments)``."""

    def of_node(argnums: tuple[int, ...], result: Any, given: tuple[Any, ...], options: Any) -> Any:
        def gradients(g: Any) -> tuple[Any, ...]:
            every = vjp(g, result, *given)
            return tuple(every[number] for number in argnums)

        return gradients

    defvjp_argnums(function, of_node)


_at_once(layer_norm, _norm_vjp)
_at_once(into_heads, lambda g, _, x, weight, shape: _dot_vjp(_flat(g), x, weight))
_at_once(out_of_heads, _out_vjp)
_at_once(relu_of, lambda g, result, x, weight: _dot_vjp(g * (result > 0), x, weight))


def _shifted(logits: Any) -> Any:
    return logits - logits.max(-1, keepdims=True)


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def cross_entropy(logits: Any, targets: Any) -> Any:
    """Nats for each target: ``log sum exp(logits) - logits[target]``."""
    shifted = _shifted(logits)
    picked = np.take_along_axis(shifted, targets[..., None], -1)[..., 0]
    return np.log(np.exp(shifted).sum(-1)) - picked


def _entropy_of_logits(_: Any, logits: Any, targets: Any) -> Any:
    def vjp(g: Any) -> Any:
        weights = np.exp(_shifted(logits))
        weights /= weights.sum(-1, keepdims=True)
        at = targets[..., None]
        np.put_along_axis(weights, at, np.take_along_axis(weights, at, -1) - np.float32(1), -1)
        return weights * g[..., None]

    return vjp


defvjp(cross_entropy, _entropy_of_logits, argnums=(0,))
