"""Curves by distance: inner products of sinusoidal encodings, and attention to keys of equal content.

An inner product is a sum over pairs; `_integrals` has the integrals that these sums tend to.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from .. import Bias, ContentBias, PositionBias, RopeFrequencies, rope, sinusoidal, sinusoidal_frequencies
from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.door import door, fail, fail_value
from ._integrals import Complex128, Curve, integrate_geometric, integrate_power, integrate_wave, read_curve

PairFrequencies: TypeAlias = "npt.ArrayLike | RopeFrequencies"
"""Radians per position of each pair of channels, (e,)."""
Scheme: TypeAlias = "Bias | PairFrequencies | None"
Content: TypeAlias = "npt.ArrayLike | None"
Schedule = Literal["geometric", "power"]

BLOCK_NUMBERS = 1 << 20
"""Sines and cosines that are held in memory at a time."""


# ---- arguments: frequencies and positions ----


def _read_finite(argument: str, value: object) -> Float64:
    """Convert to finite float64 numbers."""
    array = read.data(argument, value).astype(np.float64)
    if not np.isfinite(array).all():
        fail(ValueError, argument, "NaN or infinity", "finite numbers")
    return array


def _read_pairs(argument: str, value: PairFrequencies, count: int | None = None) -> Float64:
    """Convert to finite float64 numbers, one per pair of channels."""
    array = _read_finite(argument, getattr(value, "inv_freq", value))
    if array.ndim == 0 and argument == "frequencies":
        expected = "an array (e,), one number per pair, such as sinusoidal_frequencies(dim)"
        fail_value(ValueError, argument, value, expected)
    if array.ndim != 1 or len(array) == 0:
        fail(ValueError, argument, f"shape {array.shape}", "one number per pair, at least one")
    if count is not None and len(array) != count:
        fail(ValueError, argument, f"{len(array)} entries", f"{count}, one per frequency")
    return array


def _read_places(argument: str, value: npt.ArrayLike) -> Array:
    """Convert to finite int64 or float64 positions of any shape; an int is one position, not a count."""
    array = read.array(argument, value)
    return read.positions(argument, array.reshape(-1)).reshape(array.shape)


# ---- inner products ----


class InnerProduct(NamedTuple):
    """Inner products weighted by a diagonal matrix, and their two parts. Scalars if both positions are.

    Attributes
    ----------
    total : float64 array, or a number
        The sum of the two parts.
    difference : float64 array, or a number
        The part that is a function of p - q.
    sum : float64 array, or a number
        The part that is a function of p + q.
    """

    total: Float64
    difference: Float64
    sum: Float64


def _wave_sums(positions: Array, frequencies: Float64, weights: Float64) -> Complex128:
    """Compute ``sum_k h[k] exp(i p w[k])`` for each position p.

    Equal positions are computed once, because a matrix of differences repeats most of its values.
    """
    distinct, index = np.unique(positions, return_inverse=True)
    e = len(frequencies)
    block = max(BLOCK_NUMBERS // (2 * e), 1)
    sums = np.empty(len(distinct), np.complex128)
    for start in range(0, len(distinct), block):
        rows = slice(start, start + block)
        table = sinusoidal(
            distinct[rows], 2 * e, frequencies=frequencies, layout="half", order="cossin", dtype=np.float64
        )
        sums.real[rows], sums.imag[rows] = table[:, :e] @ weights, table[:, e:] @ weights
    return sums[index.reshape(positions.shape)]


@overload
def inner_product(  # pyright: ignore[reportOverlappingOverload]
    p: float, q: float, frequencies: PairFrequencies, *, weights: None = None
) -> np.float64: ...
@overload
def inner_product(
    p: npt.ArrayLike, q: npt.ArrayLike, frequencies: PairFrequencies, *, weights: None = None
) -> Float64: ...
@overload
def inner_product(
    p: npt.ArrayLike, q: npt.ArrayLike, frequencies: PairFrequencies, *, weights: Array
) -> np.float64 | Float64: ...
@overload
def inner_product(
    p: npt.ArrayLike, q: npt.ArrayLike, frequencies: PairFrequencies, *, weights: tuple[npt.ArrayLike, npt.ArrayLike]
) -> InnerProduct: ...
@door
def inner_product(
    p: npt.ArrayLike,
    q: npt.ArrayLike,
    frequencies: PairFrequencies,
    *,
    weights: Array | tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> np.float64 | Float64 | InnerProduct:
    """Inner product of two sinusoidal encodings, with weights of the sines, then of the cosines.

    ``<e_p, e_q> = sum_i cos((p - q) w[i])``; with weights ``e_p' H e_q`` for a matrix H.

    Parameters
    ----------
    p, q : number or array (...)
        Positions, broadcast against each other. An int is one position, not a count.
    frequencies : array (e,) or RopeFrequencies
        w, in radians per position. An attention_factor is refused.
    weights : (sine, cosine), each array (e,), or array (2 e, 2 e), optional
        A tuple or list is the diagonal of H: the factors of the products of two sines, then the factors of the products
        of two cosines, one per pair. An array is H itself; its rows and columns have the order of `sinusoidal`: sin 0,
        cos 0, sin 1, ....

    Returns
    -------
    float64 or ndarray of float64, or InnerProduct
        The broadcast shape of p and q. With a diagonal, a NamedTuple ``(total, difference, sum)`` of such arrays: the
        product, its part in p - q and its part in p + q. A full matrix has no such parts, so the result is the product.

    Raises
    ------
    TypeError, ValueError
        A position is not finite, the shapes do not broadcast, or `weights` is neither a pair of arrays (e,) nor
        an array (2 e, 2 e).

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equations 11 to 13: ``difference = 1/2 sum (cosine + sine) cos((p - q) w)`` and
    ``sum = 1/2 sum (cosine - sine) cos((p + q) w)``. The second part is 0 if the two weights are equal; only then is
    the product a function of the relative position. It is even in p - q, so it cannot tell before from after.

    Examples
    --------
    The product is the same for all positions that are three apart:

    >>> import posenc, posenc.analysis
    >>> w = posenc.sinusoidal_frequencies(8)
    >>> posenc.analysis.inner_product([7, 4, 100], [4, 7, 103], w).round(6)
    array([1.96489, 1.96489, 1.96489])

    Unequal weights of the sine and the cosine of a pair add a part that depends on absolute positions:

    >>> parts = posenc.analysis.inner_product([7, 107], [4, 104], w, weights=([1, 1, 1, 1], [3, 1, 1, 1]))
    >>> parts.difference.round(6), parts.sum.round(6)
    (array([0.974897, 0.974897]), array([ 0.004426, -0.871133]))

    A matrix that swaps sine and cosine gives ``sum_i sin((p + q) w[i])``, which says nothing about p - q:

    >>> import numpy as np
    >>> swap = np.kron(np.eye(4), [[0, 1], [1, 0]])
    >>> posenc.analysis.inner_product([7, 8, 9], [4, 5, 6], w, weights=swap).round(6)
    array([0.011995, 1.526359, 1.81222 ])
    """
    w = _read_pairs("frequencies", frequencies)
    factor = getattr(frequencies, "attention_factor", 1.0)
    if factor != 1.0:
        expected = "frequencies.inv_freq, because nothing is rotated"
        fail(ValueError, "frequencies", f"attention_factor {factor}", expected)
    first, second = _read_places("p", p), _read_places("q", q)
    try:
        np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        fail(ValueError, "p", f"shape {first.shape}", f"one that broadcasts with q, {second.shape}")
    differences = np.asarray(first - second)
    if weights is None:
        return _wave_sums(differences, w, np.ones_like(w)).real[()]
    if isinstance(weights, np.ndarray) and weights.ndim == 2:
        return _bilinear_form(first, second, w, weights)[()]
    if not isinstance(weights, list | tuple) or len(weights) != 2:
        expected = "a pair (sine, cosine), or an array H"
        fail(ValueError, "weights", "neither two entries nor two axes", expected)
    sine, cosine = (_read_pairs("weights", part, len(w)) for part in weights)
    difference = _wave_sums(differences, w, (cosine + sine) / 2).real
    total = _wave_sums(np.asarray(first + second), w, (cosine - sine) / 2).real
    return InnerProduct((difference + total)[()], difference[()], total[()])


def _bilinear_form(p: Array, q: Array, w: Float64, matrix: Array) -> Float64:
    """Compute ``e_p' H e_q``."""
    channels = 2 * len(w)
    h = _read_finite("weights", matrix)
    if h.shape != (channels, channels):
        fail(ValueError, "weights", f"shape {h.shape}", f"({channels}, {channels}), channels by channels")
    left, right = (
        sinusoidal(x.reshape(-1), channels, frequencies=w, dtype=np.float64).reshape(*x.shape, channels) for x in (p, q)
    )
    return np.asarray(np.einsum("...c,...c->...", left, right @ h.T))


@overload
def decay(  # pyright: ignore[reportOverlappingOverload]
    distances: float,
    *,
    schedule: Schedule | Curve = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
    weights: npt.ArrayLike | Curve | None = None,
) -> np.complex128: ...
@overload
def decay(
    distances: npt.ArrayLike,
    *,
    schedule: Schedule | Curve = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
    weights: npt.ArrayLike | Curve | None = None,
) -> Complex128: ...
@door
def decay(
    distances: npt.ArrayLike,
    *,
    schedule: Schedule | Curve = "geometric",
    base: float = 10000.0,
    alpha: float = 1.0,
    dim: int | None = None,
    weights: npt.ArrayLike | Curve | None = None,
) -> np.complex128 | Complex128:
    """Mean inner product of two sinusoidal encodings by their distance.

    ``mean_k h_k exp(i x theta(2 k / dim))`` over the pairs k, or its limit for large dim, the integral of
    ``h(t) exp(i x theta(t))`` over t in [0, 1].

    Parameters
    ----------
    distances : number or array (...)
        x, the difference of two positions. An int is one distance, not a count.
    schedule : {"geometric", "power"} or function
        theta(t) is ``base**-t`` or ``t**alpha``. Another theta is a function of an array t (L,) of numbers in [0, 1]
        that returns an array (L,), or one number for all t; then `base` and `alpha` are not used.
    base : float
        Positive.
    alpha : float
        At least 0.
    dim : int, optional
        Width of the encoding, for the mean over its pairs. None is the integral.
    weights : array (ceil(dim / 2),) or function, optional
        h_k for each pair, or a function h(t) of an array t (L,). They are not normalised. By default they are 1.

    Returns
    -------
    complex128 or ndarray of complex128
        The shape of `distances`; 1 at distance 0 without weights. The real part times dim / 2 is the inner product of
        two encodings.

    Raises
    ------
    TypeError, ValueError
        A distance is not finite, `base` is not positive, or `alpha` is negative; a function whose result is not finite,
        or is neither one number nor in the shape of t; weights that are an array without `dim`, or do not fit it.

    Notes
    -----
    Su 2021 (kexue.fm/archives/8231), equation 11, and 14 with weights: ``h_k`` is the mean of two neighbouring entries
    of a diagonal matrix H. With u = x base**-t the integral of the geometric schedule is
    ``(Ci(x) - Ci(x / base) + i (Si(x) - Si(x / base))) / ln base``. The integral of the power schedule is
    ``int_0^1 exp(i x u) u**(1 / alpha - 1) / alpha du``. Both are exact to 1e-13 at all distances up to 2**53; far
    integrals of a base within 0.1 of 1 are divided by its small logarithm, with their rounding errors. Integrals of
    functions are computed by Gauss's rule with 16 nodes on intervals that are halved until the halves agree to 1e-12;
    their time grows with the turns of the wave, x times the range of theta.

    The mean is a left Riemann sum. Once neighbouring pairs differ by less than a turn, ``x ln(base) < pi dim``, it
    differs from the integral by O(1 / dim).

    Examples
    --------
    The mean over 64 and over 1024 pairs, and the integral:

    >>> import posenc.analysis
    >>> abs(posenc.analysis.decay([0, 10, 100], dim=128)).round(3)
    array([1.   , 0.691, 0.49 ])
    >>> abs(posenc.analysis.decay([0, 10, 100], dim=2048)).round(3)
    array([1.   , 0.705, 0.468])
    >>> abs(posenc.analysis.decay([0, 10, 100])).round(3)
    array([1.   , 0.706, 0.468])

    A theta of your own, whose frequencies fall quickly at first, and weights that leave out the fast pairs:

    >>> def theta(t):
    ...     return 1 / (1 + 99 * t)
    >>> abs(posenc.analysis.decay([0, 10, 100], schedule=theta)).round(3)
    array([1.   , 0.9  , 0.516])
    >>> abs(posenc.analysis.decay([0, 10, 100], schedule=theta, weights=lambda t: 2 * t)).round(3)
    array([1.   , 0.987, 0.763])
    """
    if not callable(schedule):
        read.choice("schedule", schedule, ("geometric", "power"))
    x = _read_places("distances", distances)
    base, exponent = read.positive("base", base), read.number("alpha", alpha)
    if exponent < 0:
        fail_value(ValueError, "alpha", alpha, "at least 0")
    if dim is not None:
        width = read.index("dim", dim, 1)
        t = np.arange((width + 1) // 2) * 2 / width
        if callable(schedule):
            w = read_curve("schedule", schedule, t)
        else:
            w = sinusoidal_frequencies(width, base=base, schedule=schedule, alpha=exponent)
        out = _wave_sums(x, w, _pair_weights(weights, t) / len(w))
    elif weights is not None and not callable(weights):
        fail(TypeError, "weights", "an array", "a function h(t), because dim is None")
    else:
        distinct, index = np.unique(abs(x.astype(np.float64)), return_inverse=True)
        of_base = schedule == "geometric"
        if callable(schedule) or weights is not None:
            theta = schedule if callable(schedule) else (lambda t: base**-t) if of_base else (lambda t: t**exponent)
            integral = integrate_wave(distinct, theta, weights)
        else:
            integral = integrate_geometric(distinct, base) if of_base else integrate_power(distinct, exponent)
            integral[distinct == 0] = 1
        of_size = integral[index.reshape(x.shape)]
        out = np.where(x < 0, of_size.conj(), of_size)
    return out[()]


def _pair_weights(weights: npt.ArrayLike | Curve | None, t: Float64) -> Float64:
    """Return h_k for each pair."""
    if weights is None:
        return np.ones(len(t))
    if callable(weights):
        return read_curve("weights", weights, t)
    return _read_pairs("weights", weights, len(t))


# ---- attention ----


class AttentionProfile(NamedTuple):
    """Logits and weights of one query by the distance of keys of equal content, float64 (H, distances).

    Attributes
    ----------
    logits : float64 array (H, distances)
        The part of the logits that depends on the distance.
    weights : float64 array (H, distances)
        Softmax of the logits over the distances.
    """

    logits: Float64
    weights: Float64


@door
def attention_profile(
    bias: Bias | PairFrequencies | None,
    distances: npt.ArrayLike,
    *,
    q: npt.ArrayLike | None = None,
    k: npt.ArrayLike | None = None,
    position: float = 0,
    scale: float | None = None,
) -> AttentionProfile:
    """Attention of one query by the distance of keys that all have the same content.

    ``weights = softmax(logit(rel))`` over the relative positions rel.

    Parameters
    ----------
    bias : Bias, RopeFrequencies, array (e,) or None
        An operator on the logits, or the frequencies of a rotation, whose layout is "half" unless they have one. None
        is attention without positions.
    distances : int or array (M,)
        rel: positions of the keys minus the position of the query. A causal query sees those up to 0. An int n means
        1 - n .. 0: the query's own key and those before it.
    q, k : array (D,) or (H, D), optional
        Content of the query, and of all keys. Operators that read q and k need both; for a rotation they are ones by
        default.
    position : number
        Position of the query. It matters for FIRE and for the table of Swin.
    scale : float, optional
        Factor of the logits of a rotation, or of an operator that reads q and k; ``D**-0.5`` by default.

    Returns
    -------
    AttentionProfile
        ``logits`` and ``weights``, (H, M). The logits of an operator that reads q and k leave out ``q.k``, which is the
        same for all keys and changes no weight.

    Raises
    ------
    TypeError
        `bias` is neither, or reads q and k and they are missing, or reads no positions (`dense`, `toeplitz`).
    IndexError
        A key is outside the table of an operator that indexes by position (`swin`, `beit`, `fox`).
    ValueError
        `distances` is not one axis of finite numbers, or the widths do not fit.

    Notes
    -----
    For ones as q and k, the logits of a rotation are ``sqrt(D)`` times the real part of `decay` at its frequencies.

    Examples
    --------
    A slope of ln 2 halves the weight with every step back:

    >>> import numpy as np, posenc, posenc.analysis
    >>> profile = posenc.analysis.attention_profile(posenc.alibi([np.log(2)]), [-2, -1, 0])
    >>> (7 * profile.weights).round(6)
    array([[1., 2., 4.]])
    >>> posenc.analysis.attention_profile(posenc.rope_frequencies(4), [0, 100]).logits.round(3)
    array([[2.   , 1.403]])
    """
    rel, place = _read_places("distances", distances), _read_places("position", position)
    if rel.ndim == 0 and rel.dtype.kind == "i":
        rel = np.arange(1 - read.index("distances", int(rel), 0), 1)
    for argument, array, axes, expected in (("distances", rel, 1, "1"), ("position", place, 0, "a number")):
        if array.ndim != axes:
            fail(ValueError, argument, f"{array.ndim} axes", expected)
    logits = np.array(_position_logits(bias, q, k, scale, place[None], place + rel), np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
    return AttentionProfile(logits, weights / weights.sum(axis=-1, keepdims=True))


def _position_logits(
    bias: Scheme, q: Content, k: Content, scale: float | None, q_positions: Array, k_positions: Array
) -> Array:
    """Return the logits (H, M) of one query and equal keys that depend on positions."""
    if bias is None:
        return np.zeros((1, len(k_positions)))
    if isinstance(bias, Bias) and any(own is not None for part in bias.parts for own in part.own_positions):
        fail(ValueError, "bias", "positions of its own (Bias.at)", "an operator that reads those of the profile")
    if isinstance(bias, PositionBias):
        if q is not None or k is not None:
            fail(TypeError, "q", "a value", f"None, because {bias.name} reads positions")
        return _added(bias, q_positions, k_positions)
    if isinstance(bias, ContentBias):
        if q is None and k is None:
            fail_value(TypeError, "q", None, f"a query and a key, which {bias.name} reads")
        query, key = _read_heads(q, k, None)
    elif isinstance(bias, RopeFrequencies | np.ndarray | list | tuple):
        query, key = _read_heads(q, k, 2 * len(_read_pairs("bias", bias)))
    else:
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a Bias or rotary frequencies")
    query, keys = query[:, None], np.repeat(key[:, None], len(k_positions), 1)
    if isinstance(bias, ContentBias):
        products = bias.logits(query, keys, q_positions=q_positions, k_positions=k_positions)[:, 0]
    else:
        layout: Literal["half"] | None = None if isinstance(bias, RopeFrequencies) and bias.layout else "half"
        query = rope(query, q_positions, bias, layout=layout)
        products = (rope(keys, k_positions, bias, layout=layout) @ query.swapaxes(-1, -2))[..., 0]
    return products * (float(key.shape[-1]) ** -0.5 if scale is None else read.number("scale", scale))


def _added(bias: PositionBias, q_positions: Array, k_positions: Array) -> Array:
    """Return what an operator adds for one query and each key, (H, M)."""
    if not bias.reads_positions:
        fail(TypeError, "bias", f"{bias.name}, which reads no positions", "a function of positions")
    try:
        matrix = bias.matrix(1, len(k_positions), q_positions=q_positions, k_positions=k_positions, dtype=np.float64)
    except IndexError as error:
        table = str(error).rpartition("; expected ")[2]
        expected = f"{table}, because {bias.name} has a table of positions and the query is at {q_positions[0]}"
        raise IndexError(f": distances has a key outside the table; expected keys at {expected}") from error
    return matrix[:, 0]


def _read_heads(q: Content, k: Content, width: int | None) -> tuple[Float64, Float64]:
    """Convert q and k to float64 (H, D) with the same number of heads.

    With a `width` D, a missing one is ones; without, both are needed.
    """
    vectors = []
    for name, value in (("q", q), ("k", k)):
        if value is None and width is None:
            fail_value(ValueError, name, None, "q and k together")
        array = np.ones(width or 0) if value is None else read.data(name, value).astype(np.float64)
        if array.ndim not in (1, 2) or (width is not None and array.shape[-1] != width):
            d = "D" if width is None else width
            fail(ValueError, name, f"shape {array.shape}", f"({d},) or (H, {d})")
        vectors.append(np.atleast_2d(array))
    heads = max(map(len, vectors))
    if vectors[0].shape[-1] != vectors[1].shape[-1] or any(len(vector) not in (1, heads) for vector in vectors):
        fail(ValueError, "k", f"shape {vectors[1].shape}", f"the width and heads of q, {vectors[0].shape}")
    query, key = (np.ascontiguousarray(np.broadcast_to(vector, (heads, vector.shape[-1]))) for vector in vectors)
    return query, key
