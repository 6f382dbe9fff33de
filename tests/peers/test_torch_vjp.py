"""Agreement of the gradient of attention with torch's automatic differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
sdpa = torch.nn.functional.scaled_dot_product_attention

TOLERANCE = {"float64": 1e-13, "float32": 2e-5}
"""Of the largest entry: sums of some hundred products on both sides."""
SHAPES = [(1, 1), (5, 5), (7, 64), (64, 7), (65, 65), (130, 97)]


@pytest.fixture(params=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def inputs(dtype: str, n: int, m: int, h: int = 4, g: int = 4, d: int = 16, dv: int = 16) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n * 1000 + m)
    shapes = ((2, h, n, dv), (2, h, n, d), (2, g, m, d), (2, g, m, dv))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def tensors(*arrays: np.ndarray) -> tuple[Any, ...]:
    return tuple(torch.from_numpy(np.array(a, order="C")).requires_grad_() for a in arrays)


def ours(arrays: tuple[np.ndarray, ...], **options: Any) -> Any:
    grad, q, k, v = arrays
    out, lse = posenc.attention(q, k, v, return_lse=True, **options)
    return posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, **options)


def agree(found: tuple[Any, ...], grads: tuple[Any, ...], dtype: str) -> None:
    for mine, peer in zip(found, grads, strict=True):
        bound = TOLERANCE[dtype] * max(1.0, float(peer.abs().max()))
        np.testing.assert_allclose(mine, peer.numpy(), rtol=0, atol=bound)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("groups", [1, 4])
def test_scaled_dot_product_attention(dtype: str, groups: int, n: int, m: int) -> None:
    arrays = inputs(dtype, n, m, g=groups)
    q, k, v = tensors(*arrays[1:])
    out = sdpa(q, k, v, is_causal=True, enable_gqa=True)
    grads = torch.autograd.grad(out, (q, k, v), torch.from_numpy(arrays[0]))
    agree(ours(arrays, causal=True, align="start")[:3], grads, dtype)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_dense_formula(dtype: str, n: int, m: int) -> None:
    """A cap, ALiBi, a matrix that rows of the batch share, and a mask with queries that see no key, with their
    gradients."""
    arrays = inputs(dtype, n, m, h=4, g=2)
    rng = np.random.default_rng(1)
    slopes, array = rng.uniform(0, 1, 4), rng.standard_normal((4, n, m))
    keep = rng.random((2, 1, n, m)) < 0.7
    keep[:, :, n // 2] = False
    q, k, v, s, b = tensors(*arrays[1:], slopes, array)
    rel = torch.arange(m)[None, :] - (torch.arange(n)[:, None] + m - n)
    wide_k, wide_v = (x.repeat_interleave(2, 1) for x in (k, v))
    logits = 3.0 * torch.tanh(q @ wide_k.transpose(-1, -2) / 4.0 / 3.0)
    logits = logits + (b - s[:, None, None] * rel.abs()).to(logits.dtype)
    seen = torch.from_numpy(keep)
    weights = torch.where(seen, torch.softmax(torch.where(seen, logits, -1e30), -1), torch.zeros(()).to(logits.dtype))
    grads = torch.autograd.grad(weights @ wide_v, (q, k, v, s, b), torch.from_numpy(arrays[0]))
    found = ours(arrays, softcap=3.0, keep=keep, align="end", bias=(posenc.alibi(slopes), posenc.dense(array)))
    agree((*found[:3], found.bias[0].slopes, found.bias[1].array), grads, dtype)


def test_log_sum_exp(dtype: str) -> None:
    """With a cotangent of lse."""
    arrays = inputs(dtype, 33, 40)
    q, k, v = tensors(*arrays[1:])
    grad_lse = np.random.default_rng(2).standard_normal((2, 4, 33)).astype(dtype)
    logits = q @ k.transpose(-1, -2) / 4.0
    loss = (torch.softmax(logits, -1) @ v * torch.from_numpy(arrays[0])).sum()
    loss = loss + (torch.logsumexp(logits, -1) * torch.from_numpy(grad_lse)).sum()
    out, lse = posenc.attention(*arrays[1:], return_lse=True)
    found = posenc.attention_vjp(*arrays, out=out, lse=lse, grad_lse=grad_lse)
    agree(found[:3], torch.autograd.grad(loss, (q, k, v)), dtype)
