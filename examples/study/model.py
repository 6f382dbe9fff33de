"""A byte-level decoder whose attention, forward and backward, is computed by posenc."""

from __future__ import annotations

from math import sqrt

import numpy as np

from arrays import Array, Traced
from posenc_bridges import autograd as traced

from .autograd_typed import anp
from .layers import cross_entropy, layer_norm, linear_relu, project_from_heads, project_to_heads
from .schemes import Scheme, Setting, Weights
from .text import Tokens


def initial(setting: Setting, scheme: Scheme, vocabulary: int, seed: int) -> Weights:
    """Draw the weights of an untrained model.

    The standard deviation is 1 / sqrt(inputs), and less by sqrt(2 layers) for matrices that write to the residual
    stream. The embedding is also the output layer. The arrays of the scheme are drawn last, so that all schemes start
    from the same other weights.
    """
    draw = np.random.default_rng(seed)
    d, depth = setting.width, sqrt(2 * setting.layers)

    def normal(rows: int, columns: int, scale: float) -> Array:
        return (scale * draw.standard_normal((rows, columns))).astype(np.float32)

    weights: Weights = {"embedding": normal(vocabulary, d, d**-0.5), "norm": np.ones(d, np.float32)}
    for layer in range(setting.layers):
        weights |= {
            f"{layer}.norm": np.ones(d, np.float32),
            f"{layer}.q": normal(d, d, d**-0.5),
            f"{layer}.k": normal(d, d, d**-0.5),
            f"{layer}.v": normal(d, d, d**-0.5),
            f"{layer}.out": normal(d, d, d**-0.5 / depth),
            f"{layer}.norm2": np.ones(d, np.float32),
            f"{layer}.up": normal(d, 4 * d, d**-0.5),
            f"{layer}.down": normal(4 * d, d, (4 * d) ** -0.5 / depth),
        }
    return weights | {f"scheme.{name}": array for name, array in scheme.weights(setting, draw).items()}


def losses(setting: Setting, scheme: Scheme, weights: Weights, inputs: Tokens, targets: Tokens) -> Traced:
    """Loss of each target in nats, (batch * n,), from inputs and targets (batch, n)."""
    batch, n = inputs.shape
    d, heads = setting.width, setting.heads
    own = {name.removeprefix("scheme."): array for name, array in weights.items() if name.startswith("scheme.")}
    x = traced.learned(weights["embedding"], inputs) * np.float32(sqrt(d))
    if scheme.encoding is not None:
        x = x + scheme.encoding(setting, own, n)
    if scheme.layer is not None:
        x = scheme.layer(setting, own, x)
    x = anp.reshape(x, (batch * n, d))  # NumPy passes matrix products to BLAS, but not products of stacks
    bias = () if scheme.bias is None else scheme.bias(setting, own)
    for layer in range(setting.layers):
        y = layer_norm(x, weights[f"{layer}.norm"])
        if scheme.layer_bias is not None:
            bias = scheme.layer_bias(setting, own, layer, anp.reshape(y, (batch, n, d)))
        q, k, v = (project_to_heads(y, weights[f"{layer}.{part}"], (batch, n, heads)) for part in "qkv")
        if scheme.rotation is not None:
            q, k = scheme.rotation(setting, q), scheme.rotation(setting, k)
        attended = scheme.attention(q, k, v, bias=bias, causal=True)
        x = x + project_from_heads(attended, weights[f"{layer}.out"])
        y = linear_relu(layer_norm(x, weights[f"{layer}.norm2"]), weights[f"{layer}.up"])
        x = x + anp.dot(y, weights[f"{layer}.down"])
    logits = anp.dot(layer_norm(x, weights["norm"]), weights["embedding"].T)
    return cross_entropy(logits, targets.reshape(-1))
