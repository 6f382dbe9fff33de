"""Curves and matrices of positions.

Functions with annotations are those of `posenc.analysis` themselves: they check their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ._arguments import check_positions, expect, read_array, read_finite, read_index, read_pairs, read_positive
from ._numbers import cos, exp, sqrt, wide
from .absolute import sinusoidal
from .attention import operator
from .rotary import rope

__all__ = [
    "RopeBands", "RopeCoverage", "TaylorTerms", "TrianglePoints", "attention_profile", "correlation_matrix", "decay",
    "distance_matrix", "gram_matrix", "inner_product", "interaction_matrix", "order_sensitivity", "reference_logits",
    "reference_matrix", "rope_bands", "rope_coverage", "taylor_terms", "triangle_points",
]  # fmt: skip

Float64 = npt.NDArray[np.float64]
MaybeArray: TypeAlias = "npt.ArrayLike | None"
SequenceFunction = Callable[[npt.NDArray[Any]], npt.ArrayLike]
"""A function of a sequence (N, d)."""


# ---- matrices ----


def gram_matrix(encoding):
    """Compute the inner products of all pairs of positions.

    ``G[p, q] = <e_p, e_q>``.
    """
    e = wide(encoding)
    return (e[..., :, None, :] * e[..., None, :, :]).sum(-1)


def distance_matrix(encoding):
    """Compute the Euclidean distances of all pairs of positions.

    ``D[p, q] = |e_p - e_q|``.
    """
    e = wide(encoding)
    return sqrt(((e[..., :, None, :] - e[..., None, :, :]) ** 2).sum(-1))


@np.errstate(invalid="ignore")  # rows of equal numbers: 0 / 0
def correlation_matrix(encoding):
    """Compute the Pearson correlations of all pairs of positions over their channels.

    ``C[p, q] = <z_p, z_q>`` with ``z = (e - mean e) / |e - mean e|``.
    """
    e = wide(encoding)
    e = e - e[..., :1]  # exactly 0 in rows of equal numbers, whose correlations are NaN
    z = e - e.mean(-1, keepdims=True)
    return gram_matrix(z / sqrt((z**2).sum(-1, keepdims=True)))


class TrianglePoints(NamedTuple):
    """Correlation and distance of all pairs of positions, each (pairs, 2).

    Attributes
    ----------
    upper : float64 array (pairs, 2)
        Entries (i, j) of the matrices with i < j, row by row.
    lower : float64 array (pairs, 2)
        Entries (j, i) in the same order as `upper`.
    """

    upper: Float64
    lower: Float64


def triangle_points(distance: npt.ArrayLike, correlation: npt.ArrayLike) -> TrianglePoints:
    """Pair the correlation and the distance of all pairs of positions, for a scatter plot.

    Points ``(C[i, j], D[i, j])``, above and below the diagonal.

    Parameters
    ----------
    distance, correlation : array (N, N)
        From `distance_matrix` and `correlation_matrix`, or any other two matrices.

    Returns
    -------
    TrianglePoints
        ``upper`` and ``lower``, each (N (N - 1) / 2, 2). The correlation comes first: it is the horizontal axis.

    Raises
    ------
    TypeError, ValueError
        A matrix is not square, or the two have different sizes.

    Notes
    -----
    Row r of both parts belongs to the same pair of positions. Symmetric matrices give equal parts.

    Examples
    --------
    >>> import posenc.analysis
    >>> points = posenc.analysis.triangle_points([[0, 1], [2, 0]], [[1, 0.5], [0.25, 1]])
    >>> points.upper, points.lower
    (array([[0.5, 1. ]]), array([[0.25, 2.  ]]))
    """
    matrices = []
    for name, value in (("correlation", correlation), ("distance", distance)):
        matrix = wide(read_array(f"triangle_points: {name}", value))
        is_square = matrix.ndim == 2 and matrix.shape == matrix.shape[::-1]
        expect(is_square, f"triangle_points: {name} has shape {matrix.shape}; expected (N, N)")
        matrices.append(matrix)
    x, y = matrices
    expect(x.shape == y.shape, f"triangle_points: correlation has shape {x.shape}; expected {y.shape}")
    points = np.stack(matrices, -1)
    i, j = np.triu_indices(len(points), 1)
    return TrianglePoints(points[i, j], points[j, i])


# ---- operators of posenc ----


def _twin(bias, method, kind):
    """The operator of this package for one of posenc that has this method."""
    has = f"type {type(bias).__name__}"
    expect(hasattr(bias, method), f"reference_{method}: bias has {has}; expected a {kind}", TypeError)
    return operator(bias)


def reference_matrix(
    bias: Any,
    n: int,
    m: int | None = None,
    *,
    align: str = "end",
    q_positions: MaybeArray = None,
    k_positions: MaybeArray = None,
) -> Float64:
    """Compute the matrix of an operator by its equation in plain NumPy.

    ``b[h, i, j]`` is the entry for head h, query i and key j.

    Parameters
    ----------
    bias : PositionBias
        An operator that reads positions.
    n, m : int
        Numbers of queries and keys; m is n by default.
    align : {"end", "start"}
        Whether the queries are at the last or at the first n of m positions, if no positions are passed.
    q_positions, k_positions : array (n,), (m,), optional
        As in `PositionBias.matrix`.

    Returns
    -------
    ndarray of float64, shape (H, n, m)

    Raises
    ------
    TypeError, ValueError
        An operator of the other kind, or positions of another length.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.analysis
    >>> bias = posenc.t5(np.arange(64.0).reshape(32, 2), bidirectional=False)
    >>> found = posenc.analysis.reference_matrix(bias, 5, 9)
    >>> bool((found == bias.matrix(5, 9, align="end")).all())
    True
    """
    twin = _twin(bias, "matrix", "PositionBias")
    n = read_index("reference_matrix: n", n, 0)
    m = n if m is None else read_index("reference_matrix: m", m, 0)
    check_positions("reference_matrix: q_positions", q_positions, n)
    check_positions("reference_matrix: k_positions", k_positions, m)
    return twin.matrix(n, m, align=align, q_positions=q_positions, k_positions=k_positions)


def reference_logits(
    bias: Any, q: npt.ArrayLike, k: npt.ArrayLike, *, q_positions: MaybeArray = None, k_positions: MaybeArray = None
) -> Float64:
    """Compute the logits of an operator by its equation in plain NumPy.

    The entry [..., h, i, j] is the term for query i and key j of head h, before the common scale.

    Parameters
    ----------
    bias : ContentBias
        An operator that reads queries and keys.
    q : array (..., H, N, D)
        Queries.
    k : array (..., G, M, D)
        Keys; head h reads ``k[..., h // (H // G), :, :]``.
    q_positions, k_positions : array (N,), (M,), optional
        As in `ContentBias.logits`.

    Returns
    -------
    ndarray of float64, shape (..., H, N, M)

    Raises
    ------
    TypeError, ValueError
        An operator of the other kind, or shapes that do not fit.

    Examples
    --------
    The shift of Transformer-XL, with a memory of three keys:

    >>> import numpy as np, posenc, posenc.analysis
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 8, 4))
    >>> table, (u, v) = rng.standard_normal((2, 17, 4)), rng.standard_normal((2, 2, 4))
    >>> bias = posenc.transformer_xl(table, u, v)
    >>> found = posenc.analysis.reference_logits(bias, q, k)
    >>> bool(abs(found - bias.logits(q, k)).max() < 1e-14)
    True
    """
    twin = _twin(bias, "logits", "ContentBias")
    queries, keys = (read_array(f"reference_logits: {name}", x) for name, x in (("q", q), ("k", k)))
    for name, x in (("q", queries), ("k", keys)):
        expect(x.ndim >= 2, f"reference_logits: {name} has {x.ndim} axes; expected at least 2: (..., N, D)")
    check_positions("reference_logits: q_positions", q_positions, queries.shape[-2])
    check_positions("reference_logits: k_positions", k_positions, keys.shape[-2])
    return twin.logits(queries, keys, q_positions=q_positions, k_positions=k_positions)


# ---- curves ----


def inner_product(p, q, frequencies, *, weights=None):
    """Compute the inner product of two sinusoidal encodings.

    ``<e_p, e_q> = sum_i cos((p - q) w_i)``; with weights ``e_p' H e_q``.

    Su 2021 (kexue.fm/archives/8231), equations 11 to 13. With the diagonal (sine, cosine) of H the result is
    (total, the part in p - q, the part in p + q).
    """
    p, q, w = wide(p), wide(q), wide(getattr(frequencies, "inv_freq", frequencies))
    if weights is None:
        return cos((p - q)[..., None] * w).sum(-1)
    if isinstance(weights, np.ndarray):
        left, right = (sinusoidal(x[..., None], 2 * len(w), frequencies=w)[..., 0, :] for x in (p, q))
        return (left @ wide(weights) * right).sum(-1)
    sine, cosine = map(wide, weights)
    difference = ((cosine + sine) / 2 * cos((p - q)[..., None] * w)).sum(-1)
    total = ((cosine - sine) / 2 * cos((p + q)[..., None] * w)).sum(-1)
    return difference + total, difference, total


def decay(distances, *, schedule="geometric", base=10000.0, alpha=1.0, dim=None, weights=None):
    """Compute the mean inner product of two sinusoidal encodings by their distance.

    ``mean_k h_k exp(i x theta(2k / dim))``; without dim the integral of ``h(t) exp(i x theta(t))`` over [0, 1].

    Su 2021 (kexue.fm/archives/8231), equations 11 and 14. The integral is Gauss's rule on pieces in which the angle
    changes by few radians.
    """
    theta = {"geometric": lambda t: base**-t, "power": lambda t: t**alpha}.get(schedule, schedule)
    h = weights if callable(weights) else lambda t: np.ones(len(t)) if weights is None else wide(weights)
    x = wide(distances)[..., None]
    if dim is not None:
        t = 2 * np.arange((dim + 1) // 2) / dim
        return (h(t) * exp(1j * x * theta(t))).mean(-1)
    nodes, shares = np.polynomial.legendre.leggauss(40)
    pieces, total = 64 + int(abs(x).max(initial=0)), 0
    for piece in range(pieces):
        s = (piece + (nodes + 1) / 2) / pieces
        t, slope = s**4, 4 * s**3  # a power of t has a singular derivative at 0, a power of s**4 less so
        total = total + (shares / 2 / pieces * slope * h(t) * exp(1j * x * theta(t))).sum(-1)
    return total


def attention_profile(bias, distances, *, q=None, k=None, position=0, scale=None):
    """Compute the attention of one query by the distance of keys that all have the same content.

    ``weights = softmax(logit(rel))``. The result is (logits, weights), each (H, M).

    `bias` is an operator, of posenc or of this package, or the frequencies of a rotation.
    """
    distances = wide(distances)
    where = {"q_positions": np.array([position]), "k_positions": position + distances}
    is_rotation = hasattr(bias, "inv_freq") or isinstance(bias, (np.ndarray, list, tuple))
    if q is None and k is None and not is_rotation:
        logits = wide(bias.matrix(1, len(distances), **where))[:, 0]
    else:
        width = 2 * len(getattr(bias, "inv_freq", bias)) if is_rotation else np.shape(q)[-1]
        q, k = (np.ones(width) if content is None else wide(content) for content in (q, k))
        heads = max(map(len, map(np.atleast_2d, (q, k))))
        q = np.broadcast_to(np.atleast_2d(q)[:, None], (heads, 1, width))
        k = np.broadcast_to(np.atleast_2d(k)[:, None], (heads, len(distances), width))
        logits = _rotary_logits(bias, q, k, **where) if is_rotation else bias.logits(q, k, **where)[:, 0]
        logits = wide(logits) * (width**-0.5 if scale is None else scale)
    weights = exp(logits - logits.max(-1, keepdims=True, initial=-np.inf))
    return logits, weights / weights.sum(-1, keepdims=True)


def _rotary_logits(w, q, k, q_positions, k_positions):
    """Products of a query and keys that are rotated to their positions."""
    q, k = rope(q, q_positions, w, layout="half"), rope(k, k_positions, w, layout="half")
    return (q * k).sum(-1)


def order_sensitivity(
    function: SequenceFunction, x: npt.ArrayLike, *, permutations: int | npt.ArrayLike = 8, seed: int = 0
) -> Float64:
    """Sensitivity of a function to the order of the rows of its argument.

    ``|f(P x) - P f(x)| / |f(x)|`` for permutations P of the rows.

    Parameters
    ----------
    function : callable
        Maps (N, d) to (N, ...): attention or a model, with its positions inside. It is called once for x and once for
        each permutation.
    x : array (N, d)
        The rows.
    permutations : int or array (P, N) of integers
        Number of random permutations, or the permutations: row i of ``P x`` is row ``permutations[., i]`` of x.
    seed : int
        Seed of the random permutations.

    Returns
    -------
    ndarray (P,) of float64
        0, up to rounding, for a function that treats its rows as a set, such as attention without positions. NaN if
        the function's result for x has infinities or NaNs.

    Raises
    ------
    TypeError, ValueError
        A row of `permutations` is not a permutation, or the function returns another number of rows.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 2: attention is symmetric in its inputs; positions break the symmetry.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.analysis
    >>> x = np.random.default_rng(0).standard_normal((16, 8))
    >>> def layer(x):
    ...     return posenc.attention(x[None], x[None], x[None])[0]
    >>> bool(posenc.analysis.order_sensitivity(layer, x).max() < 1e-14)
    True
    >>> p = posenc.sinusoidal(16, 8, dtype=np.float64)
    >>> bool(posenc.analysis.order_sensitivity(lambda x: layer(x + p), x).min() > 0.1)
    True
    """
    has = f"type {type(function).__name__}"
    expect(callable(function), f"order_sensitivity: function has {has}; expected a callable", TypeError)
    rows = read_array("order_sensitivity: x", x)
    rows = wide(rows) if rows.dtype.kind in "iu" else rows
    n = len(rows) if rows.ndim else 0
    expect(n > 0, f"order_sensitivity: x has shape {rows.shape}; expected at least one row")
    orders = _read_permutations("order_sensitivity: ", permutations, n, seed)
    value = np.array(function(rows.copy()), np.float64)  # copies, as a function may reuse and change its arrays
    has, expected = f"a result of shape {value.shape}", f"({n}, ...), one row per row of x"
    expect(value.shape[:1] == (n,), f"order_sensitivity: function has {has}; expected {expected}")
    largest = abs(value).max(initial=0) or 1.0
    whole = np.linalg.norm(value / largest) or 1.0

    def sensitivity(order):
        permuted = np.asarray(function(rows[order]), np.float64)
        return np.linalg.norm(permuted / largest - value[order] / largest) / whole

    with np.errstate(invalid="ignore"):  # results that are not finite have a sensitivity of NaN
        return np.array([sensitivity(order) for order in orders])


def _read_permutations(function, permutations, n, seed):
    """Draw or check the permutations of n rows, (P, n)."""
    if isinstance(permutations, int | np.integer) and not isinstance(permutations, bool):
        rng = np.random.default_rng(read_index(f"{function}seed", seed, 0))
        return np.array([rng.permutation(n) for _ in range(read_index(f"{function}permutations", permutations, 1))])
    orders = np.asarray(permutations)
    has = f"{function}permutations has"
    is_integer, expected = orders.dtype.kind in "iu", "an integer, or an array of integers"
    expect(is_integer, f"{has} dtype {orders.dtype}; expected {expected}", TypeError)
    is_permuted = orders.ndim == 2 and orders.shape[1] == n and (np.sort(orders) == np.arange(n)).all()
    expect(is_permuted, f"{has} shape {orders.shape}; expected (P, {n}), each row a permutation")
    return orders


# ---- pairs of RoPE ----


class RopeBands(NamedTuple):
    """Effect of a scaling on each pair, arrays (e,).

    Attributes
    ----------
    wavelength : float64 array (e,)
        Positions per turn before the scaling.
    turns : float64 array (e,)
        Turns within the training length before the scaling.
    ratio : float64 array (e,)
        Frequency after the scaling divided by that before: 1 is kept, 1 / factor is interpolated.
    kind : array (e,) of str
        "kept" where the ratio is 1, "interpolated" where it is the smallest of all pairs, else "blended".
    """

    wavelength: Float64
    turns: Float64
    ratio: Float64
    kind: npt.NDArray[np.str_]


class RopeCoverage(NamedTuple):
    """Angles of each pair that occur in training, arrays (e,).

    Attributes
    ----------
    turns : float64 array (e,)
        Turns within the training length.
    covered : float64 array (e,)
        Fraction of the circle between the angles of the shortest and the longest trained distance, at most 1.
    gap : float64 array (e,)
        Width of the widest arc without an angle of any trained distance, in radians.
    first_unseen : float64 array (e,)
        First distance whose angle lies beyond the covered arc; infinity for pairs that make a full turn.
    unseen : float64 array (e,)
        Fraction of the new distances, train_length .. test_length - 1, with such an angle. 0 if there are none.
    """

    turns: Float64
    covered: Float64
    gap: Float64
    first_unseen: Float64
    unseen: Float64


def rope_bands(scaled: npt.ArrayLike, original: npt.ArrayLike, *, train_length: int) -> RopeBands:
    """Effect of a RoPE scaling on the frequency of each pair.

    ``ratio[k] = scaled[k] / original[k]``.

    Parameters
    ----------
    scaled, original : array (e,) or RopeFrequencies
        Frequencies with and without the scaling, from `rope_frequencies`; `original` must be positive. Only the array
        of a RopeFrequencies is read.
    train_length : int
        Number of positions in which turns are counted.

    Returns
    -------
    RopeBands
        ``wavelength`` (positions), ``turns``, ``ratio`` and ``kind`` of each pair.

    Raises
    ------
    TypeError, ValueError
        The two do not have one number per pair, an original frequency is not positive, or the length is below 1.

    Notes
    -----
    Peng et al. 2023 (YaRN), section 3: PI interpolates every pair. NTK keeps the first pair, interpolates the last and
    blends those between. YaRN and llama3 keep pairs with many turns and interpolate those with few.

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> plain = posenc.rope_frequencies(8)
    >>> parts = posenc.rope_frequencies(8, rope_type="ntk_by_parts", factor=4, original_max_position_embeddings=1024)
    >>> posenc.analysis.rope_bands(parts, plain, train_length=1024).kind.tolist()
    ['kept', 'blended', 'blended', 'interpolated']
    """
    before = read_pairs("rope_bands: original", original)
    after = read_pairs("rope_bands: scaled", scaled, len(before))
    length = read_index("rope_bands: train_length", train_length, 1)
    expect((before > 0).all(), "rope_bands: original has a frequency that is not positive; expected positive numbers")
    ratio = after / before
    kept = abs(ratio - 1) <= 1e-9
    kind = np.where(kept, "kept", np.where(ratio <= ratio.min() * (1 + 1e-9), "interpolated", "blended"))
    return RopeBands(2 * np.pi / before, length * before / (2 * np.pi), ratio, kind)


def rope_coverage(
    frequencies: npt.ArrayLike,
    train_length: int,
    *,
    test_length: int | None = None,
    test_frequencies: MaybeArray = None,
) -> RopeCoverage:
    """Angles of each RoPE pair that occur in training, and new distances whose angles do not.

    The angles of pair k are ``{r w[k] mod 2 pi : r = 0 .. L - 1}``.

    Parameters
    ----------
    frequencies : array (e,) or RopeFrequencies
        w in training, in radians per position, at least 0.
    train_length : int
        L: distances 0 .. L - 1 occur in training.
    test_length : int, optional
        Distances up to test_length - 1 occur in the test; by default `train_length`.
    test_frequencies : array (e,) or RopeFrequencies, optional
        Frequencies of the test, if they are scaled; by default `frequencies`.

    Returns
    -------
    RopeCoverage
        ``turns``, ``covered``, ``gap`` (radians), ``first_unseen`` (a distance) and ``unseen`` of each pair. A pair
        that makes no full turn covers the arc ``[0, (L - 1) w]``; angles beyond it are new to the model, and there
        extrapolation fails.

    Raises
    ------
    TypeError, ValueError
        There is not one number per pair, a frequency is negative, `train_length` is below 1, or `test_length` is below
        `train_length`.

    Notes
    -----
    Su 2023 (kexue.fm/archives/9675): slow pairs are like leading digits, which take new values beyond the training
    length. Interpolation by s, ``test_frequencies = frequencies / s``, has no new angle up to distance ``s (L - 1)``.

    Examples
    --------
    In 64 positions the frequency 0.01 covers 0.63 of 6.28 radians. All angles of distances 64 .. 127 are new, until the
    frequencies are halved:

    >>> import posenc.analysis
    >>> seen = posenc.analysis.rope_coverage([1.0, 0.01], 64, test_length=128)
    >>> seen.covered.round(4), seen.first_unseen, seen.unseen
    (array([1.    , 0.1003]), array([inf, 64.]), array([0., 1.]))
    >>> halved = posenc.analysis.rope_coverage([1.0, 0.01], 64, test_length=127, test_frequencies=[0.5, 0.005])
    >>> halved.unseen
    array([0., 0.])
    """
    trained = tested = read_pairs("rope_coverage: frequencies", frequencies)
    if test_frequencies is not None:
        tested = read_pairs("rope_coverage: test_frequencies", test_frequencies, len(trained))
    for name, w in (("frequencies", trained), ("test_frequencies", tested)):
        expect((w >= 0).all(), f"rope_coverage: {name} has a negative frequency; expected frequencies of at least 0")
    length = read_index("rope_coverage: train_length", train_length, 1)
    end = length if test_length is None else read_index("rope_coverage: test_length", test_length, length)
    found = [_coverage_of_pair(w, v, length, end) for w, v in zip(trained, tested, strict=True)]
    return RopeCoverage(*map(np.array, zip(*found, strict=True)))


def _coverage_of_pair(w, v, length, end):
    """The numbers of `RopeCoverage` for a pair of the frequency w in training and v in the test."""
    turn, arc = 2 * np.pi, (length - 1) * w
    angles = np.sort(np.arange(length) * w % turn)
    gap = np.diff(np.append(angles, angles[0] + turn)).max()
    if arc >= turn:
        return length * w / turn, 1.0, gap, np.inf, 0.0
    last = arc * (1 + 4 * np.finfo(np.float64).eps)  # the angle of the last trained distance may round up
    first_unseen = np.inf if v == 0 else np.floor(last / v) + 1
    is_new = np.arange(length, end) * v % turn > last
    return length * w / turn, arc / turn, gap, first_unseen, is_new.sum() / max(end - length, 1)


# ---- Taylor's theorem ----

STEP = 2.0**-8
"""The sixth root of 2**-52, up to 2: errors of fourth differences and of rounding are then alike."""


class TaylorTerms(NamedTuple):
    """Terms of a function of a sequence to whose rows p and q vectors are added, in the shape of its result.

    Attributes
    ----------
    value : float64 array
        f, without the vectors.
    first_p : float64 array
        ``e_p' df/dx_p``.
    first_q : float64 array
        ``e_q' df/dx_q``.
    second_p : float64 array
        ``e_p' d2f/dx_p2 e_p / 2``.
    second_q : float64 array
        ``e_q' d2f/dx_q2 e_q / 2``.
    interaction : float64 array
        ``e_p' H e_q`` with ``H = d2f/dx_p dx_q``, the only term that depends on both positions.
    """

    value: Float64
    first_p: Float64
    first_q: Float64
    second_p: Float64
    second_q: Float64
    interaction: Float64


def _read_sequence(argument, value):
    x = wide(read_array(argument, value))
    is_sequence = x.ndim == 2 and x.size > 0
    expect(is_sequence, f"{argument} has shape {x.shape}; expected a sequence (N, d), N and d at least 1")
    return x


def _read_rows(function, x, p, q):
    p, q = (read_index(f"{function}: {name}", row, 0, len(x) - 1) for name, row in (("p", p), ("q", q)))
    expect(p != q, f"{function}: q is {q}; expected a row other than p")
    return p, q


def _extrapolate(of_step, h):
    """Remove the error of a central difference that is proportional to h**2."""
    return (4 * of_step(h) - of_step(2 * h)) / 3


def _mixed(at, h):
    """The mixed second derivative of ``at(a, b)`` at 0."""
    return (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h * h)


def taylor_terms(
    f: SequenceFunction, x: npt.ArrayLike, encoding: npt.ArrayLike, p: int, q: int, *, step: float = STEP
) -> TaylorTerms:
    """Expand a function of a sequence in the encodings of two of its rows, to second order.

    ``f(.., x_p + e_p, .., x_q + e_q, ..)`` is about the sum of the six terms.

    Parameters
    ----------
    f : function
        Takes a sequence (N, d) in float64 and returns a number or an array.
    x : array (N, d)
        The sequence without positions.
    encoding : array (N, d)
        e. Only the rows p and q are read.
    p, q : int
        Two rows.
    step : float
        Fraction of an encoding by which the rows are moved for a difference.

    Returns
    -------
    TaylorTerms
        ``(value, first_p, first_q, second_p, second_q, interaction)``, float64 in the shape of the result of f.

    Raises
    ------
    TypeError, ValueError
        Shapes that differ, a row that does not exist, equal rows, a result that is not finite.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 4. The derivatives are central differences, extrapolated to an error of
    the order of step**4. The first five terms depend on one position each. The sum differs from f by terms of third
    order, so the expansion serves encodings that are small beside x.

    Examples
    --------
    A function with a known H, the identity, whose interaction is the inner product of two encodings:

    >>> import numpy as np, posenc, posenc.analysis
    >>> def f(x):
    ...     return x[0] @ x[1]
    >>> x, p = np.ones((2, 8)), posenc.sinusoidal([7, 4], 8, dtype=np.float64)
    >>> terms = posenc.analysis.taylor_terms(f, x, p, 0, 1)
    >>> float(terms.interaction.round(6))
    1.96489
    >>> float(posenc.analysis.inner_product(7, 4, posenc.sinusoidal_frequencies(8)).round(6))
    1.96489
    >>> bool(abs(sum(terms) - f(x + p)) < 1e-9)
    True
    """
    rows, e = _read_sequence("taylor_terms: x", x), _read_sequence("taylor_terms: encoding", encoding)
    is_alike = e.shape == rows.shape
    expect(is_alike, f"taylor_terms: encoding has shape {e.shape}; expected {rows.shape}, the shape of x")
    p, q = _read_rows("taylor_terms", rows, p, q)
    step = read_positive("taylor_terms: step", step)

    def at(a, b):
        moved = rows.copy()
        moved[p] += a * e[p]
        moved[q] += b * e[q]
        return read_finite("taylor_terms: f", f(moved), "a result with ")

    value, sides = at(0, 0), (lambda h: at(h, 0), lambda h: at(0, h))
    first = [_extrapolate(lambda h, g=g: (g(h) - g(-h)) / (2 * h), step) for g in sides]
    second = [_extrapolate(lambda h, g=g: (g(h) - 2 * value + g(-h)) / (2 * h * h), step) for g in sides]
    return TaylorTerms._make([value, *first, *second, _extrapolate(lambda h: _mixed(at, h), step)])


def interaction_matrix(f: SequenceFunction, x: npt.ArrayLike, p: int, q: int, *, step: float = STEP) -> Float64:
    """Return the matrix by which two rows of a sequence interact in a function.

    ``H[i, j] = d2f / (dx[p, i] dx[q, j])``

    Parameters
    ----------
    f : function
        Takes a sequence (N, d) in float64 and returns a number.
    x : array (N, d)
        The sequence without positions.
    p, q : int
        Two rows.
    step : float
        Distance by which a number of x is moved for a difference, times the root mean square of x.

    Returns
    -------
    ndarray of float64, shape (d, d)

    Raises
    ------
    TypeError, ValueError
        A result that is not one finite number, a row that does not exist, equal rows.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 4. It needs ``8 d**2`` calls of f, so it is meant for small d.
    ``inner_product(p, q, w, weights=H)`` is the interaction of two sinusoids by H.

    Examples
    --------
    >>> import numpy as np, posenc.analysis
    >>> W = np.array([[2.0, 1.0], [0.0, -1.0]])
    >>> posenc.analysis.interaction_matrix(lambda x: x[0] @ W @ x[1], np.ones((2, 2)), 0, 1).round(6) + 0.0
    array([[ 2.,  1.],
           [ 0., -1.]])
    """
    rows = _read_sequence("interaction_matrix: x", x)
    p, q = _read_rows("interaction_matrix", rows, p, q)
    step = read_positive("interaction_matrix: step", step)
    size, matrix = sqrt((rows * rows).mean()) or 1.0, np.zeros((rows.shape[1], rows.shape[1]))
    for i, j in np.ndindex(matrix.shape):

        def at(a, b, i=i, j=j):
            moved = rows.copy()
            moved[p, i] += a
            moved[q, j] += b
            y = read_finite("interaction_matrix: f", f(moved), "a result with ")
            expect(y.ndim == 0, f"interaction_matrix: f has a result of shape {y.shape}; expected one number")
            return y

        matrix[i, j] = _extrapolate(lambda h, at=at: _mixed(at, h), step * size)
    return matrix
