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
from float32 import angle_error

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


def config(model: str, name: str, **options: Any) -> Any:
    return getattr(import_module(f"transformers.models.{model}.configuration_{model}"), name)(**options)


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng([seed, *shape]).standard_normal(shape))


def drawn(module: Any, seed: int = 0) -> Any:
    """The module in float64 without dropout, with drawn parameters: biases of a new module are zeros."""
    module = module.double().eval()
    for i, parameter in enumerate(module.parameters(), seed):
        parameter.data = normal(*parameter.shape, seed=i) * 0.5
        parameter.requires_grad_(False)
    return module


def split(x: Any, heads: int = H) -> Any:
    """(..., N, H D) -> (..., H, N, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def joined(x: Any) -> np.ndarray:
    """(..., H, N, D) -> (..., N, H D)."""
    return np.asarray(x).swapaxes(-2, -3).reshape(*x.shape[:-3], x.shape[-2], -1)


# ---- DeBERTa ----

BOTH, C2P, P2C = ("c2p", "p2c"), ("c2p",), ("p2c",)
WIDTHS = {BOTH: 12, C2P: 8, P2C: 8}
"""D (1 + terms) is 36 or 16, whose root is exact: they take it in float32."""


def deberta_v2(terms: tuple[str, ...], buckets: int, n: int, shared: bool) -> tuple[Any, ...]:
    """The layer of transformers, its input, and the tables for posenc."""
    module, width = modeling("deberta_v2"), WIDTHS[terms] * H
    options = {
        "hidden_size": width, "num_attention_heads": H, "position_buckets": buckets, "max_position_embeddings": 512,
        "relative_attention": True, "share_att_key": shared, "pos_att_type": "|".join(terms),
        "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0,
    }  # fmt: skip
    layer = drawn(module.DisentangledSelfAttention(config("deberta_v2", "DebertaV2Config", **options)))
    hidden, embeddings = normal(2, n, width) / width**0.5, normal(2 * (buckets if buckets > 0 else 512), width)
    q, k, v = (split(project(hidden)) for project in (layer.query_proj, layer.key_proj, layer.value_proj))
    of_q = (layer.query_proj if shared else layer.pos_query_proj)(embeddings) if "p2c" in terms else None
    of_k = (layer.key_proj if shared else layer.pos_key_proj)(embeddings) if "c2p" in terms else None
    tables = [None if table is None else split(table) for table in (of_q, of_k)]
    return layer, hidden, embeddings, (q, k, v), tables


def bucketed(buckets: int) -> dict[str, Any]:
    return {"buckets": buckets, "max_position": 512} if buckets > 0 else {}


@pytest.mark.parametrize("n", [1, 37, 700])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("buckets", [-1, 256])
@pytest.mark.parametrize("terms", [BOTH, C2P, P2C], ids="|".join)
def test_deberta_v2(terms: tuple[str, ...], buckets: int, shared: bool, n: int) -> None:
    """700 words reach logarithmic buckets, the ends of the table, and, without buckets, clipped distances."""
    layer, hidden, embeddings, (q, k, v), tables = deberta_v2(terms, buckets, n, shared)
    keep = np.random.default_rng(n).random((2, 1, 1, n)) < 0.9
    keep[..., 0] = True  # the peer gives the mean to a query without a visible key
    theirs, _ = layer(hidden, torch.from_numpy(keep), rel_embeddings=embeddings)
    bias = posenc.deberta(*tables, **bucketed(buckets), terms=terms)
    ours = posenc.attention(q, k, v, bias=bias, keep=keep)
    agree("deberta", joined(ours), theirs.numpy(), ROUNDING, "transformers: deberta_v2, attention")
    factor = 1 + len(terms)
    scores = layer.disentangled_attention_bias(q.flatten(0, 1), k.flatten(0, 1), None, embeddings, factor)
    logits = bias.logits(q, k) / np.sqrt(factor * WIDTHS[terms])
    agree("deberta", logits, scores.numpy().reshape(2, H, n, n), ROUNDING, "transformers: deberta_v2, logits")


@pytest.mark.parametrize("terms", [BOTH, P2C], ids="|".join)
def test_deberta_v2_is_not_as_printed(terms: tuple[str, ...]) -> None:
    """Equation 4 of the paper has the other row in its p2c term, which no implementation uses."""
    layer, hidden, embeddings, (q, k, v), tables = deberta_v2(terms, 256, 37, False)
    theirs, _ = layer(hidden, torch.ones(1), rel_embeddings=embeddings)
    printed = posenc.deberta(*tables, **bucketed(256), terms=terms, p2c_index="paper")
    assert np.abs(joined(posenc.attention(q, k, v, bias=printed)) - theirs.numpy()).max() > 0.01


@pytest.mark.parametrize(("buckets", "furthest"), [(256, 512), (64, 128), (32, 512), (4, 9), (3, 60), (2, 512)])
def test_deberta_buckets(buckets: int, furthest: int) -> None:
    """Every distance up to 2000, with a table that is not clipped and whose rows are their own numbers. Of 2 or 3
    buckets none is logarithmic, and the formula of transformers gives the sign."""
    theirs = modeling("deberta_v2").make_log_bucket_position(torch.arange(-2000, 2001), buckets, furthest).numpy()
    half = int(theirs.max()) + 1
    table = np.arange(2.0 * half)[None, :, None]
    bias = posenc.deberta(None, table, buckets=buckets, max_position=furthest, terms=("c2p",))
    ours = bias.logits(np.ones((1, 4001, 1)), np.ones((1, 1, 1)), q_positions=np.arange(-2000, 2001), k_positions=[0])
    agree("deberta", ours[0, :, 0] - half, theirs, 0.0, "transformers: make_log_bucket_position")


@pytest.mark.parametrize("n", [1, 16, 17, 100])
@pytest.mark.parametrize("terms", [BOTH, C2P, P2C], ids="|".join)
def test_deberta_v1(terms: tuple[str, ...], n: int) -> None:
    """transformers cuts the table at rows that no distance reaches; distances beyond 16 are clipped."""
    module, width, furthest = modeling("deberta"), WIDTHS[terms] * H, 16
    options = {
        "hidden_size": width, "num_attention_heads": H, "relative_attention": True, "pos_att_type": "|".join(terms),
        "max_relative_positions": furthest, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0,
    }  # fmt: skip
    layer = drawn(module.DisentangledSelfAttention(config("deberta", "DebertaConfig", **options)))
    hidden, embeddings = normal(2, n, width) / width**0.5, normal(2 * furthest, width)
    q, k, v = split(layer.in_proj(hidden)).chunk(3, dim=-1)
    q, v = q + split(layer.q_bias[None]), v + split(layer.v_bias[None])
    places = module.build_relative_position(q, k)
    theirs, _ = layer(hidden, torch.ones(1), relative_pos=places, rel_embeddings=embeddings)
    of_q = split(layer.pos_q_proj(embeddings)) if "p2c" in terms else None
    of_k = split(layer.pos_proj(embeddings)) if "c2p" in terms else None
    ours = posenc.attention(q, k, v, bias=posenc.deberta(of_q, of_k, terms=terms))
    agree("deberta", joined(ours), theirs.numpy(), ROUNDING, "transformers: deberta, attention")


# ---- Transformer-XL ----


def sinusoids(distances: Any, dim: int) -> Any:
    """Dai et al. 2019: [sin | cos], in float64."""
    angle = distances.double()[:, None] / 10000 ** (torch.arange(0, dim, 2).double() / dim)
    return torch.cat([angle.sin(), angle.cos()], -1)


@pytest.mark.parametrize("clamp", [None, 6])
@pytest.mark.parametrize("segments", [False, True], ids=["", "segments"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (9, 9), (5, 12), (40, 100)])
@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_xlnet(kind: str, n: int, m: int, segments: bool, clamp: int | None) -> None:
    """The shift of M + N rows (uni: M + 1, and a causal mask); memory is the first M - N keys. Clamped distances are a
    smaller K, and the segment term is a dense bias."""
    module, width, d = modeling("xlnet"), 16, 8
    layer = drawn(module.XLNetRelativeAttention(config("xlnet", "XLNetConfig", d_model=width, n_head=H, dropout=0.0)))
    q, k, v = (normal(length, 2, H, d, seed=s) for s, length in enumerate((n, m, m)))
    distances = torch.arange(m, -n if kind == "bi" else -1, -1)
    if clamp is not None:
        distances = distances.clamp(-clamp, clamp)
    rows = torch.einsum("td,dhc->thc", sinusoids(distances, width), layer.r)[:, None].expand(-1, 2, -1, -1)
    mask = torch.triu(torch.ones(n, m), m - n + 1).double()[:, :, None, None] if kind == "uni" else None
    which = np.random.default_rng(0).integers(0, 2, (n, m, 2))
    other = torch.nn.functional.one_hot(torch.from_numpy(which), 2).double() if segments else None
    theirs = layer.rel_attn_core(q, k, v, rows, seg_mat=other, attn_mask=mask)

    table = torch.einsum("td,dhc->htc", torch.from_numpy(posenc.xl_table(clamp or max(m, 1), width)), layer.r)
    bias = [posenc.transformer_xl(table, layer.r_w_bias, layer.r_r_bias)]
    if other is not None:
        of_segment = torch.einsum("ibhd,shd,ijbs->bhij", q + layer.r_s_bias, layer.seg_embed, other)
        bias.append(posenc.dense(of_segment * d**-0.5))
    ours = posenc.attention(
        *(x.permute(1, 2, 0, 3) for x in (q, k, v)), bias=bias, causal=kind == "uni", align="end"
    )  # fmt: skip
    reference = f"transformers: xlnet, {kind}"
    agree("transformer_xl", ours, theirs.permute(1, 2, 0, 3).numpy(), ROUNDING, reference)


@pytest.mark.parametrize("backwards", [False, True], ids=["", "backwards"])
@pytest.mark.parametrize("n", [1, 33, 300])
def test_xl_table(n: int, backwards: bool) -> None:
    """Distances M .. -N + 1 in float32; bi_data reads half of the batch backwards, with reversed rows."""
    model = modeling("xlnet").XLNetModel(
        config("xlnet", "XLNetConfig", d_model=16, n_head=2, n_layer=1, d_inner=8, vocab_size=4, bi_data=True)
    )
    theirs = model.relative_positional_encoding(n, n, bsz=2).detach().numpy()[:, int(backwards)]
    rows = posenc.xl_table(n, 16)[:-1]  # the distances of the peer end at 1 - n
    ours = posenc.xl_table(n, 16)[:0:-1] if backwards else rows
    allowed = angle_error(np.arange(n, -n, -1))
    agree("xl_table", ours, theirs, allowed, "transformers: xlnet")


@pytest.mark.parametrize("n", [2, 3, 64, 130])
def test_conformer(n: int) -> None:
    """The "relative" mode of Wav2Vec2-BERT: 2 N - 1 rows from distance N - 1 down, as in posenc, and a shift of padded
    rows."""
    module, width = modeling("wav2vec2_bert"), 16
    options = {"hidden_size": width, "num_attention_heads": H, "position_embeddings_type": "relative",
               "attn_implementation": "eager", "attention_dropout": 0.0}  # fmt: skip
    layer = drawn(module.Wav2Vec2BertSelfAttention(config("wav2vec2_bert", "Wav2Vec2BertConfig", **options)))
    hidden, places = normal(2, n, width) / 2, normal(1, 2 * n - 1, width)
    theirs, _ = layer(hidden, relative_position_embeddings=places)
    q, k, v = (split(project(hidden)) for project in (layer.linear_q, layer.linear_k, layer.linear_v))
    bias = posenc.transformer_xl(split(layer.linear_pos(places[0])), layer.pos_bias_u, layer.pos_bias_v)
    ours = layer.linear_out(torch.from_numpy(joined(posenc.attention(q, k, v, bias=bias)))).numpy()
    agree("transformer_xl", ours, theirs.numpy(), 10 * ROUNDING, "transformers: wav2vec2_bert, relative")  # 16 channels


# ---- Shaw ----


@pytest.mark.parametrize(("left", "right"), [(8, 8), (64, 8), (2, 5)])
@pytest.mark.parametrize("n", [1, 9, 200])
@pytest.mark.parametrize("model", ["wav2vec2_bert", "seamless_m4t_v2"])
def test_relative_key(model: str, n: int, left: int, right: int) -> None:
    """Both sides of the table of transformers have their own clipping distance; posenc has copies of the last row on
    the shorter side."""
    module, width = modeling(model), 16
    heads = "num_attention_heads" if model == "wav2vec2_bert" else "speech_encoder_attention_heads"
    options = {"hidden_size": width, heads: H, "position_embeddings_type": "relative_key",
               "left_max_position_embeddings": left, "right_max_position_embeddings": right,
               "attn_implementation": "eager", "attention_dropout": 0.0, "speech_encoder_dropout": 0.0}  # fmt: skip
    layer, settings = (
        ("Wav2Vec2BertSelfAttention", "Wav2Vec2BertConfig")
        if model == "wav2vec2_bert"
        else ("SeamlessM4Tv2ConformerSelfAttention", "SeamlessM4Tv2Config")
    )
    layer = drawn(getattr(module, layer)(config(model, settings, **options)))
    hidden = normal(2, n, width) / 2
    theirs, _ = layer(hidden)
    q, k, v = (split(project(hidden)) for project in (layer.linear_q, layer.linear_k, layer.linear_v))
    last = max(left, right)
    table = layer.distance_embedding.weight[np.clip(np.arange(-last, last + 1), -left, right) + left]
    ours = layer.linear_out(torch.from_numpy(joined(posenc.attention(q, k, v, bias=posenc.shaw(table))))).numpy()
    agree("shaw", ours, theirs.numpy(), 10 * ROUNDING, f"transformers: {model}, relative_key")  # 16 channels


# ---- CoPE ----


def x_transformers(name: str) -> ModuleType:
    return pytest.importorskip(f"x_transformers.{name}", reason="x-transformers is not installed")


@pytest.mark.parametrize("rows", [1, 2, 16, 400])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 50), (50, 50), (300, 300), (20, 90)])
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


# ---- gated distance ----


def gates_of_wavlm(layer: Any, hidden: Any) -> Any:
    """WavLM's gates, (B, H, N, 1), typed from Chen et al. 2022, section 3.2, with the sums of 4 of the checkpoints."""
    logits = layer.gru_rel_pos_linear(split(hidden)).unflatten(-1, (2, 4)).sum(-1)
    update, reset = torch.sigmoid(logits).unbind(-1)
    return (2 + update * (reset * layer.gru_rel_pos_const[..., 0] - 1))[..., None]


@pytest.mark.parametrize("n", [1, 2, 65, 200])
def test_wavlm(n: int) -> None:
    """The layer itself, and its gradient: to the gates' weights and to the table, through posenc_bridges.torch."""
    pt = pytest.importorskip("posenc_bridges.torch")
    layer = drawn(modeling("wavlm").WavLMAttention(8 * H, H, num_buckets=32, max_distance=60))
    hidden, grad = normal(2, n, 8 * H, seed=3).requires_grad_(), normal(2, n, 8 * H, seed=4)
    weights = [layer.gru_rel_pos_linear.weight, layer.gru_rel_pos_const, layer.rel_attn_embed.weight, hidden]
    for weight in weights:
        weight.requires_grad_()
    theirs = layer(hidden)[0]
    expected = torch.autograd.grad(theirs, weights, grad)
    q, k, v = (split(project(hidden)) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    table = layer.rel_attn_embed.weight.T[..., None]
    bias = pt.gated_distance(gates_of_wavlm(layer, hidden), table, rows="buckets", max_distance=60)
    ours = layer.out_proj(pt.attention(q, k, v, bias=bias).transpose(1, 2).flatten(2))
    found = torch.autograd.grad(ours, weights, grad)
    size = float(theirs.detach().abs().max())
    agree("gated_distance", ours.detach(), theirs.detach().numpy(), ROUNDING * 16 * size, "transformers: WavLM")
    for one, other in zip(found, expected, strict=True):  # sums over n**2 pairs of numbers of that size
        bound = ROUNDING * n * (1 + float(other.abs().max()))
        agree("gated_distance", one, other.numpy(), bound, "transformers: WavLM, gradient")


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 80), (90, 90), (30, 150)])
def test_inkling(n: int, m: int) -> None:
    """The bias of the model's class, inside grouped causal attention with the model's scale 1 / D."""
    profiles, states = normal(16, 40, seed=5), normal(2, n, H, 16, seed=6)
    layer = modeling("inkling").InklingRelativeLogits(16, 40).double()
    layer.proj.data = profiles
    with torch.no_grad():
        added = layer(states, torch.arange(n) + m - n, torch.arange(m))
    bias = posenc.gated_distance(states.transpose(1, 2), profiles.T, rows="past")
    agree("gated_distance", bias.matrix(n, m, dtype=np.float64), added.numpy(), 5 * ROUNDING, "transformers: Inkling")
    q, (k, v) = normal(2, H, n, 8, seed=1), (normal(2, 1, m, 8, seed=seed) for seed in (2, 3))
    seen = torch.from_numpy(np.tri(n, m, m - n, dtype=bool))
    weights = torch.softmax((q @ k.mT / 8 + added).masked_fill(~seen, -torch.inf), -1)
    ours = posenc.attention(q, k, v, bias=bias, scale=1 / 8, causal=True, align="end")
    agree("gated_distance", ours, (weights @ v).numpy(), 20 * ROUNDING, "transformers: Inkling")


# ---- recipes: stick-breaking attention and PaTH ----


def recipe(name: str) -> Any:
    """A function that docs/guides/recipes-attention.md defines."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "recipes-attention.md").read_text("utf-8")
    lines = page.split(f">>> def {name}(")[1].split("\n>>> ")[0].splitlines()
    namespace = {"np": np, "posenc": posenc}
    exec(f"def {name}(" + "\n".join(line.removeprefix("... ") for line in lines), namespace)
    return namespace[name]


@pytest.mark.parametrize("n", [1, 2, 65])
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


@pytest.mark.parametrize("n", [1, 2, 65])
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
