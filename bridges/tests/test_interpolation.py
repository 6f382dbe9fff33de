"""`interpolate_table` beside `torch.nn.functional.interpolate`: drawn sizes, methods, corners, antialias; gradients."""

import numpy as np
import pytest

import posenc

torch = pytest.importorskip("torch")


def drawn(seed):
    """Sizes and options of a call."""
    rng = np.random.default_rng(seed)
    grid, size = rng.integers(1, 40, 2), rng.integers(1, 40, 2)
    if seed % 4 == 0:  # one axis
        grid[1] = size[1] = 1
    options = {
        "method": str(rng.choice(["linear", "cubic"])), "corners": bool(rng.integers(2)),
        "antialias": bool(rng.integers(2)),
    }  # fmt: skip
    return rng.standard_normal((*grid, 3)), tuple(int(length) for length in size), options


def of_torch(table, size, options):
    mode = {"linear": "bilinear", "cubic": "bicubic"}[options["method"]]
    is_turned = size[1] == 1  # PyTorch 2.13 repeats the first row of a result of width 1 with antialias
    image = table.permute(2, 1, 0) if is_turned else table.permute(2, 0, 1)
    result = torch.nn.functional.interpolate(
        image.contiguous()[None], size[::-1] if is_turned else size, mode=mode, align_corners=options["corners"],
        antialias=options["antialias"],
    )[0]  # fmt: skip
    return result.permute(2, 1, 0) if is_turned else result.permute(1, 2, 0)


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_drawn_combinations(first):
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


def test_a_vit_with_a_class_token():
    """14 x 14 patches and a class token to 16 x 16, as ViT, DeiT and DINO resize their positions."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((1 + 14 * 14, 8)).astype(np.float32)
    patches = torch.tensor(table[1:]).reshape(14, 14, 8).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(patches, (16, 16), mode="bicubic", align_corners=False)
    expected = np.concatenate([table[:1], resized[0].permute(1, 2, 0).reshape(256, 8).numpy()])
    result = posenc.interpolate_table(table, (16, 16), grid=(14, 14), method="cubic", prefix=1)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)  # 16 products of weights that torch has in float32
