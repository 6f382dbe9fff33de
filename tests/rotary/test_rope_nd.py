"""Rotary encodings by several coordinates."""

import numpy as np
import pytest
from cases.layouts import same_bits
from cases.rope import LAYOUTS, W, heads

import posenc

RNG = np.random.default_rng(3)


def test_each_coordinate_has_its_own_bound_of_angles():
    """A far coordinate with low frequencies goes with a near one with high frequencies, and with one that is unused."""
    positions = np.array([[0.25, 0.5], [2.0**50, 2.0**50 + 1], [2.0**53, 0.0]])
    frequencies = np.array([[300.0, 0.0], [0.0, 1e-9], [0.0, 0.0]])
    x = RNG.standard_normal((2, 2, 4))
    found = posenc.rope_nd(x, positions, frequencies, layout="interleaved")
    for pair in range(2):
        part = slice(2 * pair, 2 * pair + 2)
        own = frequencies[pair, [pair]]
        assert same_bits(found[..., part], posenc.rope(x[..., part], positions[pair], own, layout="interleaved"))
    gradient = posenc.rope_nd_vjp(np.ones_like(x), x, positions, frequencies, layout="interleaved")
    assert same_bits(
        gradient.x, posenc.rope_nd(np.ones_like(x), positions, frequencies, layout="interleaved", inverse=True)
    )
    with pytest.raises(ValueError, match=r"^rope_nd: frequencies has 300\.0; expected at most 2\*\*56 radians"):
        posenc.rope_nd(x, positions[[1, 0, 2]], frequencies, layout="interleaved")
    positions[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"^rope_nd: positions has nan; expected finite positions"):
        posenc.rope_nd(x, positions, frequencies, layout="interleaved")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_coordinates_are_rope(layout, rng, isa):
    """M-RoPE of text, whose tokens have three equal coordinates, is rope bit for bit."""
    x, where = heads(rng, 50), rng.integers(-99, 9999, 50)
    wanted = posenc.rope(x, where, W, layout=layout)
    for options in ({}, {"interleaved": True}, {"interleaved": True, "overflow": 2}):
        for sections in ((6, 5, 5), (16, 0, 0), (0, 0, 16), (1, 15, 0)):
            w = posenc.mrope_frequencies(W, sections, **options)
            same = posenc.rope_nd(x, np.stack([where] * 3), w, layout=layout)
            assert same_bits(same, wanted)


def test_coordinates_keep_every_bit_up_to_2_to_the_53(rng, isa):
    x = np.ones((1, 3, 8), np.float32)
    grid = np.array([[2**53, 2**53 - 1, 2**40 + 1], [-(2**53), 2**24 + 1, 3]])
    w = rng.uniform(0, 2, 2)
    cos, sin = (np.concatenate(parts, -1) for parts in zip(*[posenc.rope_table(row, w) for row in grid], strict=True))
    wanted = posenc.rope_by_table(x, cos, sin, layout="half")
    of_both = posenc.mrope_frequencies(np.concatenate([w, w]), (2, 2))
    assert same_bits(posenc.rope_nd(x, grid, of_both, layout="half"), wanted)


@pytest.mark.parametrize("factor", [None, 0.5])
def test_other_coordinates_change_no_bit(factor, rng, isa):
    """A pair with one coordinate is rotated as by `rope`: the other coordinates, times frequency 0, add nothing."""
    x, positions = heads(rng, 50), rng.uniform(-1e4, 1e4, (3, 50))
    w = np.array(W) if factor is None else posenc.RopeFrequencies(np.array(W), factor)
    sections = (6, 0, 10)
    found = posenc.rope_nd(x, positions, posenc.mrope_frequencies(w, sections), layout="interleaved")
    first, last = (posenc.rope(x, positions[a], w, layout="interleaved") for a in (0, 2))
    assert same_bits(found[..., :12].copy(), first[..., :12].copy())
    assert same_bits(found[..., 12:].copy(), last[..., 12:].copy())


def test_frequencies_keep_their_fields():
    w = posenc.RopeFrequencies(np.arange(1.0, 5), 2.0, 3.0, "half", 8, "mine")
    found = posenc.mrope_frequencies(w, (1, 2, 1))
    assert found.inv_freq.tolist() == [[1, 0, 0, 0], [0, 2, 3, 0], [0, 0, 0, 4]]
    assert (found.attention_factor, found.softmax_factor, found.layout, found.rotary_dim) == (2.0, 3.0, "half", 8)
    assert len(found) == 4
    assert repr(found).startswith("<RopeFrequencies: 4 pairs, 3 coordinates, mine, attention_factor 2")


def test_any_number_of_coordinates():
    w = np.arange(1.0, 6)
    assert posenc.mrope_frequencies(w, [5]).tolist() == [w.tolist()]
    assert posenc.mrope_frequencies(w, (1, 1, 1, 2)).argmax(0).tolist() == [0, 1, 2, 3, 3]
    found = posenc.mrope_frequencies(w, (1, 1, 1, 2), interleaved=True, overflow=2)
    assert found.argmax(0).tolist() == [0, 1, 2, 3, 2]


@pytest.mark.parametrize(
    ("sections", "options", "message"),
    [
        ((1, 1, 1), {}, r"sections has \[1, 1, 1\], 3 pairs; expected numbers that add up to 4, the number of freq"),
        ((), {}, r"sections has \[\], 0 pairs; expected numbers that add up to 4"),
        ((5, 0, -1), {}, "sections is -1; expected at least 0"),
        (4.0, {}, "sections has type float; expected a sequence of integers"),
        ((2.0, 1, 1), {}, "sections has type float; expected an integer"),
        ((2, 1, 1), {"overflow": 3}, "overflow is 3; expected at most 2"),
        ((2, 1, 1), {"interleaved": 1}, "interleaved "),
    ],
)
def test_refusals_of_mrope_frequencies(sections, options, message):
    with pytest.raises((TypeError, ValueError), match="^mrope_frequencies: " + message):
        posenc.mrope_frequencies(np.ones(4), sections, **options)
    with pytest.raises(TypeError, match=r"^mrope_frequencies: frequencies is None; expected an array"):
        posenc.mrope_frequencies(None, (2, 1, 1))


def test_large_positions_lose_nothing():
    """Each angle is reduced before the angles are added."""
    far = 2.0**40
    w = np.array([[0.3], [-0.3]])
    x = np.array([[1.0, 0.0]])
    found = posenc.rope_nd(x, [[far + 1], [far]], w, layout="half")
    assert np.allclose(found, [[np.cos(0.3), np.sin(0.3)]], rtol=0, atol=4e-16)


@pytest.mark.parametrize(
    ("dims", "base", "message"),
    [
        ((3, 4), 10.0, r"dims has \[3, 4\]; expected even widths, not all 0"),
        ((0, 0), 10.0, r"dims has \[0, 0\]"),
        ((4, 4), [10.0], "base has 1 entries; expected 2, as dims"),
        ((4, 4), -1.0, "base is -1"),
    ],
)
def test_refusals_of_axial_frequencies(dims, base, message):
    with pytest.raises(ValueError, match="axial_frequencies: " + message):
        posenc.axial_frequencies(dims, base=base)


@pytest.mark.parametrize(
    ("positions", "frequencies", "message"),
    [
        (np.zeros((2, 5)), np.ones(4), r"frequencies has shape \(4,\); expected \(A, rotary_dim // 2\) or \(A, H, r"),
        (np.zeros((2, 5)), np.ones((2, 3)), "frequencies has 3 entries; expected rotary_dim // 2 = 4"),
        (np.zeros((3, 5)), np.ones((2, 4)), r"positions has shape \(3, 5\); expected \(2, N\)"),
        (np.zeros((2, 6)), np.ones((2, 4)), "positions has length 6; expected 5"),
        (np.zeros((2, 5)), np.ones((2, 2, 4)), "frequencies has 2 heads; expected 3, as x"),
    ],
)
def test_refusals(positions, frequencies, message):
    x = np.ones((3, 5, 8))
    with pytest.raises(ValueError, match="rope_nd: " + message):
        posenc.rope_nd(x, positions, frequencies, layout="half")
    with pytest.raises(ValueError, match="rope_nd_vjp: " + message):
        posenc.rope_nd_vjp(x, x, positions, frequencies, layout="half")
