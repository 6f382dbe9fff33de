"""Sizes that no user has, whose errors name the function and the argument."""

import re

import numpy as np
import pytest

import posenc

CONSTRUCTORS = {
    "nezha K": lambda size: posenc.nezha(8, size),
    "nezha dim": lambda size: posenc.nezha(size, 4),
    "xl_table K": lambda size: posenc.xl_table(size, 8),
    "xl_table dim": lambda size: posenc.xl_table(4, size),
    "alibi_slopes heads": lambda size: posenc.alibi_slopes(size),
    "sandwich heads": lambda size: posenc.sandwich(size, 8),
    "sandwich dim": lambda size: posenc.sandwich(2, size),
    "sinusoidal dim": lambda size: posenc.sinusoidal(4, size),
    "frequencies dim": lambda size: posenc.frequencies(size),
    "rope_frequencies dim": lambda size: posenc.rope_frequencies(size),
    "axial_frequencies dims": lambda size: posenc.axial_frequencies([size, 2]),
    "shift_matrix dim": lambda size: posenc.shift_matrix(1, size),
    "rope_matrix dim": lambda size: posenc.rope_matrix(1, posenc.rope_frequencies(4), layout="half", dim=size),
}
POSITIONS = {
    "sinusoidal positions": lambda n: posenc.sinusoidal(n, 8),
    "rope_table positions": lambda n: posenc.rope_table(n, posenc.rope_frequencies(4)),
}


@pytest.mark.parametrize("size", [20_000_000, 10**9, 2**40, 2**62, 10**30])
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_vast_sizes_of_tables(name, size):
    function, argument = name.split()
    if size == 20_000_000 and argument == "K":
        return  # a table with a row for each is 2.4 GiB
    with pytest.raises(ValueError, match=rf"^{function}: {argument} is \d+; expected"):
        CONSTRUCTORS[name](size)


@pytest.mark.parametrize(("n", "m"), [(2**50, 3), (3, 2**50)])
def test_more_distances_than_memory(n, m):
    argument = "n" if n > m else "m"
    for bias in (posenc.alibi([0.5]), posenc.t5(np.ones((32, 1))), posenc.sandwich(2, 8)):
        with pytest.raises(MemoryError, match=rf"^{bias.name}\.matrix: {argument} is {2**50}; expected"):
            bias.matrix(n, m)


@pytest.mark.parametrize("name", POSITIONS)
def test_more_positions_than_memory(name):
    """2**50 positions do not fit the addresses of any machine."""
    function, argument = name.split()
    with pytest.raises(MemoryError, match=f"^{function}: {argument} is {2**50}; expected"):
        POSITIONS[name](2**50)


def test_results_larger_than_memory():
    table = np.broadcast_to(1.0, (2, 2**20))
    with pytest.raises(MemoryError, match=re.escape(f"interpolate_table: the result has shape ({2**30}, {2**20})")):
        posenc.interpolate_table(table, 2**30)


@pytest.mark.parametrize("axes", [17, 19, 30, 31])
def test_axes_of_cached_keys(axes):
    """`rerotate` refuses what `rope` refuses, and names k."""
    k, w = np.zeros((1,) * (axes - 1) + (2,)), posenc.rope_frequencies(2)

    def message(call):
        try:
            call()
        except ValueError as error:
            return str(error)

    of_rope = message(lambda: posenc.rope(k, [0], w, layout="half"))
    assert (of_rope is None) == (axes == 17)
    of_rerotate = message(lambda: posenc.rerotate(k, [0], [1], w, layout="half"))
    if of_rope:  # the loops of its kernel are one fewer
        of_rope = of_rope.replace("rope: x", "rerotate: k").replace("at most 18", "at most 17")
    assert of_rerotate == of_rope


def test_as_many_keys_as_float64_counts():
    """2**53 keys without channels are accepted, and one more is not."""
    q, k, more = np.empty((0, 0)), np.empty((2**53, 0)), np.empty((2**53 + 1, 0))
    assert posenc.attention(q, k, k).shape == (0, 0)
    with pytest.raises(ValueError, match=rf"^attention: k has sequence axis {2**53 + 1}; expected at most"):
        posenc.attention(q, more, more)
