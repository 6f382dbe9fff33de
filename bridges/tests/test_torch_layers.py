"""Layers of torch and posenc on the same numbers, with gradients by autograd: convolutions, recurrences, and
`interpolate_table` beside `torch.nn.functional.interpolate`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from agreed import agree

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn

MODES = {"zero": "zeros", "circular": "circular", "replicate": "replicate"}
TOLERANCE = {"float64": 1e-14, "float32": 4e-6}
"""Of the largest result: sums of up to a few hundred products, both sides rounding in their own order."""
C, E, N = 37, 45, 12


def layer(conv: type, d: int, taps: Any, padding: str, dtype: str, bias: bool = True) -> Any:
    torch.manual_seed(0)
    pads = tuple(t // 2 for t in taps)
    return conv(d, d, taps, padding=pads, padding_mode=MODES[padding], groups=d, bias=bias, dtype=getattr(torch, dtype))


def arrays(module: Any) -> tuple[np.ndarray, np.ndarray | None]:
    bias = None if module.bias is None else module.bias.detach().numpy()
    return module.weight.detach().numpy()[:, 0], bias


def same(operator: str, ours: Any, theirs: Any, dtype: str, factor: float = 1) -> None:
    assert str(ours.dtype) == dtype
    wanted = theirs.detach().numpy()
    agree(operator, ours, wanted, factor * TOLERANCE[dtype] * max(1.0, np.abs(wanted).max()))


SEQUENCES = [(1, 3, 1), (1, 3, 3), (9, 5, 3), (70, 33, 7), (140, 8, 31), (65, 3, 129)]
GRIDS = [(1, 1, 3, (3, 3)), (5, 7, 4, (3, 3)), (14, 14, 33, (3, 5)), (4, 70, 3, (7, 7))]
SHAPES: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [((n,), d, (taps,)) for n, d, taps in SEQUENCES]
SHAPES += [((height, width), d, taps) for height, width, d, taps in GRIDS]


@pytest.mark.parametrize(
    ("size", "d", "taps", "padding", "residual"),
    [(*shape, *one) for shape, one in zip(SHAPES, itertools.cycle(itertools.product(MODES, (False, True))))],
)
def test_values_and_gradients(
    dtype: str, size: tuple[int, ...], d: int, taps: tuple[int, ...], padding: str, residual: bool
) -> None:
    is_grid = len(size) == 2
    module = layer(nn.Conv2d if is_grid else nn.Conv1d, d, taps, padding, dtype)
    x = torch.randn(2, int(np.prod(size)), d, dtype=getattr(torch, dtype), requires_grad=True)
    y = module(x.mT.unflatten(-1, size)).flatten(2).mT + (x if residual else 0)
    grad = torch.randn_like(y)
    y.backward(grad)
    name, arguments = f"conv_position{'_2d' * is_grid}", (x.detach().numpy(), *arrays(module))
    options: dict[str, Any] = {"padding": padding, "residual": residual}
    options |= dict(zip(("height", "width"), size, strict=True)) if is_grid else {}
    same(name, getattr(posenc, name)(*arguments, **options), y, dtype)
    gradient = getattr(posenc, f"{name}_vjp")(grad.numpy(), *arguments, **options)
    for found, peer in zip(gradient, (x.grad, module.weight.grad[:, 0], module.bias.grad), strict=True):
        same(f"{name}_vjp", found, peer, dtype)


@pytest.mark.parametrize("taps", [3, 4, 128])
def test_one_sided_padding(dtype: str, taps: int) -> None:
    """Wav2Vec2PositionalConvEmbedding with a group per channel: padding taps // 2, an even kernel drops a row. The
    encoder of ConvS2S pads (taps - 1) // 2 in front, and its decoder taps - 1 and drops the last rows."""
    torch.manual_seed(1)
    conv = nn.Conv1d(6, 6, taps, groups=6, dtype=getattr(torch, dtype))
    x = torch.randn(2, 50, 6, dtype=getattr(torch, dtype))
    for left, right in ((taps // 2, taps // 2), ((taps - 1) // 2, taps // 2), (taps - 1, taps - 1)):
        wanted = conv(nn.functional.pad(x.mT, (left, right)))[..., :50].mT
        same("conv_position", posenc.conv_position(x.numpy(), *arrays(conv), left=left), wanted, dtype)


def test_peg_with_a_class_token(dtype: str) -> None:
    """Chu et al. 2021: the class token is copied, and the patches are added to their convolution."""
    module = layer(nn.Conv2d, 8, (3, 3), "zero", dtype)
    x = torch.randn(2, 1 + 6 * 5, 8, dtype=getattr(torch, dtype))
    token, patches = x[:, :1], x[:, 1:]
    image = patches.mT.unflatten(-1, (6, 5))
    y = torch.cat([token, (module(image) + image).flatten(2).mT], 1)
    grid = {"height": 6, "width": 5, "prefix": 1}
    found = posenc.conv_position_2d(x.numpy(), *arrays(module), **grid, residual=True)
    same("conv_position_2d", found, y, dtype)


# ---- recurrences ----


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_layers_over_inputs(dtype: str, cell: str) -> None:
    """nn.RNN and nn.GRU on words, with gradients. Those of weights add up 60 products of size 10."""
    kind = getattr(torch, dtype)
    torch.manual_seed(1)
    made = {"tanh": torch.nn.RNN, "gru": torch.nn.GRU}[cell]
    peer = made(E, C, batch_first=True).to(kind)
    words = torch.randn(5, N, E, dtype=kind, requires_grad=True)
    grad = torch.randn(5, N, C, dtype=kind)
    out, _ = peer(words)
    out.backward(grad)
    sides = [peer.bias_ih_l0.detach().numpy(), peer.bias_hh_l0.detach().numpy()]
    options: dict[str, Any] = {
        "p0": np.zeros(C, dtype), "weight": peer.weight_hh_l0.detach().numpy(),
        "bias": np.stack(sides) if cell == "gru" else sides[0] + sides[1], "n": N, "inputs": words.detach().numpy(),
        "input_weight": peer.weight_ih_l0.detach().numpy(), "cell": cell, "include_p0": False,
    }  # fmt: skip
    same("recurrent", posenc.recurrent(**options), out, dtype, 10)
    ours = posenc.recurrent_vjp(grad.numpy(), **options)
    same("recurrent_vjp", ours.inputs, words.grad, dtype, 10)
    same("recurrent_vjp", ours.input_weight, peer.weight_ih_l0.grad, dtype, 10)
    same("recurrent_vjp", ours.weight, peer.weight_hh_l0.grad, dtype, 10)


# ---- interpolation of a table ----


def drawn(seed: int) -> Any:
    """Sizes and options of a call."""
    rng = np.random.default_rng(seed)
    grid, size = rng.integers(1, 40, 2), rng.integers(1, 40, 2)
    if seed % 4 == 0:  # one axis
        grid[1] = size[1] = 1
    options = {
        "method": str(rng.choice(["linear", "cubic"])),
        "corners": bool(rng.integers(2)),
        "antialias": bool(rng.integers(2)),
    }
    return rng.standard_normal((*grid, 3)), tuple(int(length) for length in size), options


def of_torch(table: Any, size: Any, options: Any) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}[options["method"]]
    is_turned = size[1] == 1  # PyTorch 2.13 repeats the first row of a result of width 1 with antialias
    image = table.permute(2, 1, 0) if is_turned else table.permute(2, 0, 1)
    result = torch.nn.functional.interpolate(
        image.contiguous()[None],
        size[::-1] if is_turned else size,
        mode=mode,
        align_corners=options["corners"],
        antialias=options["antialias"],
    )[0]
    return result.permute(2, 1, 0) if is_turned else result.permute(1, 2, 0)


@pytest.mark.parametrize("first", [0, 40])
def test_drawn_interpolations(first: int) -> None:
    """In double, sums of at most 1,000 terms of size 1: each of some 10 roundings of a term is below 2e-16 of it."""
    for seed in range(first, first + 40):
        table, size, options = drawn(seed)
        traced = torch.tensor(table, requires_grad=True)
        expected = of_torch(traced, size, options)
        result = posenc.interpolate_table(table, size, **options)
        assert np.abs(result - expected.detach().numpy()).max() < 2e-12, (seed, size, options)
        grad = np.random.default_rng(seed).standard_normal(result.shape)
        expected.backward(torch.tensor(grad))
        gradient = posenc.interpolate_table_vjp(grad, table, size, **options).table
        assert np.abs(gradient - traced.grad.numpy()).max() < 2e-12, (seed, size, options)


def test_a_vit_with_a_class_token() -> None:
    """14 x 14 patches and a class token to 16 x 16, as ViT, DeiT and DINO resize their positions."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((1 + 14 * 14, 8)).astype(np.float32)
    patches = torch.tensor(table[1:]).reshape(14, 14, 8).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(patches, (16, 16), mode="bicubic", align_corners=False)
    expected = np.concatenate([table[:1], resized[0].permute(1, 2, 0).reshape(256, 8).numpy()])
    result = posenc.interpolate_table(table, (16, 16), grid=(14, 14), method="cubic", prefix=1)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)  # 16 products of weights that torch has in float32
