"""Agreement of `recurrent` with torch.nn.GRU, and of `floater` with its network written in torch, under autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")

C, E, N = 37, 45, 12
TOLERANCE = {"float64": 1e-13, "float32": 3e-5}
"""Sums of some tens of products over a dozen positions; gradients of weights add up 60 of them and have size 10."""


def same(operator: str, ours: Any, theirs: Any, dtype: str, reference: str = "") -> None:
    theirs = theirs.detach().numpy()
    assert ours.dtype == theirs.dtype
    agree(operator, ours, theirs, TOLERANCE[dtype] * max(1, np.abs(theirs).max()), reference)


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_layers_over_inputs(dtype: str, cell: str) -> None:
    """nn.RNN and nn.GRU on words, with gradients of the words and of all weights."""
    kind = getattr(torch, dtype)
    torch.manual_seed(1)
    made = {"tanh": torch.nn.RNN, "gru": torch.nn.GRU}[cell]
    peer = made(E, C, batch_first=True).to(kind)
    words = torch.randn(5, N, E, dtype=kind, requires_grad=True)
    grad = torch.randn(5, N, C, dtype=kind)
    out, _ = peer(words)
    out.backward(grad)
    sides = [peer.bias_ih_l0.detach().numpy(), peer.bias_hh_l0.detach().numpy()]
    options: dict[str, Any] = {
        "p0": np.zeros(C, dtype), "weight": peer.weight_hh_l0.detach().numpy(),
        "bias": np.stack(sides) if cell == "gru" else sides[0] + sides[1], "n": N, "inputs": words.detach().numpy(),
        "input_weight": peer.weight_ih_l0.detach().numpy(), "cell": cell, "include_p0": False,
    }  # fmt: skip
    same("recurrent", posenc.recurrent(**options), out, dtype)
    ours = posenc.recurrent_vjp(grad.numpy(), **options)
    same("recurrent_vjp", ours.inputs, words.grad, dtype)
    same("recurrent_vjp", ours.input_weight, peer.weight_ih_l0.grad, dtype)
    same("recurrent_vjp", ours.weight, peer.weight_hh_l0.grad, dtype)
