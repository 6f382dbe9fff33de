"""Dropout of attention weights, in functions and in models: seeds of torch's generator, one mask for both passes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import posenc
from posenc import reference

torch = pytest.importorskip("torch", reason="torch is not installed")
pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")
checkpoint = torch.utils.checkpoint.checkpoint

SHAPE = (2, 4, 30, 16)


def qkv(seed: int = 0, dtype: Any = torch.float32) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(SHAPE, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


def seeded(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    torch.manual_seed(7)
    return function(*args, **options)


def assert_one_mask(out: Any, v: Any) -> None:
    """Assert that the gradient of v has the weights of the result: out is linear in v, so <g, out> = <dv, v>. The two
    sums of 3840 products agree within 1e-5 of the sum of their absolute values; another mask is off by a thousand
    times as much."""
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    (d_v,) = torch.autograd.grad(out, v, g, retain_graph=True)
    with torch.no_grad():
        difference, size = ((g * out).sum() - (d_v * v).sum()).abs(), (g * out).abs().sum()
    assert float(difference) <= 1e-5 * float(size)


def test_the_generator_of_torch_decides() -> None:
    q, k, v = qkv()
    out = seeded(pt.attention, q, k, v, dropout=0.2)
    assert torch.equal(out, seeded(pt.attention, q, k, v, dropout=0.2))
    assert not torch.equal(out, pt.attention(q, k, v, dropout=0.2))
    with torch.no_grad():  # another route
        assert torch.equal(out, seeded(pt.attention, q, k, v, dropout=0.2))
    before = torch.get_rng_state()
    pt.attention(q, k, v, dropout=0.0)
    pt.attention(q, k, v, dropout=0.2, seed=1)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", [5, 2**64 - 3])
@pytest.mark.parametrize("make", [int, lambda x: torch.tensor(x - 2**64 if x >= 2**63 else x)], ids=["int", "tensor"])
def test_seeds_are_those_of_numpy(seed: int, make: Callable[[int], Any]) -> None:
    q, k, v = qkv(dtype=torch.float64)
    arrays = [one.detach().numpy() for one in (q, k, v)]
    out = pt.attention(q, k, v, dropout=0.2, seed=make(seed))
    assert np.array_equal(out.detach().numpy(), posenc.attention(*arrays, dropout=0.2, seed=seed))
    found = torch.autograd.grad(out.sum(), (q, k, v))
    expected = posenc.attention_vjp(np.ones(SHAPE), *arrays, dropout=0.2, seed=seed)
    assert all(np.array_equal(one.numpy(), other) for one, other in zip(found, expected[:3], strict=True))


def test_usual_signature() -> None:
    """The seed is one integer of torch's generator."""
    q, k, v = qkv()
    out = seeded(pt.scaled_dot_product_attention, q, k, v, dropout_p=0.3)
    seed = int(seeded(torch.randint, 2**63 - 1, (1,)))
    weights = torch.softmax(q @ k.mT / 4, -1) * torch.tensor(reference.dropout_factors((2, 4, 30, 30), 0.3, seed))
    assert torch.allclose(out, weights.float() @ v, rtol=0, atol=1e-5)
    assert_one_mask(out, v)
    with pytest.raises(NotImplementedError, match=r"dropout_p is 1\.0; expected less than 1"):
        pt.scaled_dot_product_attention(q, k, v, dropout_p=1.0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool) -> None:
    q, k, v = qkv()
    g = torch.randn(SHAPE)
    expected = torch.autograd.grad(seeded(pt.attention, q, k, v, dropout=0.2), (q, k, v), g)
    out = seeded(checkpoint, lambda *x: pt.attention(*x, dropout=0.2), q, k, v, use_reentrant=reentrant)
    out.backward(g)
    assert all(torch.equal(one.grad, other) for one, other in zip((q, k, v), expected, strict=True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend: str) -> None:
    """One graph, whose calls draw new numbers, and whose gradient has the mask of its call."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *x: pt.scaled_dot_product_attention(*x, dropout_p=0.2), fullgraph=True, backend=backend
    )
    q, k, v = qkv()
    first, second = seeded(compiled, q, k, v), compiled(q, k, v)
    assert torch.equal(first, seeded(compiled, q, k, v))
    assert torch.equal(first, seeded(pt.scaled_dot_product_attention, q, k, v, dropout_p=0.2))
    assert not torch.equal(first, second)
    for out in (first, second):
        assert_one_mask(out, v)


def test_vmap() -> None:
    """The rows draw numbers as vmap is told to; without a word it refuses random numbers."""
    q, k, v = (one.detach()[:1].expand(3, -1, -1, -1) for one in qkv())

    def attend(*row: Any) -> Any:
        return pt.attention(*row, dropout=0.2)

    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(attend)(q, k, v)
    same, different = (torch.func.vmap(attend, randomness=how)(q, k, v) for how in ("same", "different"))
    assert torch.equal(same[0], same[1])
    assert not torch.equal(different[0], different[1])


# ---- a model ----


def test_a_model_trains_with_its_default_dropout() -> None:
    """20 steps on one batch: the loss falls, and the seed of torch decides on every number."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import_module("posenc_bridges.transformers").register()
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=64)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="posenc").train()
    words = torch.randint(3, 50, (4, 20))
    torch.manual_seed(1)
    first = model(input_ids=words, labels=words).loss
    torch.manual_seed(1)
    assert torch.equal(model(input_ids=words, labels=words).loss, first)
    assert not torch.equal(model(input_ids=words, labels=words).loss, first)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(20):
        loss = model(input_ids=words, labels=words).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < first.item() - 0.1
