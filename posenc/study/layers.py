"""The layers of the model that autograd has not, or has slowly: each with its gradient, float32 in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
from autograd.extend import defvjp, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]

EPSILON = np.float32(1e-5)


def _normal(x: Any) -> tuple[Any, Any]:
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
    return centred * inverse, inverse


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def layer_norm(x: Any, gain: Any) -> Any:
    """``gain (x - mean) / sqrt(variance + 1e-5)`` over the last axis."""
    return _normal(x)[0] * gain


def _norm_of_x(_: Any, x: Any, gain: Any) -> Any:
    def vjp(g: Any) -> Any:
        normal, inverse = _normal(x)
        scaled = g * gain
        along = (scaled * normal).mean(-1, keepdims=True)
        return inverse * (scaled - scaled.mean(-1, keepdims=True) - normal * along)

    return vjp


defvjp(
    layer_norm,
    _norm_of_x,
    lambda _, x, gain: lambda g: (g * _normal(x)[0]).sum(tuple(range(g.ndim - 1))),
)


@primitive  # type: ignore[untyped-decorator, unused-ignore]
def relu(x: Any) -> Any:
    """``max(x, 0)``; its slope at 0 is 0."""
    return np.maximum(x, np.float32(0))


defvjp(relu, lambda result, x: lambda g: g * (result > 0))


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
