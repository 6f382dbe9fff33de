"""Learned and hierarchical positions: rows of tables, their gradients, and errors."""

import warnings

import numpy as np
import pytest
from cases import BF16, DTYPES
from cases.layouts import same_bits

import posenc
from posenc import reference


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_learned_is_the_row_itself(rng, dtype):
    """Every bit is copied, also of NaN and of -0."""
    table = rng.standard_normal((5, 33)).astype(dtype)
    table[2, :3] = [np.nan, -0.0, np.inf]
    ids = np.array([[4, 2, 2], [0, 2, 1]])
    assert same_bits(posenc.learned(table, ids), table[ids])
    assert same_bits(posenc.learned(table, 3), table[:3])
    assert posenc.learned(table, []).shape == (0, 33)
    assert same_bits(posenc.hierarchical(table, 25)[:5], table)


def test_repeated_ids_are_summed():
    """The sum is in float64 and rounded once: float32 could not add these integers one by one."""
    grad = np.array([[2.0**24], [1.0], [1.0], [5.0]], np.float32)
    gradient = posenc.learned_vjp(grad, np.zeros((3, 1), np.float32), [1, 1, 1, 0]).table
    assert gradient.dtype == np.float32
    assert gradient.tolist() == [[5.0], [2.0**24 + 2], [0.0]]


@pytest.mark.parametrize("function", ["learned", "hierarchical"])
def test_gradients_of_wide_tables(rng, isa, function):
    """Rows of several tiles of columns, one id with most of the positions, and any number of threads."""
    table, ids = rng.standard_normal((7, 1300)), np.where(rng.random(3000) < 0.8, 5, rng.integers(0, 7, 3000))
    grad = rng.standard_normal((3000, 1300))
    found = []
    for threads in (1, 3):
        with posenc.threads(threads):
            found.append(getattr(posenc, f"{function}_vjp")(grad, table, ids).table)
    wanted = np.zeros_like(table)
    np.add.at(wanted, ids, grad)  # in the hierarchy, too, ids below 7 are rows of the table
    assert same_bits(*found)
    assert np.abs(found[0] - wanted).max() <= 1e-12  # 3000 numbers of size 4


def test_half_gradients_are_summed_wide():
    """A float16 sum of 4096 ones would stop at 2048, a bfloat16 sum at 256."""
    for dtype in (np.dtype(np.float16), BF16):
        grad = np.ones((4096, 3), dtype)
        assert posenc.learned_vjp(grad, np.zeros((2, 3), dtype), np.ones(4096, int)).table[1].tolist() == [4096.0] * 3


@pytest.mark.parametrize("function", ["learned", "learned_vjp"])
@pytest.mark.parametrize(
    ("positions", "named"),
    [
        ([0, 5, 9], "id 5"),
        ([-1], "id -1"),
        (6, "id 5"),
        ([2**62], "id 4611"),
        (2**60, "id 1152921504606846975"),
        (np.array([2**64 - 1], np.uint64), "id 18446744073709551615"),
    ],
)
def test_ids_without_a_row(function, positions, named):
    table = np.ones((5, 2))
    arguments = (table, positions) if function == "learned" else (np.ones((3, 2)), table, positions)
    with pytest.raises(IndexError, match=rf"^{function}: positions has {named}.*; expected ids .* below 5$"):
        getattr(posenc, function)(*arguments)


@pytest.mark.parametrize("function", ["learned", "hierarchical"])
def test_counted_ids_without_a_row(function):
    """The first id of a count is below 0, or its last one beyond the table; no positions need no row."""
    look_up, rows = getattr(posenc, function), 5 if function == "learned" else 25
    for n, start, named in [
        (2, -1, -1),
        (3, rows - 2, rows),
        (1, rows, rows),
        (2**70, 1, 2**70),
        (1, -(2**53), -(2**53)),
    ]:
        with pytest.raises(IndexError, match=rf"^{function}: positions has id {named}; expected ids .* below {rows}$"):
            look_up(np.ones((5, 2)), n, start=start)
    assert look_up(np.ones((5, 2)), 2, start=rows - 2).shape == (2, 2)
    for start in (-1, 0, rows + 1):
        assert look_up(np.ones((5, 2)), 0, start=start).shape == (0, 2)


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.4), (2, 0.1), (7, 0.9), (512, 0.5001)])
def test_hierarchical_over_all_ids(rng, n, alpha):
    """q_{(i-1)n+j} = alpha u_i + (1-alpha) u_j with i, j = 1..n, for all n n of them."""
    p = rng.standard_normal((n, 4))
    q = posenc.hierarchical(p, n * n, alpha=alpha)
    # both sides round numbers of size alpha / (1 - alpha) <= 9
    assert np.abs(q - reference.hierarchical(p, n * n, alpha=alpha)).max() <= 1e-14
    for id_ in (-1, n * n):
        with pytest.raises(IndexError, match=rf"hierarchical: positions has id {id_}; expected .* below {n * n}"):
            posenc.hierarchical(p, [id_], alpha=alpha)


@pytest.mark.parametrize("alpha", [0, 1.0, np.nan])
def test_alpha_outside(alpha):
    for call in (
        lambda: posenc.hierarchical(np.ones((2, 2)), 4, alpha=alpha),
        lambda: posenc.hierarchical_vjp(np.ones((4, 2)), np.ones((2, 2)), 4, alpha=alpha),
    ):
        with pytest.raises(ValueError, match=r"hierarchical(_vjp)?: alpha is"):
            call()


def test_alpha_of_a_half_warns(rng):
    table = rng.standard_normal((3, 4))
    with pytest.warns(UserWarning, match=r"\(i, j\) and \(j, i\)") as caught:
        q = posenc.hierarchical(table, 9, alpha=0.5).reshape(3, 3, 4)
    assert caught[0].filename == __file__
    assert np.abs(q - q.swapaxes(0, 1)).max() <= 1e-15  # (i, j) and (j, i) are equal except for rounding
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posenc.hierarchical(table, 9)
