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


@pytest.mark.parametrize("streams", [1, 5, 30])
def test_gru(dtype: str, streams: int) -> None:
    """nn.GRU on zeros: its output after k + 1 steps is row k without p0."""
    torch.manual_seed(streams)
    kind = getattr(torch, dtype)
    gru = torch.nn.GRU(1, C, batch_first=True).to(kind)
    h0 = torch.randn(1, streams, C, dtype=kind, requires_grad=True)
    grad = torch.randn(streams, N, C, dtype=kind)
    out, _ = gru(torch.zeros(streams, N, 1, dtype=kind), h0)
    out.backward(grad)
    weight = gru.weight_hh_l0.detach().numpy()
    bias = np.stack([gru.bias_ih_l0.detach().numpy(), gru.bias_hh_l0.detach().numpy()])
    p0 = h0.detach()[0].numpy()
    options: dict[str, Any] = {"cell": "gru", "include_p0": False}
    same("recurrent", posenc.recurrent(p0, weight, bias, N, **options), out, dtype)
    ours = posenc.recurrent_vjp(grad.numpy(), p0, weight, bias, N, **options)
    same("recurrent_vjp", ours.p0, h0.grad[0], dtype)
    same("recurrent_vjp", ours.weight, gru.weight_hh_l0.grad, dtype)
    same("recurrent_vjp", ours.bias, torch.stack([gru.bias_ih_l0.grad, gru.bias_hh_l0.grad]), dtype)


def test_tanh_is_rnn(dtype: str) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    rnn = torch.nn.RNN(1, C, batch_first=True).to(kind)
    h0 = torch.randn(1, 3, C, dtype=kind)
    out, _ = rnn(torch.zeros(3, N, 1, dtype=kind), h0)
    bias = (rnn.bias_ih_l0 + rnn.bias_hh_l0).detach().numpy()
    ours = posenc.recurrent(h0[0].numpy(), rnn.weight_hh_l0.detach().numpy(), bias, N, include_p0=False)
    same("recurrent", ours, out, dtype)


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


def flow(p: Any, first: Any, second: Any, n: int, dt: float, substeps: int) -> Any:
    """FLOATER's network in a loop of the 3/8 rule, as torchdiffeq steps it."""

    def beside(x: Any, t: float) -> Any:
        return torch.cat([x, torch.full((*x.shape[:-1], 1), t, dtype=x.dtype)], dim=-1)

    def h(t: float, p: Any) -> Any:
        return second(beside(torch.relu(first(beside(p, t))), t))

    rows, d = [p], dt / substeps
    for k in range(n - 1):
        for j in range(substeps):
            t = dt * (k + j / substeps)
            k1 = h(t, p)
            k2 = h(t + d / 3, p + d * k1 / 3)
            k3 = h(t + 2 * d / 3, p + d * (k2 - k1 / 3))
            k4 = h(t + d, p + d * (k1 - k2 + k3))
            p = p + d * (k1 + 3 * (k2 + k3) + k4) / 8
        rows.append(p)
    return torch.stack(rows, dim=-2)


@pytest.mark.parametrize("shape", [(), (3, 6), (14,)])
def test_floater(dtype: str, shape: tuple[int, ...]) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(1)
    first, second = torch.nn.Linear(C + 1, E).to(kind), torch.nn.Linear(E + 1, C).to(kind)
    p0 = torch.randn(*shape, C, dtype=kind, requires_grad=True)
    grad = torch.randn(*shape, N, C, dtype=kind)
    out = flow(p0, first, second, N, 0.05, 5)
    out.backward(grad)
    weights = (first.weight, first.bias, second.weight, second.bias)
    arguments = (p0.detach().numpy(), *(w.detach().numpy() for w in weights), N)
    same("floater", posenc.floater(*arguments, dt=0.05), out, dtype)
    ours = posenc.floater_vjp(grad.numpy(), *arguments, dt=0.05)
    for gradient, tensor in zip(ours, (p0, *weights), strict=True):
        same("floater_vjp", gradient, tensor.grad, dtype)
