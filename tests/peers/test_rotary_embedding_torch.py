"""Agreement with rotary-embedding-torch: interleaved pairs, offsets, a rotated part, the sequence on another axis."""

from __future__ import annotations

import numpy as np
import pytest
from agreed import agree
from float32 import angle_error

import posenc

torch = pytest.importorskip("torch", reason="rotary-embedding-torch runs on torch, which is not installed")
ret = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")

N, D = 300, 32
SIZE = 9
"""|x0| + |x1| of the numbers used here, by which an error of the angle is multiplied."""


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 3, N, D))


@pytest.mark.parametrize("rotary_dim", [8, 16, D])
@pytest.mark.parametrize("offset", [0, 5000])
def test_queries_or_keys(rotary_dim: int, offset: int) -> None:
    x = values(0)
    module = ret.RotaryEmbedding(rotary_dim, cache_if_possible=False)
    peer = module.rotate_queries_or_keys(torch.from_numpy(x), offset=offset).detach().numpy()
    w = posenc.rope_frequencies(rotary_dim)
    ours = posenc.rope(x, N, w, start=offset, layout="interleaved", rotary_dim=rotary_dim)
    agree("rope", ours, peer, SIZE * angle_error(np.arange(N) + offset))


def test_base() -> None:
    x = values(1)
    module = ret.RotaryEmbedding(D, theta=500000.0, cache_if_possible=False)
    peer = module.rotate_queries_or_keys(torch.from_numpy(x)).detach().numpy()
    ours = posenc.rope(x, N, posenc.rope_frequencies(D, base=500000.0), layout="interleaved")
    agree("rope", ours, peer, SIZE * angle_error(np.arange(N)))


def test_sequence_before_heads() -> None:
    x = values(2).transpose(0, 2, 1, 3)
    module = ret.RotaryEmbedding(D, seq_before_head_dim=True, cache_if_possible=False)
    peer = module.rotate_queries_or_keys(torch.from_numpy(x)).detach().numpy()
    ours = posenc.rope(x, N, posenc.rope_frequencies(D), layout="interleaved", seq_axis=1)
    tolerance = SIZE * angle_error(np.arange(N))[:, None]
    agree("rope", ours, peer, tolerance)


@pytest.mark.parametrize("start", [0, 4, 16])
def test_start_index(start: int) -> None:
    """With the same float64 angles the results differ by roundings only."""
    x = values(3)
    w = posenc.rope_frequencies(16)
    angle = torch.from_numpy(np.repeat(np.arange(N)[:, None] * w.inv_freq, 2, axis=1))
    peer = ret.apply_rotary_emb(angle, torch.from_numpy(x), start_index=start).numpy()
    ours = posenc.rope(x, N, w, layout="interleaved", rotary_dim=16, rotary_offset=start)
    agree("rope", ours, peer, 1e-12)  # angles to 300, rounded to 3e-14 in NumPy
    assert (ours[..., :start] == x[..., :start]).all()
    assert (ours[..., start + 16 :] == x[..., start + 16 :]).all()
