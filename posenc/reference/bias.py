"""Biases that read positions only: numbers that attention adds to the logits after the scale.

Each function returns a `PositionBias`. Its equation gets the positions i of the queries, (..., N), and the positions j
of the keys, (..., M), and returns a number for each head and pair, (..., H, N, M). The relative position is key minus
query. An operator that reads a table by distance cuts fractions towards zero.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from ._numbers import cos, exp, log1p, places, wide

__all__ = [
    "Bias", "PositionBias", "alibi", "alibi_slopes", "beit", "dense", "distance_function", "fire", "fox", "kerple_log",
    "kerple_power", "sandwich", "swin", "t5", "t5_bucket", "tisa", "toeplitz",
]  # fmt: skip


@dataclass(eq=False)
class Bias:
    """An operator on the logits: an equation for all pairs of a query and a key.

    ``a + b`` is the sum of operators. `at` returns the operator at positions of its own.
    """

    equation: Callable[..., npt.NDArray[np.float64]]
    default_scale: Callable[[int], float] | None = None
    """The scale that attention takes if none is passed, as a function of the width D; None is ``D**-0.5``."""
    added_to_values: Callable[..., npt.NDArray[np.float64]] | None = None
    """A function of i and j: vectors that attention adds to the values, (..., H, N, M, Dv)."""
    q_positions: npt.NDArray[np.float64] | None = None
    k_positions: npt.NDArray[np.float64] | None = None

    @property
    def parts(self):
        return (self,)

    def at(self, *, q_positions=None, k_positions=None):
        given = {"q_positions": q_positions, "k_positions": k_positions}
        return replace(self, **{side: places(p) for side, p in given.items() if p is not None})

    def reads(self, i, j):
        """Positions that the operator reads: its own, or i and j."""
        return i if self.q_positions is None else self.q_positions, j if self.k_positions is None else self.k_positions

    def __add__(self, other):
        return Sum((*self.parts, *other.parts))

    def __radd__(self, zero):  # sum([a, b]) begins with 0 + a
        return self


class PositionBias(Bias):
    """An operator that reads positions: its numbers are added after the scale and the cap."""

    def matrix(self, n, m=None, *, align="end", q_positions=None, k_positions=None):
        """The numbers of n queries and m keys, (..., H, n, m)."""
        return self.equation(*self.reads(*positions(n, n if m is None else m, q_positions, k_positions, align)))


class Sum(Bias):
    """A sum of operators."""

    def __init__(self, terms):
        self.terms = terms

    @property
    def parts(self):
        return self.terms

    def matrix(self, *lengths, **options):
        return sum(part.matrix(*lengths, **options) for part in self.parts)

    def logits(self, *arrays, **options):
        return sum(part.logits(*arrays, **options) for part in self.parts)


# ---- pairs of positions ----


def positions(n, m, q_positions=None, k_positions=None, align="end"):
    """Positions of n queries and m keys. Without any, key j is at j, and the queries are the last n of the m keys.

    With align="start" query i is at i. If positions of one side are passed, those of the other are 0, 1, 2, ....
    """
    shift = m - n if align == "end" and q_positions is None and k_positions is None else 0
    return (
        places(n, shift) if q_positions is None else places(q_positions),
        places(m if k_positions is None else k_positions),
    )


def pairs(i, j):
    """Positions of queries as a column and of keys as a row, with an axis for heads: (..., 1, N, 1), (..., 1, 1, M)."""
    return i[..., None, :, None], j[..., None, None, :]


def rel(i, j):
    """Relative positions of all pairs, key minus query, (..., 1, N, M)."""
    query, key = pairs(i, j)
    return key - query


def per_head(numbers):
    """A number for each head, (H,), as it multiplies matrices (H, N, M)."""
    return wide(numbers)[:, None, None]


def heads_first(numbers):
    """Numbers (..., 1, N, M, H) as (..., H, N, M)."""
    return np.swapaxes(numbers, -4, -1)[..., 0]


def gather(numbers, index):
    """Numbers of the last axis at an index: (..., T) and (..., L) give (..., L), where other axes broadcast."""
    axes = max(numbers.ndim, index.ndim)
    numbers, index = (x.reshape((1,) * (axes - x.ndim) + x.shape) for x in (numbers, index))
    return np.take_along_axis(numbers, index.astype(int), -1)


# ---- functions of the distance ----


def alibi(slopes):
    """Return ALiBi, a bias that falls linearly with the distance.

    ``-slope |j - i|``

    Press et al. 2022 (Train Short, Test Long), section 3. Code that adds ``slope j`` differs by a constant in each row,
    which the softmax of causal attention removes.
    """
    return PositionBias(lambda i, j: -per_head(slopes) * abs(rel(i, j)))


def alibi_slopes(heads, *, bias_max=8.0):
    """Return the slopes of ALiBi.

    ``2**(-8 h / H)``, h = 1 .. H, if H is a power of two.

    Press et al. 2022 (Train Short, Test Long), section 3. For other H, the authors' code takes the slopes of the power
    of two below H, and then every second slope of the power of two above H.
    """

    def slopes(n):
        return 2.0 ** (-bias_max * np.arange(1, n + 1) / n)

    power = 2 ** (heads.bit_length() - 1)
    return np.concatenate([slopes(power), slopes(2 * power)[::2][: heads - power]])


def t5(table, *, bidirectional=None, max_distance=128, unscaled=False):
    """Return T5's bias, a learned number for each head and bucket of distances.

    ``table[bucket(j - i), h]``

    Raffel et al. 2020 (T5), section 2.1. T5 does not scale its logits: unscaled=True.
    """
    table = wide(table)
    options = {"num_buckets": len(table), "max_distance": max_distance, "bidirectional": bidirectional}
    return PositionBias(
        lambda i, j: heads_first(table[t5_bucket(rel(i, j), **options)]),
        default_scale=(lambda width: 1.0) if unscaled else None,
    )


def t5_bucket(rel, *, bidirectional=None, num_buckets=32, max_distance=128):
    """Return the bucket of each relative position.

    n = i - j has bucket ``n`` below e = side / 2, then ``e + floor(log(n / e) / log(max_distance / e) (side - e))``.

    Raffel et al. 2020 (T5), section 2.1. The floor, at most side - e - 1, counts the k for which an inequality of
    integers holds, so no rounding decides. If bidirectional, a side has half of the buckets, and keys after the query
    have the upper half. Otherwise keys after the query have bucket 0.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.t5_bucket([0, -1, -8, -15, -16, 1, 127, 128], bidirectional=True)
    array([ 0,  1,  8,  9, 10, 17, 31, 31])
    """
    if bidirectional is None:
        raise ValueError("t5_bucket: bidirectional is None; expected True or False")
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    steps = side - exact

    @cache
    def bucket(distance):
        n = abs(distance) if bidirectional else max(-distance, 0)
        if n >= exact:
            n = exact + sum(n**steps * exact**k >= max_distance**k * exact**steps for k in range(1, steps))
        return n + side if bidirectional and distance > 0 else n

    return each_integer(bucket, rel)


def each_integer(function, numbers):
    """Apply a function of Python's integers to numbers, whose fractions are cut."""
    numbers = np.asarray(numbers)
    return np.array([function(int(x)) for x in numbers.ravel()], np.int64).reshape(numbers.shape)


def kerple_log(r1, r2):
    """Return KERPLE's logarithmic bias.

    ``-r1 log(1 + r2 |j - i|)``

    Chi et al. 2022 (KERPLE), equation 6.
    """
    return PositionBias(lambda i, j: -per_head(r1) * log1p(per_head(r2) * abs(rel(i, j))))


def kerple_power(r1, r2):
    """Return KERPLE's power bias.

    ``-r1 |j - i|**r2``

    Chi et al. 2022 (KERPLE), equation 5.
    """
    return PositionBias(lambda i, j: -per_head(r1) * abs(rel(i, j)) ** per_head(r2))


def sandwich(heads, dim):
    """Return Sandwich, a sum of cosines of the distance.

    ``(sum_t cos((j - i) / 10000**(2 t / d)) - d / 2) / (8 h / H)``, t = 1 .. d/2, h = 1 .. H

    Chi et al. 2023 (Dissecting Transformer Length Extrapolation), section 4. The paper's listing counts t from 0 and
    omits d / 2.
    """

    def equation(i, j):
        cosines = (cos(rel(i, j) * 10000.0 ** (-2 * t / dim)) for t in range(1, int(dim) // 2 + 1))
        return heads * (sum(cosines) - int(dim) // 2) / per_head(8 * np.arange(1, heads + 1))

    return PositionBias(equation)


def tisa(a, b, c):
    """Return TISA's bias, a sum of bells over the distance.

    ``sum_r a_r exp(-|b_r| (j - i - c_r)**2)``

    Wennberg and Henter 2021 (Translation-Invariant Self-Attention), section 4.2.
    """
    a, b, c = (wide(x)[:, None, None] for x in (a, b, c))
    return PositionBias(lambda i, j: (a * exp(-abs(b) * (rel(i, j)[..., None] - c) ** 2)).sum(-1))


def distance_function(function, heads=None, *, arrays=(), vjp=None):
    """Return any function of the distance as a bias.

    ``function(j - i, *arrays)[h]``

    The function returns (heads, L) numbers for L distances; without `heads` it returns (L,), those of one head.
    """

    def equation(i, j):
        distance = rel(i, j)[..., 0, :, :]
        numbers = np.asarray(function(distance.ravel(), *map(wide, arrays)))
        return np.moveaxis(numbers.reshape(heads or 1, *distance.shape), 0, -3)

    return PositionBias(equation)


# ---- functions of both positions ----


def fire(w1, b1, w2, b2, c, threshold):
    """Return FIRE, a small network of the distance relative to the position of the query.

    ``f(psi(j - i) / (psi(max(i, |L|)) + 1e-6))``, ``psi(x) = log(1 + |c x|)``, ``f(z) = w2 relu(w1 z + b1) + b2``

    Li et al. 2024 (Functional Interpolation for Relative Positions), equations 2 and 3. The paper's model is causal;
    here keys after the query have a bias too.
    """
    w1, b1, w2, b2, c, threshold = map(wide, (w1, b1, w2, b2, c, threshold))

    def psi(x):
        return log1p(abs(c * x))

    def equation(i, j):
        query, _ = pairs(np.maximum(i, abs(threshold)), j)
        z = psi(rel(i, j)) / (psi(query) + 1e-6)
        hidden = np.maximum(z[..., None] * w1[:, 0] + b1, 0)
        return heads_first(hidden @ w2.T + b2)

    return PositionBias(equation)


def swin(table, height, width):
    """Return Swin's bias, a learned number for each difference of rows and of columns in a window.

    ``table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]``, at position y width + x

    Liu et al. 2021 (Swin Transformer), equation 4, and the authors' relative_position_index: differences are query
    minus key.
    """
    table = wide(table)
    return PositionBias(lambda i, j: heads_first(table[swin_row(i, j, height, width)]))


def swin_row(i, j, height, width):
    """Row of Swin's table for each pair of tokens."""
    (yq, xq), (yk, xk) = (np.divmod(position.astype(int), width) for position in pairs(i, j))
    return (yq - yk + height - 1) * (2 * width - 1) + xq - xk + width - 1


def beit(table, height, width):
    """Return BEiT's bias: Swin's between patches, and three more rows of the table for the class token.

    ``table[-3]`` from class to patch, ``table[-2]`` from patch to class, ``table[-1]`` from class to class

    Bao et al. 2022 (BEiT), section 2.3, and the authors' gen_relative_position_index. Position 0 is the class token.
    """
    table = wide(table)

    def equation(i, j):
        query, key = pairs(i, j)
        of_patches, last = swin_row(i - 1, j - 1, height, width), len(table)
        cases = [(query == 0) & (key == 0), query == 0, key == 0]
        return heads_first(table[np.select(cases, [last - 1, last - 3, last - 2], of_patches)])

    return PositionBias(equation)


def fox(log_forget):
    """Return the bias of the Forgetting Transformer, the sum of the log forget gates between key and query.

    ``sum_l log f_l``, l = j + 1 .. i

    Lin et al. 2025 (Forgetting Transformer), equation 5, as a difference of running sums. For keys after the query it
    is the negative sum of the gates between them.
    """
    sums = np.cumsum(wide(log_forget), -1)

    def equation(i, j):
        return gather(sums, i[..., None, :])[..., :, None] - gather(sums, j[..., None, :])[..., None, :]

    return PositionBias(equation)


# ---- the user's own numbers, by row and column whatever the positions are ----


def toeplitz(diagonals):
    """Return a bias with a number for each head and diagonal.

    ``diagonals[h, column - row + N - 1]``
    """
    diagonals = wide(diagonals)

    def equation(i, j):
        row, column = np.arange(i.shape[-1])[:, None], np.arange(j.shape[-1])
        return diagonals[:, column - row + len(row) - 1]

    return PositionBias(equation)


def dense(array):
    """Return a bias given as an array, in which -inf masks a pair.

    ``array[..., row, column]``
    """
    array = wide(array)
    return PositionBias(lambda i, j: np.broadcast_to(array, (*array.shape[:-2], i.shape[-1], j.shape[-1])))
