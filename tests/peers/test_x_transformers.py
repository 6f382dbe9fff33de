"""Agreement with x-transformers: ALiBi, rotary embedding."""

from __future__ import annotations

import numpy as np
import pytest
from agreed import agree
from float32 import angle_error

import posenc

torch = pytest.importorskip("torch", reason="x-transformers runs on torch, which is not installed")
xt = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")

N = 500


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 16, 71, 112])
@pytest.mark.parametrize(("n", "m"), [(1, 9), (17, 17), (5, 33)])
def test_alibi(heads: int, n: int, m: int) -> None:
    """Queries are the last n of m keys there too."""
    peer = xt.AlibiPositionalBias(heads)(n, m).numpy()
    ours = posenc.alibi(posenc.alibi_slopes(heads)).matrix(n, m)
    agree("alibi", ours, peer, 2.0**-22 * np.abs(peer))  # slope and product rounded to float32 on both sides


def test_alibi_of_positions() -> None:
    q, k = np.array([3.0, 10.0, 11.0]), np.array([0.0, 1.0, 5.0, 20.0])
    peer = xt.AlibiPositionalBias(4).forward_custom_pos(torch.from_numpy(q), torch.from_numpy(k)).numpy()
    ours = posenc.alibi(posenc.alibi_slopes(4)).matrix(3, 4, q_positions=q, k_positions=k, dtype=np.float64)
    agree("alibi", ours, peer, 2.0**-22 * np.abs(peer))


@pytest.mark.parametrize("rotary_dim", [8, 16, 32])
def test_rotary(rotary_dim: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, N, 32))
    module = xt.RotaryEmbedding(rotary_dim)
    freqs, _ = module.forward_from_seq_len(N)
    peer = xt.apply_rotary_pos_emb(torch.from_numpy(x), freqs).numpy()
    w = posenc.rope_frequencies(rotary_dim)
    ours = posenc.rope(x, N, w, layout="interleaved", rotary_dim=rotary_dim)
    agree("rope", ours, peer, 9 * angle_error(np.arange(N)))  # |x0| + |x1| < 9


def test_rotary_from_its_own_angles() -> None:
    """With the same angles in float64 nothing is left but rounding."""
    x = np.random.default_rng(1).standard_normal((2, 3, N, 32))
    w = posenc.rope_frequencies(32)
    angle = torch.from_numpy(np.repeat(np.arange(N)[:, None] * w.inv_freq, 2, axis=1))[None]
    peer = xt.apply_rotary_pos_emb(torch.from_numpy(x), angle).numpy()
    ours = posenc.rope(x, N, w, layout="interleaved")
    agree("rope", ours, peer, 1e-12)  # angles to 500, rounded to 6e-14 in NumPy
