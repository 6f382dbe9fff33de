"""Curves and matrices of positions."""

import numpy as np

from . import bias as biases
from . import relative
from ._numbers import cos, exp, sqrt, wide
from .absolute import sinusoidal
from .rotary import rope

__all__ = [
    "attention_profile", "correlation_matrix", "decay", "distance_matrix", "gram_matrix", "inner_product",
    "interaction_matrix", "order_sensitivity", "reference_logits", "reference_matrix", "rope_bands", "rope_coverage",
    "taylor_terms", "triangle_points",
]  # fmt: skip


# ---- matrices ----


def gram_matrix(encoding):
    """Compute the inner products of all pairs of positions.

    ``G[m, n] = <p_m, p_n>``.
    """
    p = wide(encoding)
    return (p[..., :, None, :] * p[..., None, :, :]).sum(-1)


def distance_matrix(encoding):
    """Compute the Euclidean distances of all pairs of positions.

    ``D[m, n] = |p_m - p_n|``.
    """
    p = wide(encoding)
    return sqrt(((p[..., :, None, :] - p[..., None, :, :]) ** 2).sum(-1))


@np.errstate(invalid="ignore")  # rows of equal numbers: 0 / 0
def correlation_matrix(encoding):
    """Compute the Pearson correlations of all pairs of positions over their channels.

    ``C[m, n] = <z_m, z_n>`` with ``z = (p - mean p) / |p - mean p|``.
    """
    p = wide(encoding)
    p = p - p[..., :1]  # exactly 0 in rows of equal numbers, whose correlations are NaN
    z = p - p.mean(-1, keepdims=True)
    return gram_matrix(z / sqrt((z**2).sum(-1, keepdims=True)))


def triangle_points(distance, correlation):
    """Pair the correlation and the distance of all pairs of positions.

    ``(C[i, j], D[i, j])`` for ``i < j``, and ``(C[j, i], D[j, i])``.
    """
    points = np.stack([wide(correlation), wide(distance)], -1)
    i, j = np.triu_indices(len(points), 1)
    return points[i, j], points[j, i]


# ---- operators of posenc ----


def _twin(operator):
    """The operator of this package with the arguments and the own positions of an operator of posenc."""
    twins = []
    for part in operator.parts:
        given = {**part.arrays._asdict(), **part.options}
        twin = getattr(biases if hasattr(biases, part.name) else relative, part.name)(**given)
        q_positions, k_positions = part.own_positions
        twins.append(twin.at(q_positions=q_positions, k_positions=k_positions))
    return sum(twins)


def reference_matrix(bias, n, m=None, *, q_positions=None, k_positions=None):
    """Compute the matrix of an operator of posenc by its equation.

    ``alibi(bias.slopes).matrix(n, m)`` of this package, if the operator is `posenc.alibi`.
    """
    return _twin(bias).matrix(n, m, q_positions=q_positions, k_positions=k_positions)


def reference_logits(bias, q, k, *, q_positions=None, k_positions=None):
    """Compute the logits of an operator of posenc by its equation.

    ``shaw(bias.rel_k).logits(q, k)`` of this package, if the operator is `posenc.shaw`.
    """
    return _twin(bias).logits(q, k, q_positions=q_positions, k_positions=k_positions)


# ---- curves ----


def inner_product(m, n, frequencies, *, weights=None):
    """Compute the inner product of two sinusoidal encodings.

    ``<p_m, p_n> = sum_i cos((m - n) w_i)``; with weights ``p_m' H p_n``.

    Su 2021 (kexue.fm/archives/8231), equations 11 to 13. With the diagonal (sine, cosine) of H the result is
    (total, the part in m - n, the part in m + n).
    """
    m, n, w = wide(m), wide(n), wide(getattr(frequencies, "inv_freq", frequencies))
    if weights is None:
        return cos((m - n)[..., None] * w).sum(-1)
    if isinstance(weights, np.ndarray):
        p, q = (sinusoidal(x[..., None], 2 * len(w), frequencies=w)[..., 0, :] for x in (m, n))
        return (p @ wide(weights) * q).sum(-1)
    sine, cosine = map(wide, weights)
    difference = ((cosine + sine) / 2 * cos((m - n)[..., None] * w)).sum(-1)
    total = ((cosine - sine) / 2 * cos((m + n)[..., None] * w)).sum(-1)
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


def attention_profile(scheme, distances, *, q=None, k=None, position=0, scale=None):
    """Compute the attention of one query by the distance of keys that all have the same content.

    ``weights = softmax(logit(rel))``. The result is (logits, weights), each (H, M).

    `scheme` is an operator, of posenc or of this package, or the frequencies of a rotation.
    """
    distances = wide(distances)
    where = {"q_positions": np.array([position]), "k_positions": position + distances}
    is_rotation = hasattr(scheme, "inv_freq") or isinstance(scheme, (np.ndarray, list, tuple))
    if q is None and k is None and not is_rotation:
        logits = wide(scheme.matrix(1, len(distances), **where))[:, 0]
    else:
        width = 2 * len(getattr(scheme, "inv_freq", scheme)) if is_rotation else np.shape(q)[-1]
        q, k = (np.ones(width) if content is None else wide(content) for content in (q, k))
        heads = max(map(len, map(np.atleast_2d, (q, k))))
        q = np.broadcast_to(np.atleast_2d(q)[:, None], (heads, 1, width))
        k = np.broadcast_to(np.atleast_2d(k)[:, None], (heads, len(distances), width))
        logits = _rotary_logits(scheme, q, k, **where) if is_rotation else scheme.logits(q, k, **where)[:, 0]
        logits = wide(logits) * (width**-0.5 if scale is None else scale)
    weights = exp(logits - logits.max(-1, keepdims=True, initial=-np.inf))
    return logits, weights / weights.sum(-1, keepdims=True)


def _rotary_logits(w, q, k, q_positions, k_positions):
    """Products of a query and keys that are rotated to their positions."""
    q, k = rope(q, q_positions, w, layout="half"), rope(k, k_positions, w, layout="half")
    return (q * k).sum(-1)


def order_sensitivity(function, x, *, permutations=8, seed=0):
    """Measure the sensitivity of a function to the order of the rows of its argument.

    ``|f(P x) - P f(x)| / |f(x)|`` for permutations P. Su 2021 (kexue.fm/archives/8231), equation 2.
    """
    x = wide(x)
    if np.ndim(permutations) == 0:
        rng = np.random.default_rng(seed)
        permutations = [rng.permutation(len(x)) for _ in range(permutations)]
    value = wide(function(x))
    size = np.linalg.norm(value) or 1.0
    return np.array([np.linalg.norm(function(x[order]) - value[order]) / size for order in permutations])


# ---- pairs of RoPE ----


def rope_bands(scaled, original, *, train_length):
    """Compute the effect of a RoPE scaling on the frequency of each pair.

    ``ratio = scaled / original``. The result is (wavelength, turns, ratio, kind). Peng et al. 2023, section 3.
    """
    after, before = (wide(getattr(w, "inv_freq", w)) for w in (scaled, original))
    ratio = after / before
    kept = abs(ratio - 1) <= 1e-9
    kind = np.where(kept, "kept", np.where(ratio <= ratio.min() * (1 + 1e-9), "interpolated", "blended"))
    return 2 * np.pi / before, train_length * before / (2 * np.pi), ratio, kind


def rope_coverage(frequencies, train_length, *, test_length=None, test_frequencies=None):
    """Compute which angles of each RoPE pair occur in training, and which new distances have others.

    The angles of pair k are ``{r w_k mod 2 pi : r = 0 .. L - 1}``, on the arc ``[0, (L - 1) w_k]``.

    The result is (turns, covered, gap, first_unseen, unseen). Su 2023 (kexue.fm/archives/9675).
    """
    w = wide(getattr(frequencies, "inv_freq", frequencies))
    v = w if test_frequencies is None else wide(getattr(test_frequencies, "inv_freq", test_frequencies))
    turn, arc, end = 2 * np.pi, (train_length - 1) * w, test_length or train_length
    angles = np.sort(np.arange(train_length)[:, None] * w % turn, axis=0)
    gap = np.diff(np.concatenate([angles, angles[:1] + turn]), axis=0).max(axis=0)
    last = arc * (1 + 4 * np.finfo(np.float64).eps)  # the angle of the last trained distance may round up
    with np.errstate(divide="ignore", invalid="ignore"):
        first_unseen = np.where((arc >= turn) | (v == 0), np.inf, np.floor(last / v) + 1)
    is_new = np.arange(train_length, end)[:, None] * v % turn > last
    unseen = np.where(arc >= turn, 0.0, is_new.sum(axis=0) / max(end - train_length, 1))
    return train_length * w / turn, np.minimum(arc / turn, 1), gap, first_unseen, unseen


# ---- Taylor's theorem ----


def _extrapolate(of_step, h):
    """Remove the error of a central difference that is proportional to h**2."""
    return (4 * of_step(h) - of_step(2 * h)) / 3


def _mixed(at, h):
    """The mixed second derivative of ``at(a, b)`` at 0."""
    return (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h * h)


def taylor_terms(f, x, encoding, m, n, *, step=2.0**-8):
    """Expand a function of a sequence in the encodings of two of its rows.

    ``f(.., x_m + p_m, .., x_n + p_n, ..)`` to second order, by central differences.

    The result is (value, first_m, first_n, second_m, second_n, interaction). Su 2021 (kexue.fm/archives/8231),
    equation 4.
    """
    x, p = wide(x), wide(encoding)

    def at(a, b):
        moved = x.copy()
        moved[m] += a * p[m]
        moved[n] += b * p[n]
        return wide(f(moved))

    value, sides = at(0, 0), (lambda h: at(h, 0), lambda h: at(0, h))
    first = [_extrapolate(lambda h, g=g: (g(h) - g(-h)) / (2 * h), step) for g in sides]
    second = [_extrapolate(lambda h, g=g: (g(h) - 2 * value + g(-h)) / (2 * h * h), step) for g in sides]
    return value, *first, *second, _extrapolate(lambda h: _mixed(at, h), step)


def interaction_matrix(f, x, m, n, *, step=2.0**-8):
    """Compute the matrix by which two rows of a sequence interact in a function.

    ``H[i, j] = d2f / (dx[m, i] dx[n, j])``, by central differences. Su 2021 (kexue.fm/archives/8231), equation 4.
    """
    x = wide(x)
    size, matrix = sqrt((x * x).mean()) or 1.0, np.zeros((x.shape[1], x.shape[1]))
    for i, j in np.ndindex(matrix.shape):

        def at(a, b, i=i, j=j):
            moved = x.copy()
            moved[m, i] += a
            moved[n, j] += b
            return wide(f(moved))

        matrix[i, j] = _extrapolate(lambda h, at=at: _mixed(at, h), step * size)
    return matrix
