"""Right implementations of other libraries: posenc.check accuses none of them."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import posenc
from posenc import check, reference

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
from transformers import masking_utils  # noqa: E402
from transformers.models.bloom import modeling_bloom as bloom  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402
from transformers.models.mpt import modeling_mpt as mpt  # noqa: E402
from transformers.models.t5 import modeling_t5 as t5  # noqa: E402

PAIRS: dict[str, Any] = {"dim": 32, "layout": "interleaved", "array": torch.as_tensor}


@pytest.mark.parametrize("r", [8, 32])
def test_rotary_embedding_torch(r: int) -> None:
    ret = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")
    rotary = ret.RotaryEmbedding(r)
    # it counts from 0, whatever the positions
    report = check.rope(lambda x, p: rotary.rotate_queries_or_keys(x), rotary_dim=r, positions=24, **PAIRS)
    assert report, str(report)


@pytest.mark.parametrize("r", [8, 32])
def test_rotations_of_x_transformers(r: int) -> None:
    xt = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")
    angles = xt.RotaryEmbedding(r).forward_from_seq_len(24)[0]
    report = check.rope(lambda x, p: xt.apply_rotary_pos_emb(x, angles), rotary_dim=r, positions=24, **PAIRS)
    assert report, str(report)


@pytest.mark.parametrize("heads", [8, 12, 30])
def test_biases_of_x_transformers(heads: int) -> None:
    xt = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")
    alibi = xt.AlibiPositionalBias(heads)
    assert check.bias(alibi, posenc.alibi(posenc.alibi_slopes(heads)), 5, 33)
    for causal in (True, False):
        module = xt.RelativePositionBias(1.0, causal=causal, heads=heads)
        table = module.relative_attention_bias.weight.detach().numpy()
        assert check.bias(module, posenc.t5(table, bidirectional=not causal), 20, 200)


def torchtune_like(x: Any, positions: Any, base: float = 10000.0) -> Any:
    """Pairs in a last axis of two, as torchtune and lit-gpt compute them; x is (B, N, H, D)."""
    theta = 1.0 / (base ** (torch.arange(0, x.shape[-1], 2).float() / x.shape[-1]))
    angle = torch.einsum("i,j->ij", positions.float(), theta)
    cache = torch.stack([angle.cos(), angle.sin()], -1)[None, :, None]
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    first = pairs[..., 0] * cache[..., 0] - pairs[..., 1] * cache[..., 1]
    second = pairs[..., 1] * cache[..., 0] + pairs[..., 0] * cache[..., 1]
    return torch.stack([first, second], -1).flatten(3).type_as(x)


@pytest.mark.parametrize("dim", [16, 64, 128])
def test_torchtune_like(dim: int) -> None:
    options = {**PAIRS, "dim": dim, "seq_axis": -3}
    assert check.rope(torchtune_like, **options)
    assert check.rope(torchtune_like, positions=1000, **options)


@pytest.mark.parametrize("heads", [1, 6, 8, 12, 20, 71, 112])
def test_slopes(heads: int) -> None:
    assert check.slopes(lambda heads: bloom._get_alibi_slopes(heads, "cpu"), heads)
    assert check.slopes(lambda heads: -mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0], heads)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (64, 256), (128, 1024), (60, 6591), (10, 160)])
def test_buckets(buckets: int, max_distance: int, bidirectional: bool) -> None:
    """The last two have distances at which float32 or float64 falls to the wrong side."""

    def run(rel: Any) -> Any:
        return t5.T5Attention._relative_position_bucket(torch.as_tensor(rel), bidirectional, buckets, max_distance)

    report = check.buckets(run, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    assert report, str(report)


def test_attention_of_transformers() -> None:
    self = types.SimpleNamespace(num_key_value_groups=3, training=False)

    def run(q: Any, k: Any, v: Any) -> Any:
        n, m = q.shape[-2], k.shape[-2]
        seen = torch.arange(m) <= torch.arange(n)[:, None] + m - n
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        return llama.eager_attention_forward(self, q, k, v, mask, 0.25)[0].transpose(1, 2)

    assert check.attention(run, causal=True, n=4, m=9, kv_heads=2, batch=True, array=torch.as_tensor)


def test_masks_of_transformers() -> None:
    i, j = torch.arange(9)[:, None], torch.arange(9)
    assert check.mask(masking_utils.causal_mask_function(0, 0, i, j), 9, causal=True)
    assert check.mask(
        masking_utils.sliding_window_causal_mask_function(4)(0, 0, i, j), 9, window=(3, None), causal=True
    )
    assert check.mask(torch.nn.Transformer.generate_square_subsequent_mask(9), 9, causal=True)


def test_gradients_of_torch() -> None:
    w = posenc.rope_frequencies(8)

    def run(grad: Any, x: Any) -> Any:
        x = torch.as_tensor(x).requires_grad_()
        torchtune_like(x[None, :, None].float(), torch.arange(6)).backward(torch.as_tensor(grad)[None, :, None].float())
        return x.grad

    x = np.random.default_rng(0).standard_normal((6, 8))
    assert check.gradient(run, lambda x: reference.rope(x, 6, w, layout="interleaved"), x, dtype="float32")
