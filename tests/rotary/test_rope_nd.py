"""Rotary encodings by several coordinates."""

import numpy as np
import pytest
from cases.layouts import same_bits

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
        (np.zeros((2, 5)), np.ones(4), r"frequencies has shape \(4,\); expected \(A, 4\) or \(A, H, 4\)"),
        (np.zeros((2, 5)), np.ones((2, 3)), r"frequencies has shape \(2, 3\); expected \(A, 4\)"),
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
