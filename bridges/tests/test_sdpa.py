"""posenc's scaled_dot_product_attention and PyTorch's: numbers, gradients, errors, and models that call it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")
F = torch.nn.functional

theirs = F.scaled_dot_product_attention
IS_NEW = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
INF = float("inf")
HALF, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
ROUNDOFF = {HALF: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-24, F64: 2.0**-53}


def r(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=F64).to(dtype)


def qkv(n: int = 5, m: int = 6, heads: int = 4, groups: int = 4, dtype: Any = F32, width: int = 8) -> tuple[Any, ...]:
    return r(2, heads, n, 8, dtype=dtype), r(2, groups, m, 8, dtype=dtype), r(2, groups, m, width, dtype=dtype, seed=9)


def keep(*shape: int) -> Any:
    """A mask that leaves the diagonal."""
    return (r(*shape) > 0) | torch.eye(shape[-2], shape[-1], dtype=torch.bool)


def additive(*shape: int, dtype: Any = F32) -> Any:
    return torch.where(keep(*shape), r(*shape, seed=3), -INF).to(dtype)


FIRST = [[True, False], [False, False]]
LOWEST = torch.finfo(F32).min
WAYS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "plain": (qkv(), {}),
    "float16": (qkv(dtype=HALF), {}),
    "bfloat16": (qkv(dtype=BF16), {}),
    "value of another width, bfloat16": (qkv(width=3, dtype=BF16), {}),
    "one head": ((r(5, 8), r(6, 8), r(6, 3)), {}),
    "five axes": ((r(3, 2, 4, 5, 8), r(3, 2, 4, 6, 8), r(3, 2, 4, 6, 8)), {}),
    "query of fewer axes": ((r(5, 8), r(2, 4, 6, 8), r(2, 4, 6, 3)), {}),
    "batch of one query": ((r(1, 4, 5, 8), r(3, 4, 6, 8), r(3, 4, 6, 8)), {}),
    "keys of one head": ((r(2, 4, 5, 8), r(2, 1, 6, 8), r(2, 1, 6, 8)), {}),
    "strided": (tuple(torch.repeat_interleave(one, 2, -1)[..., ::2] for one in qkv(dtype=BF16)), {}),
    "causal": (qkv(6), {"is_causal": True}),
    "causal, fewer queries": (qkv(3), {"is_causal": True}),
    "causal and a mask": (qkv(), {"is_causal": True, "attn_mask": keep(5, 6)}),
    "boolean mask": (qkv(), {"attn_mask": keep(5, 6)}),
    "boolean mask of queries": (qkv(), {"attn_mask": r(5, 1) > 0}),
    "number mask": (qkv(), {"attn_mask": additive(5, 6)}),
    "number mask of keys": (qkv(), {"attn_mask": r(2, 1, 1, 6)}),
    "number mask, float32 and bfloat16": (qkv(dtype=BF16), {"attn_mask": additive(5, 6)}),
    "a row masked": ((r(1, 1, 2, 8),) * 3, {"attn_mask": torch.tensor(FIRST)}),
    "a row of -inf": ((r(1, 1, 2, 8),) * 3, {"attn_mask": torch.tensor([[0, -INF], [-INF, -INF]])}),
    "a row of the lowest number": ((r(1, 1, 2, 8),) * 3, {"attn_mask": torch.tensor([[0, LOWEST], [LOWEST, LOWEST]])}),
    "groups": (qkv(groups=2), {"enable_gqa": True}),
    "groups of different sizes": ((r(2, 4, 5, 8), r(2, 2, 6, 8), r(2, 1, 6, 8)), {"enable_gqa": True}),
    "groups, masked and causal": (qkv(6, groups=2), {"enable_gqa": True, "is_causal": True}),
    "scale": (qkv(), {"scale": 0.5}),
    "scale in a tensor": (qkv(), {"scale": torch.tensor(0.5)}),
    "no keys": ((r(2, 4, 5, 8), r(2, 4, 0, 8), r(2, 4, 0, 3)), {}),
    "no heads": ((r(2, 0, 5, 8), r(2, 0, 6, 8), r(2, 0, 6, 3)), {"enable_gqa": True}),
}
"""Arguments and options of calls that PyTorch computes."""
if IS_NEW:
    WAYS["mask with an axis of one batch"] = (r(4, 5, 8), r(4, 6, 8), r(4, 6, 3)), {"attn_mask": additive(1, 1, 5, 6)}
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "one axis": ((r(8), r(6, 8), r(6, 3)), {}, r"query has shape \(8,\); expected at least 2 axes"),
    "widths": ((r(5, 8), r(6, 7), r(6, 3)), {}, "key has width 7; expected 8"),
    "rows": ((r(5, 8), r(6, 8), r(5, 3)), {}, "value has 5 rows; expected 6"),
    "heads": (qkv(groups=2), {}, "key has 2 heads; expected 1 or 4, or enable_gqa=True"),
    "groups": (qkv(groups=3), {"enable_gqa": True}, "key has 3 heads; expected a divisor of 4"),
    "groups of one head": ((r(5, 8), r(6, 8), r(6, 8)), {"enable_gqa": True}, r"query has shape \(5, 8\)"),
    "dtypes": ((r(5, 8), r(6, 8, dtype=F64), r(6, 8)), {}, r"key has dtype torch\.float64; expected torch\.float32"),
    "complex": ((torch.ones(1, 1, 5, 8, dtype=torch.complex64),) * 3, {}, r"query has dtype torch\.complex64"),
    "mask of another dtype": (qkv(dtype=BF16), {"attn_mask": r(5, 6, dtype=HALF)}, "attn_mask has dtype torch.float16"),
    "shape of the mask": (qkv(), {"attn_mask": r(5, 5)}, r"attn_mask has shape \(5, 5\); expected to broadcast to"),
    "mask without queries": (qkv(), {"attn_mask": r(6)}, r"attn_mask has shape \(6,\); expected at least 2 axes"),
    "mask of more axes": ((r(4, 5, 8), r(4, 6, 8), r(4, 6, 8)), {"attn_mask": r(2, 4, 5, 6)}, r"attn_mask has shape"),
    "mask in a list": (qkv(), {"attn_mask": [[True]]}, "attn_mask has type list; expected a tensor"),
    "no query": ((None, r(6, 8), r(6, 8)), {}, "query has type NoneType; expected a tensor"),
    "integer flag": (qkv(), {"is_causal": 1}, "is_causal has type int; expected True or False"),
    "text for a number": (qkv(), {"dropout_p": "0"}, "dropout_p has type str; expected a probability"),
    "dropout": (qkv(), {"dropout_p": 1.5}, r"dropout_p is 1\.5; expected a probability"),
    "positional scale": ((*qkv(), None, 0.0, False, 0.5), {}, "positional arguments"),
}
"""Calls that PyTorch refuses, too, and posenc's message."""


def ours(*args: Any, **options: Any) -> Any:
    return pt.scaled_dot_product_attention(*args, **options)


def peer(*args: Any, **options: Any) -> Any:
    """PyTorch's function. From 2.14 on it refuses a mask beside is_causal, so the mask has both here."""
    if options.get("is_causal") and "attn_mask" in options:
        seen = torch.ones(args[0].shape[-2], args[1].shape[-2], dtype=torch.bool).tril()
        options |= {"is_causal": False, "attn_mask": options["attn_mask"] & seen}
    return theirs(*args, **options)


def bound(args: tuple[Any, ...], options: dict[str, Any]) -> float:
    """The largest error of a call in its dtype.

    Arithmetic is in float32 or float64. A logit, a sum of D products and a mask, is at most `size` and has an error of
    (D + 4) `size` roundings, counting those of its exponential. A weight is off by twice that factor, and a sum of M
    weighted values by M + 4 roundings more. Then the result is rounded to its dtype; 16-bit products of weights may
    add 1 % of that rounding.
    """
    given = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | options
    q, k, v = (given[name].double() for name in ("query", "key", "value"))
    if not (q.numel() and k.numel() and v.numel()):
        return 0.0 if q.shape[-1] else 8 * 2.0**-24
    scale = abs(float(options.get("scale", q.shape[-1] ** -0.5)))
    size = 1 + scale * q.shape[-1] * float(q.abs().max() * k.abs().max())
    mask = given.get("attn_mask")
    if mask is not None and mask.dtype is not torch.bool:
        size += float(mask[mask > LOWEST].abs().max())
    wide = F64 if given["query"].dtype is F64 else F32
    factor = 2 * (q.shape[-1] + 4) * size + k.shape[-2] + 4
    rounded = 1.01 * ROUNDOFF[given["query"].dtype]
    return float(v.abs().max()) * (factor * ROUNDOFF[wide] + rounded)


def leaves(arguments: Any) -> Any:
    """Arguments of a call whose tensors of numbers are float64 and require gradients."""
    return torch.utils._pytree.tree_map_only(
        torch.Tensor,
        lambda one: one.detach().double().requires_grad_() if one.is_floating_point() and one.ndim else one,
        arguments,
    )


@pytest.mark.parametrize("name", WAYS)
def test_numbers(name: str) -> None:
    """Shapes and dtypes are those of PyTorch; the numbers are within the bound of its results in float64."""
    args, options = WAYS[name]
    out, expected = ours(*args, **options), peer(*args, **options)
    assert out.shape == expected.shape
    assert out.dtype == expected.dtype
    assert out.is_contiguous()
    if out.numel():
        of_call, of_options = leaves((args, options))
        exact = peer(*of_call, **of_options).detach()
        assert float((out.double() - exact).abs().max()) <= bound(args, options)


ABSORBED = "a row of the lowest number"
"""The lse of this row is its mask: log(2) is lost in it. A gradient that reads lse, as PyTorch's kernel without a
gradient of the mask, takes both weights for 1."""


@pytest.mark.parametrize("name", [name for name in WAYS if not name.startswith("no ") and name != ABSORBED])
def test_gradients(name: str) -> None:
    """Gradients of all tensors, the mask included, in float64.

    A gradient is a sum of at most N M H B D products of numbers below 100, with twice the errors of the forward pass.
    """
    found = []
    for function in (ours, peer):
        args, options = leaves(WAYS[name])
        out = function(*args, **options)
        weights = r(*out.shape, dtype=F64, seed=5)
        inputs = [one for one in (*args, *options.values()) if isinstance(one, torch.Tensor) and one.requires_grad]
        found.append(torch.autograd.grad(out, inputs, weights))
    for one, other in zip(*found, strict=True):
        finite = torch.nan_to_num(other)  # PyTorch's gradient of a row without keys is NaN
        assert float((one - finite).abs().max()) <= 2.0**-53 * one.numel() * 1e4


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """Calls that PyTorch refuses are errors here, too, which name the argument."""
    args, options, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=message):
        ours(*args, **options)
    if name == "complex":  # PyTorch has no kernel for it
        return
    with pytest.raises((TypeError, RuntimeError, IndexError)):
        theirs(*args, **options)


@pytest.mark.parametrize("dtype", [F32, F64, HALF, BF16])
def test_autocast(dtype: Any) -> None:
    """The result has PyTorch's dtype and is that of the converted arguments; float64 is not converted."""
    q, k, v = qkv(dtype=dtype)
    mask = additive(5, 6)
    with torch.autocast("cpu", BF16):
        expected, out = theirs(q, k, v), ours(q, k, v)
        assert out.dtype == expected.dtype
        if dtype is F64:
            with pytest.raises(TypeError, match=r"attn_mask has dtype torch\.bfloat16"):
                ours(q, k, v, mask)
            return
        masked = ours(q, k, v, mask)
        assert ours(q, k.bfloat16(), v).dtype == masked.dtype == BF16
    same = [one.bfloat16() for one in (q, k, v)]
    assert torch.equal(out, ours(*same))
    assert torch.equal(masked, ours(*same, mask.bfloat16()))


@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")  # it produces zeros
@pytest.mark.parametrize("variant", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize("n", [3, 6, 9])
def test_causal_biases_of_torch(variant: str, n: int) -> None:
    mask = getattr(import_module("torch.nn.attention.bias"), variant)(n, 6)
    args = qkv(n)
    seen = torch.ones(n, 6, dtype=torch.bool).tril(0 if variant == "causal_upper_left" else 6 - n)
    expected = theirs(*(one.double() for one in args), seen)
    assert float((ours(*args, mask) - expected).abs().max()) <= bound(args, {})
    with pt.replace_sdpa() as replaced:
        assert torch.equal(F.scaled_dot_product_attention(*args, mask), ours(*args, mask))
    assert replaced.calls == 1


def jagged(lengths: list[int], heads: int, **options: Any) -> Any:
    """A leaf (batch, ragged N, heads, 8)."""
    rows = [r(n, heads, 8) for n in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, **options).requires_grad_()


@pytest.mark.parametrize("is_causal", [False, True])
def test_jagged_tensors(is_causal: bool) -> None:
    """PyTorch's function refuses is_causal for them, so each sequence is compared apart."""
    leaves = [jagged([5, 9, 1], 4), *(jagged([5, 9, 1], 2) for _ in "kv")]
    options = {"is_causal": is_causal, "enable_gqa": True}
    out = ours(*(leaf.transpose(1, 2) for leaf in leaves), **options)
    apart = [[row.detach().requires_grad_() for row in leaf.unbind()] for leaf in leaves]
    outs = [theirs(*(one.transpose(0, 1) for one in rows), **options) for rows in zip(*apart, strict=True)]
    for one, other in zip(out.unbind(), outs, strict=True):
        assert (one - other).abs().max() < 1e-5
    gradients = torch.autograd.grad(out.values().square().sum(), leaves)
    sum(one.square().sum() for one in outs).backward()
    for gradient, rows in zip(gradients, apart, strict=True):
        assert all((one - row.grad).abs().max() < 1e-4 for one, row in zip(gradient.unbind(), rows, strict=True))
    with pt.replace_sdpa() as replaced:
        theirs(*(leaf.detach().transpose(1, 2) for leaf in leaves), **options)
    assert (replaced.calls, replaced.left) == (1, [])


def test_refused_nested_tensors() -> None:
    q, k, other = (jagged(lengths, 4).detach().transpose(1, 2) for lengths in ([5, 3], [5, 3], [4, 4]))
    with pytest.raises(NotImplementedError, match="attn_mask is given; expected None, because query is a nested"):
        ours(q, k, k, torch.ones(5, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match="key is no jagged tensor"):
        ours(q, r(2, 4, 5, 8), r(2, 4, 5, 8))
    with pytest.raises(ValueError, match="key has other lengths"):
        ours(q, k, other)
    with pytest.raises(ValueError, match=r"query has shape .*; expected \(batch, heads, ragged axis, width\)"):
        ours(q.transpose(1, 2), k, k)


def test_biases() -> None:
    """A bias is added as the matrix of the operator would be, whose queries start at 0; one that sets a default scale
    keeps it."""
    q, k, v = qkv(3)
    slopes, table = torch.linspace(0.1, 1, 4, requires_grad=True), r(32, 4)
    alibi, t5 = pt.alibi(slopes), pt.t5(table, unscaled=True, bidirectional=True)
    for bias, scale in ((alibi, None), ([alibi], None), (alibi + posenc.sandwich(4, 6), 0.3), (t5, None), (t5, 0.5)):
        operators = bias if isinstance(bias, list) else [bias]
        added = sum(one.matrix(6)[:, :3] for one in operators)
        used = 1.0 if scale is None and bias is t5 else scale
        for options in ({}, {"is_causal": True}, {"attn_mask": additive(2, 1, 3, 6)}):
            mask = torch.as_tensor(added + options.get("attn_mask", 0.0))
            if options.get("is_causal"):
                mask = mask.masked_fill(torch.ones(3, 6, dtype=torch.bool).triu(1), -INF)
            expected = theirs(q, k, v, mask, scale=used)
            out = ours(q, k, v, bias=bias, scale=scale, **options)
            allowed = bound((q, k, v), {"attn_mask": mask.detach(), **({} if used is None else {"scale": used})})
            assert float((out - expected).detach().abs().max()) <= 2 * allowed
    (gradient,) = torch.autograd.grad(ours(q, k, v, bias=alibi).square().sum(), slopes)
    (expected,) = torch.autograd.grad(ours(q, k, v, alibi.matrix(6)[:, :3]).square().sum(), slopes)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


COMPILED = ("one head", "causal, fewer queries", "number mask of keys", "groups of different sizes")


@pytest.mark.parametrize("name", COMPILED)
def test_compiles(name: str) -> None:
    args, options = WAYS[name]
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*args, **options), ours(*args, **options))


# ---- replace_sdpa ----


def named(q: Any, k: Any, v: Any) -> Any:
    return theirs(q, k, v)  # a name that was imported before


def test_calls_are_counted() -> None:
    q, k, v = qkv()
    with pt.replace_sdpa() as replaced:
        out = F.scaled_dot_product_attention(q, k, v)
        assert torch.equal(named(q, k, v), out)
        assert replaced.calls == 2
        F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, k, v.double())
    assert torch.equal(out, ours(q, k, v))
    assert replaced.calls == 2
    assert [reason.split(";")[0] for reason in replaced.left] == [
        "scaled_dot_product_attention: dropout_p is 1.0",
        "scaled_dot_product_attention: value has dtype torch.float64",
    ]
    named(q, k, v)
    assert replaced.calls == 2


def test_layers_of_torch() -> None:
    """Training layers call the function; in evaluation without gradients PyTorch has a kernel for the whole layer."""
    torch.manual_seed(0)
    layer, x = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), r(2, 9, 32)
    expected = layer(x)
    with pt.replace_sdpa() as replaced:
        out = layer(x)
    assert replaced.calls == 1
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)


def transformers_vit() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8
    )
    model, pixels = transformers.ViTModel._from_config(config, attn_implementation="sdpa").eval(), r(2, 3, 32, 32)
    return lambda: model(pixels).last_hidden_state


def diffusers(name: str, sizes: dict[str, Any], **tensors: Any) -> Any:
    pytest.importorskip("diffusers", reason="diffusers is not installed")
    model = getattr(import_module("diffusers"), name)(**sizes).eval()
    return lambda: model(**tensors, return_dict=False)[0]


def wan() -> Any:
    sizes = {
        "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4, "text_dim": 16,
        "freq_dim": 32, "ffn_dim": 32, "num_layers": 2, "rope_max_seq_len": 32,
    }  # fmt: skip
    return diffusers(
        "WanTransformer3DModel",
        sizes,
        hidden_states=r(1, 4, 2, 8, 8),
        timestep=torch.ones(1),
        encoder_hidden_states=r(1, 6, 16),
    )


IMAGE_MODELS = {
    "transformers ViT": (transformers_vit, 3),
    "Wan": (wan, 4),  # self-attention and cross-attention
}


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_models_of_images(name: str) -> None:
    """A model has the same results in the block, and each of its attentions is a call."""
    torch.manual_seed(0)
    make, calls = IMAGE_MODELS[name]
    model = make()
    with torch.no_grad():
        expected = model()
        with pt.replace_sdpa() as replaced:
            out = model()
    assert (replaced.calls, replaced.left) == (calls, [])
    assert float((out - expected).abs().max()) <= 2e-6 * float(expected.abs().max())


def test_compiled_functions_in_the_block() -> None:
    q, k, v = qkv()
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + 1, backend="aot_eager")
    with pt.replace_sdpa():
        out = compiled(q, k, v)
    assert torch.equal(out, ours(q, k, v) + 1)
