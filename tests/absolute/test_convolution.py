"""Convolutions as position encodings: the leak of zero padding, the edges of the kernel, errors."""

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc


def ones(n, d=1):
    return np.ones((n, d))


# ---- zero padding encodes position (Islam et al. 2020) ----


def test_constants_show_the_ends(isa):
    """A kernel of ones on equal tokens: zero padding gives 2, 3, ..., 3, 2; circular padding and replication give 3."""
    results = {p: posenc.conv_position(ones(9), ones(1, 3), padding=p)[:, 0] for p in ("zero", "circular", "replicate")}
    assert np.array_equal(results["zero"], [2, 3, 3, 3, 3, 3, 3, 3, 2])
    assert np.array_equal(results["circular"], np.full(9, 3))
    assert np.array_equal(results["replicate"], np.full(9, 3))


def test_four_layers_of_averages(isa):
    """Each of four layers carries the effect of the ends (taps - 1) / 2 tokens further in, here one token."""
    x = ones(9)
    for layer in range(1, 5):
        x = posenc.conv_position(x, np.full((1, 3), 1 / 3))
        moved = np.abs(x[:, 0] - 1) > 1e-12
        assert np.array_equal(moved, np.minimum(np.arange(9), np.arange(9)[::-1]) < layer)
    assert [f"{v:.3f}" for v in x[:5, 0]] == ["0.432", "0.753", "0.926", "0.988", "1.000"]
    assert np.abs(x - x[::-1]).max() <= 4 * 2**-52  # taps are added from the left, so each layer rounds once


# ---- edges ----


def test_one_token_goes_around_itself(isa):
    """In a ring of one token every tap reads the token. A kernel may reach around once in each direction."""
    x, kernel = np.array([[2.0]]), np.array([[3.0, 5.0, 7.0]])
    assert posenc.conv_position(x, kernel, padding="circular") == 30
    assert posenc.conv_position(x, kernel, padding="replicate") == 30
    assert posenc.conv_position(x, kernel) == 10
    gradient = posenc.conv_position_vjp([[1.0]], x, kernel, padding="circular")
    assert gradient.x == 15
    assert np.array_equal(gradient.kernel, [[2, 2, 2]])
    with pytest.raises(ValueError, match="goes around once"):
        posenc.conv_position(x, np.ones((1, 4)), padding="circular")  # one tap to the left, two to the right


@pytest.mark.parametrize("d", [1, 33, 64, 97])
@pytest.mark.parametrize("taps", [1, 16, 20])
def test_channels_do_not_matter_to_each_other(d, taps, rng, isa):
    """A channel has the same bits alone and among others, whether its rows are read in place or copied."""
    x, kernel = rng.standard_normal((2, 70, d)).astype("f"), rng.standard_normal((d, taps)).astype("f")
    whole = posenc.conv_position(x, kernel, residual=True)
    for c in {0, d // 2, d - 1}:
        alone = posenc.conv_position(x[..., c : c + 1], kernel[c : c + 1], residual=True)
        assert same_bits(alone, whole[..., c : c + 1])


@pytest.mark.parametrize("n", [1, 3, 8, 65, 129])
def test_tokens_do_not_depend_on_tiles(n, rng, isa):
    """Zeros in front move every token to another place of its tile; its bits do not change."""
    x, kernel = rng.standard_normal((n, 32)).astype("f"), rng.standard_normal((32, 7)).astype("f")
    y = posenc.conv_position(x, kernel)
    for moved in (1, 5, 64):
        longer = posenc.conv_position(np.pad(x, ((moved, 0), (0, 0))), kernel)
        assert same_bits(longer[moved:], y)


def test_a_prefix_is_copied_bit_for_bit(rng):
    x = rng.standard_normal((2, 1000 + 6, 5)).astype("f")
    x[0, 3] = np.nan
    y = posenc.conv_position_2d(x, rng.standard_normal((5, 3, 3)), height=2, width=3, prefix=1000)
    assert same_bits(y[:, :1000], x[:, :1000])
    assert np.isfinite(y[:, 1000:]).all()
    assert same_bits(posenc.conv_position_2d(x, np.ones((5, 3, 3)), height=0, width=3, prefix=1006), x)
    gradient = posenc.conv_position_2d_vjp(x, x, np.ones((5, 3, 3)), height=2, width=3, prefix=1000)
    assert same_bits(gradient.x[:, :1000], x[:, :1000])
    assert np.isfinite(gradient.kernel).all()


def test_the_kernel_gradient_of_many_tokens_is_accurate(rng):
    """Sums of 128 products are float32, longer sums float64. A tile's sum of 32 is off by about sqrt(128) half ulps of
    2**-19, and the sum of 2048 tiles by 45 times that, 5e-4, a fraction of the spacing of the result. A single float32
    sum would be off by 100 spacings."""
    n = 1 << 18
    g, x = (rng.uniform(0, 1, (n, 1)).astype("f") for _ in range(2))
    found = posenc.conv_position_vjp(g, x, np.ones((1, 1), "f")).kernel[0, 0]
    wanted = (g.astype(float) * x).sum()
    assert abs(found - wanted) <= np.spacing(np.float32(wanted))


# ---- errors ----

X, K, K2 = np.ones((2, 12, 3)), np.ones((3, 4)), np.ones((3, 3, 3))
GRID = {"height": 3, "width": 4}
ERRORS = [
    ("conv_position", (X, K), {"left": 4}, "left"), ("conv_position", (X, K), {"left": -1}, "left"),
    ("conv_position", (X, K[:, :0]), {}, "kernel"), ("conv_position", (X, K, np.ones((1, 3))), {}, "bias"),
    ("conv_position", (X, np.ones((3, 26))), {"padding": "circular"}, "kernel"),  # goes around twice
    ("conv_position_2d", (X, K2), {"height": -3, "width": -4}, "height"),
    ("conv_position_2d", (X, K2), {"height": 3, "width": -4}, "width"),
    ("conv_position_2d", (X, K2), {"height": 4, "width": 4, "prefix": -4}, "prefix"),
    ("conv_position_2d", (X, K2), {"height": 3, "width": 3}, "x"),
    ("conv_position_2d", (X, K2), {**GRID, "prefix": 1}, "x"), ("conv_position_2d", (X, K2[:, :0]), GRID, "kernel"),
    ("conv_position_2d", (X, np.ones((3, 8, 3))), {**GRID, "padding": "circular"}, "kernel"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arrays", "options", "argument"), ERRORS)
def test_errors(function, arrays, options, argument):
    for name, cotangents in ((function, ()), (f"{function}_vjp", (X,))):
        with pytest.raises(ValueError, match=rf"^{name}: {argument} (has|is) .+; expected "):
            getattr(posenc, name)(*cotangents, *arrays, **options)
