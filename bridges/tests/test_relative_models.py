"""Relative operators inside attention against attention layers of transformers and x-transformers in float64, and
against the forms of the papers typed in torch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")

H = 2
ROUNDING = 1e-13
"""Logits below 10 are sums of about 50 products, each rounded to 2**-53 of that: 6e-14, and weights and results by as
much."""


def modeling(model: str) -> ModuleType:
    return pytest.importorskip(
        f"transformers.models.{model}.modeling_{model}", reason=f"transformers with {model} is not installed"
    )


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng([seed, *shape]).standard_normal(shape))


def drawn(module: Any, seed: int = 0) -> Any:
    """The module in float64 without dropout, with drawn parameters: biases of a new module are zeros."""
    module = module.double().eval()
    for i, parameter in enumerate(module.parameters(), seed):
        parameter.data = normal(*parameter.shape, seed=i) * 0.5
        parameter.requires_grad_(False)
    return module


@pytest.mark.parametrize(("buckets", "furthest"), [(256, 512), (4, 9), (3, 60), (2, 512)])
def test_deberta_buckets(buckets: int, furthest: int) -> None:
    """Every distance up to 2000, with a table that is not clipped and whose rows are their own numbers. Of 2 or 3
    buckets none is logarithmic, and the formula of transformers gives the sign."""
    theirs = modeling("deberta_v2").make_log_bucket_position(torch.arange(-2000, 2001), buckets, furthest).numpy()
    half = int(theirs.max()) + 1
    table = np.arange(2.0 * half)[None, :, None]
    bias = posenc.deberta(None, table, num_buckets=buckets, max_distance=furthest, terms=("c2p",))
    ours = bias.logits(np.ones((1, 4001, 1)), np.ones((1, 1, 1)), q_positions=np.arange(-2000, 2001), k_positions=[0])
    agree("deberta", ours[0, :, 0] - half, theirs, 0.0, "transformers: make_log_bucket_position")


# ---- Shaw ----


@pytest.mark.parametrize(("n", "left", "right"), [(9, 2, 5), (200, 64, 8)])
def test_relative_key(n: int, left: int, right: int) -> None:
    """Both sides of the table of Wav2Vec2-BERT have their own clipping distance; posenc has copies of the last row on
    the shorter side."""
    module, width = modeling("wav2vec2_bert"), 16
    settings = import_module("transformers.models.wav2vec2_bert.configuration_wav2vec2_bert").Wav2Vec2BertConfig(
        hidden_size=width,
        num_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
        attn_implementation="eager",
        attention_dropout=0.0,
    )
    layer = drawn(module.Wav2Vec2BertSelfAttention(settings))
    hidden = normal(2, n, width) / 2
    theirs, _ = layer(hidden)
    projected = (project(hidden) for project in (layer.linear_q, layer.linear_k, layer.linear_v))
    q, k, v = (one.unflatten(-1, (H, -1)).transpose(1, 2) for one in projected)
    last = max(left, right)
    table = layer.distance_embedding.weight[np.clip(np.arange(-last, last + 1), -left, right) + left]
    result = posenc.attention(q, k, v, bias=posenc.shaw(table))
    ours = layer.linear_out(torch.from_numpy(result.swapaxes(-2, -3).reshape(2, n, width))).numpy()
    agree("shaw", ours, theirs.numpy(), 10 * ROUNDING, "transformers: relative_key")  # 16 channels


# ---- CoPE ----


def x_transformers(name: str) -> ModuleType:
    return pytest.importorskip(f"x_transformers.{name}", reason="x-transformers is not installed")


@pytest.mark.parametrize(("n", "m", "rows"), [(1, 1, 1), (1, 50, 16), (50, 50, 2), (300, 300, 400), (20, 90, 16)])
def test_cope(n: int, m: int, rows: int) -> None:
    """The term of the peer is not scaled, so the table of posenc is divided by the scale. Positions are sums of up to M
    gates, each off by 2**-53, and the term changes by less than 100 from row to row."""
    module = drawn(x_transformers("x_transformers").CoPE(8, H, rows))
    q, k, v = normal(2, H, n, 8, seed=1), normal(2, H, m, 8, seed=2), normal(2, H, m, 8, seed=3)
    scale = 8**-0.5
    bias = posenc.cope(module.pos_emb / scale)
    seen = torch.from_numpy(np.tri(n, m, m - n, dtype=bool))
    gated = (scale * q @ k.mT).masked_fill(~seen, -torch.finfo(torch.float64).max)
    added = module(q, gated).numpy()
    allowed = ROUNDING + m * 2.0**-53 * 100
    ours = scale * bias.logits(q, k)
    agree("cope", ours[..., seen.numpy()], added[..., seen.numpy()], allowed, "x_transformers: CoPE")
    logits = torch.where(seen, gated + torch.from_numpy(added), -torch.inf)
    whole = (torch.softmax(logits, -1) @ v).numpy()
    result = posenc.attention(q, k, v, bias=bias, causal=True, align="end")
    agree("cope", result, whole, 6 * allowed, "x_transformers: CoPE, attention")  # values below 6
    attend = x_transformers("attend").Attend(causal=True, heads=H, cope=module)(q, k, v)[0].numpy()
    # its softmax is in float32: logits below 32 are rounded to it, and values are below 6
    agree("cope", result, attend, 6 * 32 * 2.0**-24, "x_transformers: Attend with CoPE")


# ---- FoX ----


def test_data_dependent_alibi_is_fox() -> None:
    """Values, and the gradient with respect to the gates; x-transformers sums in float32 unless its input is wider."""
    xt = x_transformers("x_transformers")
    module = xt.DataDependentAlibi(8, 4).double()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 50, 8)))
    gates = module.to_forget_gates(x).detach().requires_grad_()
    peer = xt.einx.subtract("b h i, b h j -> b h i j", gates.cumsum(-1), gates.cumsum(-1))
    np.testing.assert_array_equal(peer.detach().numpy(), module(x).detach().numpy())
    bias = posenc.fox(gates.detach().numpy())
    agree("fox", bias.matrix(50, dtype=np.float64), peer.detach().numpy(), 1e-14)
    grad = np.tril(np.random.default_rng(1).standard_normal((2, 4, 50, 50)))
    peer.backward(torch.from_numpy(grad))
    agree("fox vjp", bias.matrix_vjp(grad, 50).log_forget, gates.grad.numpy(), 1e-11)


# ---- recipes: stick-breaking attention and PaTH ----


def recipe(name: str) -> Any:
    """A function that docs/guides/recipes-attention.md defines."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "recipes-attention.md").read_text("utf-8")
    lines = page.split(f">>> def {name}(")[1].split("\n>>> ")[0].splitlines()
    namespace = {"np": np, "posenc": posenc}
    exec(f"def {name}(" + "\n".join(line.removeprefix("... ") for line in lines), namespace)
    return namespace[name]


@pytest.mark.parametrize("n", [1, 65])
def test_stick_breaking(n: int) -> None:
    """Tan et al. 2024, equation 2, typed as a product: a key takes a share of the stick that later keys leave."""
    q, k, v = (normal(2, H, n, 8, seed=s) for s in range(3))
    share = torch.sigmoid(q @ k.mT / 8**0.5)
    weights = torch.zeros_like(share)
    for i in range(n):
        left = torch.ones(2, H, dtype=torch.float64)
        for j in reversed(range(i)):
            weights[..., i, j] = share[..., i, j] * left
            left = left * (1 - share[..., i, j])
    out, rest = recipe("stick_breaking")(*(x.numpy() for x in (q, k, v)))
    agree("attention", out, (weights @ v).numpy(), 5 * ROUNDING, "typed: stick-breaking")
    agree("attention", rest, (1 - weights.sum(-1)).numpy(), ROUNDING, "typed: stick-breaking, the rest")


@pytest.mark.parametrize("n", [1, 65])
def test_path(n: int) -> None:
    """Yang et al. 2025, equation 3, typed with whole matrices: q_i H_i ... H_(j+1) k_j."""
    q, k, v = (normal(2, H, n, 8, seed=s) for s in range(3))
    w = torch.nn.functional.normalize(normal(2, H, n, 8, seed=3), dim=-1)
    beta = 2 * torch.sigmoid(normal(2, H, n, seed=4))
    transform = torch.eye(8, dtype=torch.float64) - beta[..., None, None] * w[..., :, None] * w[..., None, :]
    logits = torch.full((2, H, n, n), -torch.inf, dtype=torch.float64)
    for i in range(n):
        between = torch.eye(8, dtype=torch.float64).expand(2, H, 8, 8)
        for j in reversed(range(i + 1)):
            logits[..., i, j] = (q[..., i, None, :] @ between @ k[..., j, :, None])[..., 0, 0] / 8**0.5
            between = between @ transform[..., j, :, :]
    theirs = torch.softmax(logits, -1) @ v
    ours = recipe("path")(*(x.numpy() for x in (q, k, v, w, beta)))
    agree("attention", ours, theirs.numpy(), 5 * ROUNDING, "typed: PaTH")


def test_recipes_have_gradients() -> None:
    """Through the log-sum-exp: stick-breaking in posenc_bridges.torch against autograd of the weights themselves."""
    pt = pytest.importorskip("posenc_bridges.torch")
    q, k, v = (normal(2, H, 30, 8, seed=s).requires_grad_() for s in range(3))
    z, grad = q @ k.mT / 8**0.5, normal(2, H, 30, 8, seed=4)
    before = torch.ones(30, 30).tril(-1).bool()
    left = torch.where(before, -torch.nn.functional.softplus(z), 0).flip(-1).cumsum(-1).flip(-1)
    weights = torch.where(before, torch.exp(z + left), 0)
    out, lse = pt.attention(q, k, v, bias=pt.dense(left), window=(None, -1), return_lse=True)
    shown = torch.isfinite(lse)  # query 0 sees no key
    ours = out * torch.where(shown, torch.exp(torch.where(shown, lse, 0)), 0)[..., None]
    found, expected = (torch.autograd.grad(one, (q, k, v), grad, retain_graph=True) for one in (ours, weights @ v))
    for one, other in zip(found, expected, strict=True):
        agree("attention", one, other.numpy(), 30 * ROUNDING, "typed: stick-breaking, gradient")
