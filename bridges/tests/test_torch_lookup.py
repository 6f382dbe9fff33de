"""Agreement with torch: Embedding and its scatter-add, polar, and their autograd."""

from __future__ import annotations

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_embedding(dtype: str) -> None:
    rng = np.random.default_rng(0)
    table, ids = rng.standard_normal((50, 33)).astype(dtype), rng.integers(0, 50, (4, 200))
    grad = rng.standard_normal((4, 200, 33)).astype(dtype)
    layer = torch.nn.Embedding.from_pretrained(torch.from_numpy(table), freeze=False)
    result = layer(torch.from_numpy(ids))
    agree("learned", posenc.learned(table, ids), result.detach().numpy(), 0)
    result.backward(torch.from_numpy(grad))
    # torch adds the 16 rows of an id one by one in its dtype, of size at most 20
    bound = {"float32": 2e-5, "float64": 4e-14}[dtype]
    agree("learned_vjp", posenc.learned_vjp(grad, table, ids).table, layer.weight.grad.numpy(), bound)


@pytest.mark.parametrize("shape", [(2, 7, 8), (2, 7, 1), (8,)])
def test_polar(shape: tuple[int, ...]) -> None:
    """torch's gradient of a complex number is dL/dre + i dL/dim, the pairing of posenc."""
    rng = np.random.default_rng(3)
    amplitude, where = rng.uniform(0.1, 2, (2, 7, 8)), rng.integers(0, 99, (2, 7)).astype(float)
    w, theta = rng.uniform(-1, 1, shape), rng.uniform(-3, 3, shape)
    leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in (amplitude, w, where, theta)]
    r, tw, tp, t = leaves
    result = torch.polar(r, tw * tp[..., None] + t)
    ours = posenc.complex_order(amplitude, w, where, phase=theta)
    # torch's angle of size 100 is rounded: 1e-14 of an amplitude of 2
    agree("complex_order", ours.view(float), result.detach().numpy().view(float), 1e-13)
    grad = rng.standard_normal((2, 7, 8)) + 1j * rng.standard_normal((2, 7, 8))
    result.backward(torch.from_numpy(grad))
    gradient = posenc.complex_order_vjp(grad, amplitude, w, where, phase=theta)
    for ours_, leaf in zip(gradient, leaves, strict=True):
        # sums of up to 14 numbers of size up to 100 times the error of the angle
        agree("complex_order_vjp", ours_, leaf.grad.numpy(), 1e-11)
