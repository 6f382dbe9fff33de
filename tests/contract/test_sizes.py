"""Sizes that no user has, whose errors name the function and the argument."""

import re

import numpy as np
import pytest

import posenc

STATES = (np.ones(3), np.ones((5, 4)), np.ones(5), np.ones((3, 6)), np.ones(3))
W = posenc.rope_frequencies(4)
SIZES = {
    "nezha_table K": lambda size: posenc.nezha_table(size, 8),
    "nezha_table dim": lambda size: posenc.nezha_table(4, size),
    "xl_table K": lambda size: posenc.xl_table(size, 8),
    "xl_table dim": lambda size: posenc.xl_table(4, size),
    "alibi_slopes heads": lambda size: posenc.alibi_slopes(size),
    "sandwich heads": lambda size: posenc.sandwich(size, 8),
    "sandwich dim": lambda size: posenc.sandwich(2, size),
    "sinusoidal dim": lambda size: posenc.sinusoidal(4, size),
    "sinusoidal_frequencies dim": lambda size: posenc.sinusoidal_frequencies(size),
    "rope_frequencies dim": lambda size: posenc.rope_frequencies(size),
    "axial_frequencies dims": lambda size: posenc.axial_frequencies([size, 2]),
    "shift_matrix dim": lambda size: posenc.shift_matrix(1, size),
    "rope_matrix dim": lambda size: posenc.rope_matrix(1, W, layout="half", dim=size),
}
COUNTS = {
    "sinusoidal positions": lambda n: posenc.sinusoidal(n, 8),
    "rope_table positions": lambda n: posenc.rope_table(n, W),
    "floater substeps": lambda n: posenc.floater(*STATES, 3, substeps=n),
    "recurrent n": lambda n: posenc.recurrent(np.ones(1), np.ones((1, 1)), np.ones(1), n),
}


@pytest.mark.parametrize("name", SIZES)
def test_vast_sizes_of_tables(name):
    function, argument = name.split()
    least = 10**9 if argument == "K" else 20_000_000  # 2.4 GiB hold as many rows of a table
    for size in (least, 2**53 + 1, 2**63 + 5, 10**30):
        with pytest.raises(ValueError, match=rf"^{function}: {argument} is \d+; expected"):
            SIZES[name](size)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_numpy_would_make_empty(name):
    """np.arange(2**63) is empty, so unchecked counts would give no positions and no steps. 2**50 positions do not fit
    the addresses of any machine."""
    function, argument = name.split()
    for n in (2**53 + 1, 2**62, 2**63, 2**64 - 1):
        with pytest.raises(ValueError, match=rf"^{function}: {argument} (has|is) {n}; expected at most 2\*\*\d\d"):
            COUNTS[name](n)
    if argument == "positions":
        with pytest.raises(ValueError, match=f"^{function}: positions is {2**64 - 1}; expected"):
            COUNTS[name](np.array(2**64 - 1, np.uint64))
        with pytest.raises(MemoryError, match=f"^{function}: positions is {2**50}; expected"):
            COUNTS[name](2**50)


@pytest.mark.parametrize(("n", "m"), [(2**50, 3), (3, 2**50)])
def test_more_distances_than_memory(n, m):
    argument = "n" if n > m else "m"
    for bias in (posenc.alibi([0.5]), posenc.t5(np.ones((32, 1)), bidirectional=True), posenc.sandwich(2, 8)):
        with pytest.raises(MemoryError, match=rf"^{bias.name}\.matrix: {argument} is {2**50}; expected"):
            bias.matrix(n, m, align="end")


def test_results_larger_than_memory():
    table = np.broadcast_to(1.0, (2, 2**20))
    with pytest.raises(MemoryError, match=re.escape(f"interpolate_table: the result has shape ({2**30}, {2**20})")):
        posenc.interpolate_table(table, 2**30)


def test_axes_of_cached_keys():
    """`rerotate` refuses what `rope` refuses, and names k."""
    w = posenc.rope_frequencies(2)
    most, more = (np.zeros((1,) * (axes - 1) + (2,)) for axes in (17, 19))
    assert posenc.rope(most, [0], w, layout="half").shape == most.shape
    assert posenc.rerotate(most, [0], [1], w, layout="half").shape == most.shape
    with pytest.raises(ValueError, match=r"^rope: x has 19 axes; expected at most "):
        posenc.rope(more, [0], w, layout="half")
    with pytest.raises(ValueError, match=r"^rerotate: k has 19 axes; expected at most 18"):
        posenc.rerotate(more, [0], [1], w, layout="half")


def test_as_many_keys_as_float64_counts():
    """2**53 keys without channels are accepted, and one more is not."""
    q, k, more = np.empty((0, 0)), np.empty((2**53, 0)), np.empty((2**53 + 1, 0))
    assert posenc.attention(q, k, k).shape == (0, 0)
    with pytest.raises(ValueError, match=rf"^attention: k has sequence axis {2**53 + 1}; expected at most"):
        posenc.attention(q, more, more)
