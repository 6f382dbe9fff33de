"""A byte-level decoder whose attention, forward and backward, is posenc's."""

from __future__ import annotations

from math import sqrt
from typing import Any

import autograd.numpy as anp  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from posenc import autograd as traced

from .layers import cross_entropy, into_heads, layer_norm, out_of_heads, relu_of
from .schemes import Scheme, Setting, Weights


def initial(setting: Setting, scheme: Scheme, vocabulary: int, seed: int) -> Weights:
    """Standard deviation 1 / sqrt(inputs), what writes to the residual stream less by sqrt(2 layers); the embedding
    is also the last layer. The scheme's own arrays come last, so all schemes begin with the same others."""
    draw = np.random.default_rng(seed)
    d, depth = setting.width, sqrt(2 * setting.layers)

    def normal(rows: int, columns: int, scale: float) -> Any:
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


def losses(setting: Setting, scheme: Scheme, weights: Weights, inputs: Any, targets: Any) -> Any:
    """Nats of each target, (batch * n,)."""
    batch, n = inputs.shape
    d, heads = setting.width, setting.heads
    own = {name.removeprefix("scheme."): array for name, array in weights.items() if name.startswith("scheme.")}
    x = traced.learned(weights["embedding"], inputs) * np.float32(sqrt(d))
    if scheme.added is not None:
        x = x + scheme.added(setting, own, n)
    x = anp.reshape(x, (batch * n, d))  # NumPy hands products of matrices to BLAS, not those of stacks
    bias = () if scheme.bias is None else scheme.bias(setting, own)
    for layer in range(setting.layers):
        y = layer_norm(x, weights[f"{layer}.norm"])
        if scheme.layer_bias is not None:
            bias = scheme.layer_bias(setting, own, layer, anp.reshape(y, (batch, n, d)))
        q, k, v = (into_heads(y, weights[f"{layer}.{part}"], (batch, n, heads)) for part in "qkv")
        if scheme.turned is not None:
            q, k = scheme.turned(setting, q), scheme.turned(setting, k)
        seen = scheme.attention(q, k, v, bias=bias, causal=True)
        x = x + out_of_heads(seen, weights[f"{layer}.out"])
        y = relu_of(layer_norm(x, weights[f"{layer}.norm2"]), weights[f"{layer}.up"])
        x = x + anp.dot(y, weights[f"{layer}.down"])
    logits = anp.dot(layer_norm(x, weights["norm"]), weights["embedding"].T)
    return cross_entropy(logits, targets.reshape(-1))
