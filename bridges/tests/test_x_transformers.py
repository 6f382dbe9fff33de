"""Agreement with x-transformers: ALiBi, rotary embedding."""

from __future__ import annotations

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="x-transformers runs on torch, which is not installed")
xt = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 16, 71, 112])
@pytest.mark.parametrize(("n", "m"), [(1, 9), (17, 17), (5, 33)])
def test_alibi(heads: int, n: int, m: int) -> None:
    """The queries are the last n of m keys in x-transformers, too."""
    peer = xt.AlibiPositionalBias(heads)(n, m).numpy()
    ours = posenc.alibi(posenc.alibi_slopes(heads)).matrix(n, m)
    agree("alibi", ours, peer, 2.0**-22 * np.abs(peer))  # slope and product rounded to float32 on both sides


def test_alibi_of_positions() -> None:
    q, k = np.array([3.0, 10.0, 11.0]), np.array([0.0, 1.0, 5.0, 20.0])
    peer = xt.AlibiPositionalBias(4).forward_custom_pos(torch.from_numpy(q), torch.from_numpy(k)).numpy()
    ours = posenc.alibi(posenc.alibi_slopes(4)).matrix(3, 4, q_positions=q, k_positions=k, dtype=np.float64)
    agree("alibi", ours, peer, 2.0**-22 * np.abs(peer))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n", "m"), [(9, 9), (1, 200), (130, 200)])
def test_t5(n: int, m: int, causal: bool) -> None:
    module = xt.RelativePositionBias(1.0, causal=causal, heads=6)
    table = module.relative_attention_bias.weight.detach().numpy()
    ours = posenc.t5(table, bidirectional=not causal).matrix(n, m)
    agree("t5", ours, module(n, m).detach().numpy(), 0)


def test_data_dependent_alibi_is_fox() -> None:
    """Values, and the gradient with respect to the gates; x-transformers sums in float32 unless its input is wider."""
    module = xt.DataDependentAlibi(8, 4).double()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 50, 8)))
    gates = module.to_forget_gates(x).detach().requires_grad_()
    peer = xt.einx.subtract("b h i, b h j -> b h i j", gates.cumsum(-1), gates.cumsum(-1))
    np.testing.assert_array_equal(peer.detach().numpy(), module(x).detach().numpy())
    bias = posenc.fox(gates.detach().numpy())
    agree("fox", bias.matrix(50, dtype=np.float64), peer.detach().numpy(), 1e-14)
    grad = np.tril(np.random.default_rng(1).standard_normal((2, 4, 50, 50)))
    peer.backward(torch.from_numpy(grad))
    agree("fox vjp", bias.vjp(grad, 50).log_forget, gates.grad.numpy(), 1e-11)
