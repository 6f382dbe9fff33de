"""Agreement of attention with torch's scaled_dot_product_attention: biases, masks, groups, causality, queries without a
visible key, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreed import agree as compare

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
sdpa = torch.nn.functional.scaled_dot_product_attention

TOLERANCE = {"float64": 1e-14, "float32": 4e-6}
"""Sums of about a hundred products of size 1, weights that add up to 1; torch's own error is as large."""
SHAPES = [(1, 1), (5, 5), (7, 64), (64, 7), (65, 65), (130, 97)]


def inputs(dtype: str, n: int, m: int, h: int = 4, g: int = 4, d: int = 16, dv: int = 16) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n * 1000 + m)
    shapes = ((2, h, n, d), (2, g, m, d), (2, g, m, dv))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def theirs(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, **options: Any) -> np.ndarray:
    if mask is not None:
        options["attn_mask"] = torch.from_numpy(np.array(mask, order="C"))  # torch takes no negative strides
    result: np.ndarray = sdpa(*(torch.from_numpy(a) for a in (q, k, v)), **options).numpy()
    return result


def agree(ours: Any, peer: np.ndarray, dtype: str) -> None:
    assert ours.dtype == peer.dtype
    compare("attention", ours, peer, TOLERANCE[dtype])


CALLS: dict[str, tuple[list[tuple[int, int]], dict[str, int], dict[str, Any], dict[str, Any]]] = {
    "plain": (SHAPES, {}, {}, {}),
    **{f"scale {scale}": ([(9, 33)], {}, {"scale": scale}, {"scale": scale}) for scale in (0.0, -0.5, 1.0)},
    "value width": ([(9, 33)], {"d": 24, "dv": 5}, {}, {}),
    "causal": (SHAPES, {}, {"causal": True, "align": "start"}, {"is_causal": True}),
    **{f"groups {g}": ([(33, 40)], {"g": g}, {}, {"enable_gqa": True}) for g in (1, 2, 4)},
}
"""The lengths, the sizes of the arguments, our options, and those of torch."""


@pytest.mark.parametrize(("name", "n", "m"), [(name, *shape) for name, row in CALLS.items() for shape in row[0]])
def test_options(dtype: str, name: str, n: int, m: int) -> None:
    _, sizes, ours, options = CALLS[name]
    arrays = inputs(dtype, n, m, **sizes)
    agree(posenc.attention(*arrays, **ours), theirs(*arrays, **options), dtype)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("groups", [1, 4])
def test_gradient(dtype: str, groups: int, n: int, m: int) -> None:
    """Bounds are relative to the largest entry: sums of some hundred products on both sides."""
    arrays = inputs(dtype, n, m, g=groups)
    tensors = [torch.from_numpy(a).requires_grad_() for a in arrays]
    out = sdpa(*tensors, is_causal=True, enable_gqa=True)
    grad = np.random.default_rng(1).standard_normal(out.shape).astype(dtype)
    found = posenc.attention_vjp(grad, *arrays, causal=True, align="start")
    for ours, peer in zip(found[:3], torch.autograd.grad(out, tensors, torch.from_numpy(grad)), strict=True):
        bound = {"float64": 1e-13, "float32": 2e-5}[dtype] * max(1.0, float(peer.abs().max()))
        compare("attention_vjp", ours, peer.numpy(), bound)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_causal_lower_right_is_aligned_at_the_end(dtype: str, n: int, m: int) -> None:
    """For n > m the first n - m queries see no key: 0 from both."""
    q, k, v = inputs(dtype, n, m)
    ours = posenc.attention(q, k, v, causal=True, align="end")
    agree(ours, theirs(q, k, v, np.tri(n, m, m - n, dtype=bool)), dtype)
    assert (ours[..., : max(n - m, 0), :] == 0).all()


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_keep(dtype: str, n: int, m: int) -> None:
    q, k, v = inputs(dtype, n, m)
    keep = np.random.default_rng(1).random((2, 1, n, m)) < 0.6
    keep[:, :, n // 2] = False  # a query without a visible key in each head
    ours, lse = posenc.attention(q, k, v, keep=keep, return_lse=True)
    agree(ours, theirs(q, k, v, keep), dtype)
    assert (ours[:, :, n // 2] == 0).all()
    assert np.isneginf(lse[:, :, n // 2]).all()


def test_dense_bias_mask_groups_and_causality_together(dtype: str) -> None:
    n, m = 66, 70
    q, k, v = inputs(dtype, n, m, h=6, g=3)
    rng = np.random.default_rng(2)
    bias = rng.standard_normal((2, 6, n, m)).astype(dtype)
    bias[..., 3] = -np.inf
    keep = rng.random((2, 1, n, m)) < 0.7
    seen = keep & np.tri(n, m, m - n, dtype=bool)
    ours = posenc.attention(q, k, v, bias=posenc.dense(bias), keep=keep, causal=True, align="end")
    agree(ours, theirs(q, k, v, np.where(seen, bias, -np.inf).astype(dtype), enable_gqa=True), dtype)


def test_toeplitz_bias_and_positions(dtype: str) -> None:
    """Rotated queries and keys, a Toeplitz bias, a window: one call of posenc, four steps of torch."""
    n = 50
    q, k, v = inputs(dtype, n, n)
    diagonals = np.random.default_rng(3).standard_normal((4, 2 * n - 1))
    w = posenc.rope_frequencies(16)
    q, k = (posenc.rope(x, n, w, layout="half") for x in (q, k))
    rel = np.arange(n)[None, :] - np.arange(n)[:, None]
    bias = np.where((rel >= -8) & (rel <= 3), diagonals[:, rel + n - 1], -np.inf).astype(dtype)
    ours = posenc.attention(q, k, v, bias=posenc.toeplitz(diagonals), window=(8, 3))
    agree(ours, theirs(q, k, v, bias), dtype)


def test_lse_and_merge(dtype: str) -> None:
    q, k, v = inputs(dtype, 20, 60)
    logits = torch.from_numpy(q) @ torch.from_numpy(k).transpose(-1, -2) / 4.0
    parts = [posenc.attention(q, k[:, :, s], v[:, :, s], return_lse=True) for s in (slice(0, 21), slice(21, 60))]
    out, lse = posenc.merge_attention(*zip(*parts, strict=True))
    agree(out, theirs(q, k, v), dtype)
    compare("merge_attention", lse, torch.logsumexp(logits, -1).numpy(), 10 * TOLERANCE[dtype])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_storage(half: str) -> None:
    """Against torch in float64 on the same numbers: float32 arithmetic, and one rounding of the result."""
    q, k, v = (torch.from_numpy(a).to(getattr(torch, half)) for a in inputs("float32", 33, 65))
    if half == "float16":
        stored = [a.numpy() for a in (q, k, v)]
    else:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without ml_dtypes")
        stored = [a.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) for a in (q, k, v)]
    truth = sdpa(q.double(), k.double(), v.double()).numpy()
    ours = posenc.attention(*stored).astype(np.float64)
    half_ulp = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[half]
    compare("attention", ours, truth, half_ulp * np.abs(truth) + TOLERANCE["float32"])


def test_dlpack(dtype: str) -> None:
    """Tensors are arguments without conversion."""
    q, k, v = (torch.from_numpy(a) for a in inputs(dtype, 9, 9))
    agree(posenc.attention(q, k, v), sdpa(q, k, v).numpy(), dtype)
