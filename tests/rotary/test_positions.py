"""Positions of images and videos, worked by hand from the authors' descriptions of their models."""

import numpy as np
import pytest

import posenc

GRID = np.indices((3, 2, 3)).reshape(3, -1)


def numbered(parts, style="qwen2_vl", **options):
    return posenc.mrope_positions(parts, style=style, **options)


def test_the_example_of_qwen2_vl():
    """Figure 3 of Wang et al. 2024: a video of 3 x 2 x 2 merged patches, then text, which begins at 3."""
    found = numbered([(3, 4, 4), 5])
    assert found.positions.dtype == np.int64
    assert found.positions[:, :12].tolist() == np.indices((3, 2, 2)).reshape(3, -1).tolist()
    assert found.positions[:, 12:].tolist() == [[3, 4, 5, 6, 7]] * 3
    assert (found.end, found.offset) == (8, 8 - 17)


def test_the_example_of_qwen2_5_vl():
    """The docstring of transformers: 25 positions a second and a step of 2 seconds give 0, 50, 100; text has 101."""
    for style in ("qwen2_5_vl", "qwen2_5_omni", "qwen3_omni"):
        found = numbered([(3, 4, 4, 2.0), 5], style, tokens_per_second=25)
        assert found.positions[0].tolist() == [0] * 4 + [50] * 4 + [100] * 4 + [101, 102, 103, 104, 105]
        assert found.positions[1:, :12].tolist() == np.indices((3, 2, 2)).reshape(3, -1)[1:].tolist()


@pytest.mark.parametrize("style", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2_5_omni", "qwen3_omni"])
def test_text_and_images_are_alike_in_all_styles(style):
    """The coordinates of an image begin at those of the text, also where time counts seconds."""
    options = {} if style in ("qwen2_vl", "qwen3_vl") else {"tokens_per_second": 4}
    found = numbered([4, (1, 4, 6), 3], style, **options)
    image = np.indices((1, 2, 3)).reshape(3, -1) + 4
    assert found.positions[:, 4:10].tolist() == image.tolist()
    assert found.positions[:, 10:].tolist() == [[7, 8, 9]] * 3
    assert (found.end, found.offset) == (10, -3)


def test_text_is_behind_the_largest_coordinate():
    """A video of more steps than rows and columns, and one of fewer."""
    assert numbered([(5, 4, 4), 1]).positions[:, -1].tolist() == [5] * 3
    assert numbered([(2, 4, 8), 1]).positions[:, -1].tolist() == [4] * 3
    assert numbered([2, (3, 4, 4, 0.5), 1], "qwen2_5_vl", tokens_per_second=2).positions[0].tolist() == [
        0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5,
    ]  # fmt: skip


def test_time_is_cut_after_the_product():
    """A step of half a second and 3 positions a second: 0, 1.5, 3, 4.5. Qwen3-Omni keeps the fractions."""
    video = [(4, 2, 2, 0.5), 1]
    assert numbered(video, "qwen2_5_vl", tokens_per_second=3).positions[0].tolist() == [0, 1, 3, 4, 5]
    found = numbered(video, "qwen3_omni", tokens_per_second=3)
    assert found.positions[0].tolist() == [0, 1.5, 3, 4.5, 5.5]
    assert found.end == 6.5


def test_frames_of_qwen3_vl_are_images_behind_their_timestamps():
    found = numbered([3, (1, 4, 4), 2, (1, 4, 4), 1], "qwen3_vl")
    assert found.positions[0].tolist() == [0, 1, 2, *[3] * 4, 5, 6, *[7] * 4, 9]
    assert found.positions[2].tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 9]


@pytest.mark.parametrize("cut", range(6))
def test_parts_continue(cut):
    """Later parts and decoded tokens continue the first ones, by `end` or by `offset`."""
    parts = [3, (1, 4, 6), 0, (4, 2, 8, 0.5), 2]
    options = {"style": "qwen2_5_vl", "tokens_per_second": 4}
    whole = posenc.mrope_positions(parts, **options)
    first = posenc.mrope_positions(parts[:cut], **options)
    rest = posenc.mrope_positions(parts[cut:], start=first.end, **options)
    assert np.array_equal(np.concatenate([first.positions, rest.positions], 1), whole.positions)
    assert rest.end == whole.end
    n = whole.positions.shape[1]
    more = posenc.mrope_positions([*parts, 2], **options).positions[:, n:]
    assert more.tolist() == [[n + whole.offset, n + 1 + whole.offset]] * 3 == [[whole.end, whole.end + 1]] * 3


def test_rows_of_an_array_are_grids():
    assert np.array_equal(
        numbered(np.array([[1, 4, 4], [1, 2, 8]])).positions, numbered([(1, 4, 4), (1, 2, 8)]).positions
    )
    assert numbered([]).positions.shape == (3, 0)
    assert numbered([np.int64(2)], merge=1, start=-3).positions.tolist() == [[-3, -2]] * 3
    assert numbered([(1, 3, 5)], merge=1).positions.shape == (3, 15)


@pytest.mark.parametrize(
    ("kind", "parts", "options", "message"),
    [
        (ValueError, [1], {"style": "qwen"}, "style is 'qwen'; expected one of 'qwen2_vl', "),
        (TypeError, 7, {}, "parts has type int; expected a sequence"),
        (TypeError, [2.5], {}, r"parts\[0\] has type float; expected an integer"),
        (TypeError, [(1, 4.0, 4)], {}, r"parts\[0\] has type float; expected an integer"),
        (ValueError, [3, -1], {}, r"parts\[1\] is -1; expected at least 0"),
        (ValueError, [(0, 4, 4)], {}, r"parts\[0\] is 0; expected at least 1"),
        (ValueError, [(4, 4)], {}, r"parts\[0\] has 2 numbers; expected a grid \(t, h, w\)"),
        (ValueError, [1, (1, 4, 5)], {}, r"parts\[1\] has 4 x 5 patches; expected .* that merge, 2, divides"),
        (ValueError, [(1, 4, 4, 2.0)], {}, r"parts\[0\] has seconds; expected \(t, h, w\)"),
        (ValueError, [(2, 4, 4)], {"style": "qwen3_vl"}, r"parts\[0\] has 2 steps; expected a grid \(1, 4, 4\)"),
        (ValueError, [(2, 4, 4)], {"style": "qwen2_5_vl"}, r"parts\[0\] has no seconds; expected "),
        (ValueError, [(2, 4, 4, 1)], {"style": "qwen2_5_vl"}, "tokens_per_second is None; expected the number"),
        (ValueError, [1], {"tokens_per_second": 2}, "tokens_per_second is 2; expected None"),
        (ValueError, [1], {"merge": 0}, "merge is 0; expected at least 1"),
        (TypeError, [1], {"start": 0.5}, "start has type float; expected an integer"),
        (ValueError, [2**40], {}, r"parts is 1099511627776; expected a table of at most 2\*\*30 numbers"),
    ],
)
def test_refused_parts(kind, parts, options, message):
    with pytest.raises(kind, match=f"^mrope_positions: {message}"):
        posenc.mrope_positions(parts, **{"style": "qwen2_vl", **options})


# ---- grids ----


def test_indices():
    """Wan and HunyuanVideo."""
    assert np.array_equal(posenc.grid_positions((3, 2, 3)), GRID)


def test_cosmos():
    """Time in frames of a video with 24 frames a second: at 12 frames a second a frame counts 2."""
    found = posenc.grid_positions((3, 2, 3), fps=12, unit=(1 / 24, 1, 1))
    np.testing.assert_allclose(found, GRID * [[2], [1], [1]], rtol=1e-15)


def test_ltx():
    """A latent frame is 8 frames and a patch 32 pixels, in units of 20 seconds and 2048 pixels."""
    options = {"fps": 25, "compression": (8, 32, 32), "unit": (20, 2048, 2048)}
    scale = np.array([[8 / 25 / 20], [32 / 2048], [32 / 2048]])
    np.testing.assert_allclose(posenc.grid_positions((3, 2, 3), **options), GRID * scale, rtol=1e-15)
    causal = posenc.grid_positions((3, 1, 1), causal=True, **options)
    np.testing.assert_allclose(causal[0] * 25 * 20, [0, 1, 9])
    centre = posenc.grid_positions((3, 1, 2), causal=True, centre=True, **options)
    np.testing.assert_allclose(centre[0] * 25 * 20, [0.5, 0.5, 5, 5, 13, 13])
    np.testing.assert_allclose(centre[2] * 2048, [16, 48] * 3)


@pytest.mark.parametrize(
    ("kind", "shape", "options", "message"),
    [
        (TypeError, 4, {}, "shape has type int; expected three numbers"),
        (ValueError, (4, 4), {}, "shape has 2 numbers; expected three"),
        (ValueError, (1, 0, 1), {}, "shape is 0; expected at least 1"),
        (TypeError, (1, 1, 2.0), {}, "shape has type float; expected an integer"),
        (ValueError, (2**20, 2**20, 1), {}, r"shape is 1048576; expected a table of at most 2\*\*30 numbers"),
        (ValueError, (1, 1, 1), {"fps": 0}, "fps is 0; expected a positive number"),
        (TypeError, (1, 1, 1), {"compression": 8}, "compression has type int; expected three numbers"),
        (ValueError, (1, 1, 1), {"unit": (1, 0, 1)}, "unit is 0; expected a positive number"),
        (TypeError, (1, 1, 1), {"centre": 1}, "centre has type int; expected True or False"),
        (TypeError, (1, 1, 1), {"causal": None}, "causal has type NoneType; expected True or False"),
    ],
)
def test_refused_grids(kind, shape, options, message):
    with pytest.raises(kind, match=f"^grid_positions: {message}"):
        posenc.grid_positions(shape, **options)
