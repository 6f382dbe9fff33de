"""Agreement with Hugging Face transformers: T5's buckets and bias, Swin's index. Code only, no weights."""

# ruff: noqa: E402 -- the peer is imported after the check that it is here
from __future__ import annotations

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.t5.configuration_t5 import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

# settings where float32 logarithms hit every edge: the published models', and more of their kind
SETTINGS = [(32, 128), (32, 256), (64, 128), (64, 256), (64, 512), (128, 1024), (256, 1024), (320, 800), (16, 64)]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), SETTINGS)
def test_buckets(buckets: int, max_distance: int, bidirectional: bool) -> None:
    rel = np.arange(-4 * max_distance, 4 * max_distance + 1)
    options = {"bidirectional": bidirectional, "max_distance": max_distance}
    peer = T5Attention._relative_position_bucket(torch.from_numpy(rel), num_buckets=buckets, **options).numpy()
    agree("t5_bucket", posenc.t5_bucket(rel, buckets=buckets, **options), peer, 0)


def test_where_the_peer_is_wrong() -> None:
    """6 buckets in one direction, 39**3 >= 6591 * 3**2 = 59319 = 39**3: bucket 4; float32 says 3."""
    assert 39**3 == 6591 * 3**2
    peer = T5Attention._relative_position_bucket(
        torch.tensor([-39]), bidirectional=False, num_buckets=6, max_distance=6591
    )
    assert peer.item() == 3
    assert posenc.t5_bucket(-39, bidirectional=False, buckets=6, max_distance=6591) == 4


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("n", "m", "past"), [(7, 7, 0), (300, 300, 0), (1, 300, 299), (20, 300, 280)])
def test_t5_bias_bit_for_bit(n: int, m: int, past: int, decoder: bool) -> None:
    module = T5Attention(T5Config(num_heads=6, is_decoder=decoder), has_relative_attention_bias=True)
    table = np.random.default_rng(0).standard_normal((32, 6), np.float32)
    module.relative_attention_bias.weight.data = torch.from_numpy(table)
    peer = module.compute_bias(n, m, past_seen_tokens=past)[0].detach().numpy()
    ours = posenc.t5(table, bidirectional=not decoder)
    agree("t5", ours.matrix(n, m), peer, 0)
    np.testing.assert_array_equal(ours.matrix(n, m, q_positions=np.arange(n) + past + 0.0), peer)


@pytest.mark.parametrize("window", [(1, 1), (7, 7), (3, 5), (12, 4), (1, 9)])
def test_swin(window: tuple[int, int]) -> None:
    height, width = window
    module = SwinRelativePositionBias(4, window)
    table = np.random.default_rng(0).standard_normal(tuple(module.relative_position_bias_table.shape), np.float32)
    module.relative_position_bias_table.data = torch.from_numpy(table)
    ours = posenc.swin(table, height, width).matrix(height * width)
    agree("swin", ours, module()[0].detach().numpy(), 0)


def test_swin_gradient() -> None:
    module = SwinRelativePositionBias(2, (3, 5))
    grad = np.random.default_rng(0).standard_normal((2, 15, 15))
    module()[0].double().backward(torch.from_numpy(grad))
    ours = posenc.swin(np.zeros((45, 2)), 3, 5).vjp(grad, 15).table
    theirs = module.relative_position_bias_table.grad
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=2e-5)  # float32 sums of 15 numbers
