"""Agreement with rotary-embedding-torch and x-transformers on xPos. Their center is half of the length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float32 import angle_error

import posenc

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")

N, D = 300, 32
SIZE = 9 * 1.5
"""|x0| + |x1| of the numbers used here, times the largest scale: zeta**(150 / 512) and its inverse are below 1.5."""


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 3, N, D)).astype(np.float32)


def ours(x: np.ndarray, scale_base: float, downscale: bool) -> np.ndarray:
    return posenc.xpos(
        x, N, posenc.rope_frequencies(D), layout="interleaved", scale_base=scale_base, center=N // 2,
        downscale=downscale,
    )  # fmt: skip


def assert_close(result: np.ndarray, peer: Any) -> None:
    """The peers have float32 angles and scales; a scale is a power of a rounded number, as an angle is a multiple of
    one."""
    assert (np.abs(result - peer.detach().numpy()) <= SIZE * angle_error(np.arange(N))).all()


@pytest.mark.parametrize("scale_base", [512, 700])
def test_rotary_embedding_torch(scale_base: int) -> None:
    ret = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")
    q, k = values(0), values(1)
    module = ret.RotaryEmbedding(D, use_xpos=True, xpos_scale_base=scale_base, cache_if_possible=False)
    peer_q, peer_k = module.rotate_queries_and_keys(torch.from_numpy(q), torch.from_numpy(k))
    assert_close(ours(q, scale_base, False), peer_q)
    assert_close(ours(k, scale_base, True), peer_k)


@pytest.mark.parametrize("scale_base", [512, 700])
def test_x_transformers(scale_base: int) -> None:
    xt = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")
    q, k = values(2), values(3)
    freqs, scale = xt.RotaryEmbedding(D, use_xpos=True, scale_base=scale_base).forward_from_seq_len(N)
    assert_close(ours(q, scale_base, False), xt.apply_rotary_pos_emb(torch.from_numpy(q), freqs, scale))
    assert_close(ours(k, scale_base, True), xt.apply_rotary_pos_emb(torch.from_numpy(k), freqs, scale**-1.0))
