"""Layers of the model. Each is one autograd node with its own gradient. Float32 inputs give float32 results.

Autograd spends about 50 us on a node, more than a small layer takes to compute. So a layer of several operations is
one node.
"""

from __future__ import annotations

import numpy as np

from arrays import Array

from .autograd_typed import Gradients, node

EPSILON = np.float32(1e-5)


def softmax(scores: Array, out: Array | None = None) -> Array:
    """``exp(scores) / sum exp(scores)`` over the last axis."""
    weights: Array = np.subtract(scores, scores.max(-1, keepdims=True), out=out)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    return weights


def _standardize(x: Array) -> tuple[Array, Array]:
    """Return ``(x - mean) / sqrt(variance + EPSILON)`` over the last axis, and ``1 / sqrt(variance + EPSILON)``."""
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
    return centred * inverse, inverse


def _layer_norm_vjp(g: Array, _: Array, x: Array, gain: Array) -> Gradients:
    standardized, inverse = _standardize(x)
    scaled = g * gain
    projection = (scaled * standardized).mean(-1, keepdims=True)
    x_gradient = inverse * (scaled - scaled.mean(-1, keepdims=True) - standardized * projection)
    return x_gradient, (g * standardized).sum(tuple(range(g.ndim - 1)))


@node(_layer_norm_vjp)
def layer_norm(x: Array, gain: Array) -> Array:
    """``gain (x - mean) / sqrt(variance + 1e-5)`` over the last axis."""
    return _standardize(x)[0] * gain


def _dot_vjp(g: Array, x: Array, weight: Array) -> Gradients:
    """Gradients of ``x weight``."""
    return np.dot(g, weight.T), np.dot(g.T, x).T


def _merge_heads(x: Array) -> Array:
    """(batch, heads, n, head width) -> (batch n, width)."""
    batch, heads, n, head_width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch * n, heads * head_width)


def _project_to_heads_vjp(g: Array, _: Array, x: Array, weight: Array, shape: tuple[int, int, int]) -> Gradients:
    return _dot_vjp(_merge_heads(g), x, weight)


@node(_project_to_heads_vjp)
def project_to_heads(x: Array, weight: Array, shape: tuple[int, int, int]) -> Array:
    """``x weight`` split into heads: (batch n, width) -> (batch, heads, n, head width).

    `shape` is (batch, n, heads).
    """
    projected: Array = np.dot(x, weight).reshape(*shape, -1).transpose(0, 2, 1, 3)
    return projected


def _project_from_heads_vjp(g: Array, _: Array, x: Array, weight: Array) -> Gradients:
    batch, heads, n, head_width = x.shape
    merged_gradient, weight_gradient = _dot_vjp(g, _merge_heads(x), weight)
    return merged_gradient.reshape(batch, n, heads, head_width).transpose(0, 2, 1, 3), weight_gradient


@node(_project_from_heads_vjp)
def project_from_heads(x: Array, weight: Array) -> Array:
    """``x weight`` with the heads merged: (batch, heads, n, head width) -> (batch n, width)."""
    projected: Array = np.dot(_merge_heads(x), weight)
    return projected


def _linear_relu_vjp(g: Array, result: Array, x: Array, weight: Array) -> Gradients:
    return _dot_vjp(g * (result > 0), x, weight)


@node(_linear_relu_vjp)
def linear_relu(x: Array, weight: Array) -> Array:
    """``max(x weight, 0)``. The derivative of the maximum is 0 where ``x weight`` is 0."""
    activations: Array = np.maximum(np.dot(x, weight), np.float32(0))
    return activations


def _cross_entropy_vjp(g: Array, _: Array, logits: Array, targets: Array) -> Gradients:
    """``(softmax(logits) - one_hot(targets)) g``."""
    gradient = softmax(logits)
    at = targets[..., None]
    np.put_along_axis(gradient, at, np.take_along_axis(gradient, at, -1) - np.float32(1), -1)
    return (gradient * g[..., None],)


@node(_cross_entropy_vjp)
def cross_entropy(logits: Array, targets: Array) -> Array:
    """Loss of each target in nats: ``log sum exp(logits) - logits[target]``."""
    shifted: Array = logits - logits.max(-1, keepdims=True)
    target_logits = np.take_along_axis(shifted, targets[..., None], -1)[..., 0]
    losses: Array = np.log(np.exp(shifted).sum(-1)) - target_logits
    return losses
