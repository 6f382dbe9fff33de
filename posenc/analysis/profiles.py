"""Operators by distance and by their equations, and the sensitivity of a function to the order of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import Bias, ContentBias, PositionBias, RopeFrequencies, reference, rope
from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.door import door, fail, fail_value
from .arguments import PairFrequencies, read_pairs, read_places


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
    scheme: Bias | PairFrequencies | None,
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
    scheme : Bias, RopeFrequencies, array (e,) or None
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
        `scheme` is neither, or reads q and k and they are missing, or reads no positions (`dense`, `toeplitz`).
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
    rel, place = read_places("distances", distances), read_places("position", position)
    if rel.ndim == 0 and rel.dtype.kind == "i":
        rel = np.arange(1 - read.index("distances", int(rel), 0), 1)
    for argument, array, axes, expected in (("distances", rel, 1, "1"), ("position", place, 0, "a number")):
        if array.ndim != axes:
            fail(ValueError, argument, f"{array.ndim} axes", expected)
    logits = np.array(_position_logits(scheme, q, k, scale, place[None], place + rel), np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
    return AttentionProfile(logits, weights / weights.sum(axis=-1, keepdims=True))


def _position_logits(
    scheme: Bias | PairFrequencies | None,
    q: npt.ArrayLike | None,
    k: npt.ArrayLike | None,
    scale: float | None,
    q_positions: Array,
    k_positions: Array,
) -> Array:
    """Return the logits (H, M) of one query and equal keys that depend on positions."""
    if scheme is None:
        return np.zeros((1, len(k_positions)))
    if isinstance(scheme, Bias) and any(own is not None for part in scheme.parts for own in part.own_positions):
        fail(ValueError, "scheme", "positions of its own (Bias.at)", "an operator that reads those of the profile")
    if isinstance(scheme, PositionBias):
        if q is not None or k is not None:
            fail(TypeError, "q", "a value", f"None, because {scheme.name} reads positions")
        return _added(scheme, q_positions, k_positions)
    if isinstance(scheme, ContentBias):
        if q is None and k is None:
            fail_value(TypeError, "q", None, f"a query and a key, which {scheme.name} reads")
        query, key = _read_heads(q, k, None)
    elif isinstance(scheme, RopeFrequencies | np.ndarray | list | tuple):
        query, key = _read_heads(q, k, 2 * len(read_pairs("scheme", scheme)))
    else:
        fail(TypeError, "scheme", f"type {type(scheme).__name__}", "a Bias or rotary frequencies")
    query, keys = query[:, None], np.repeat(key[:, None], len(k_positions), 1)
    if isinstance(scheme, ContentBias):
        products = scheme.logits(query, keys, q_positions=q_positions, k_positions=k_positions)[:, 0]
    else:
        layout: Literal["half"] | None = None if isinstance(scheme, RopeFrequencies) and scheme.layout else "half"
        query = rope(query, q_positions, scheme, layout=layout)
        products = (rope(keys, k_positions, scheme, layout=layout) @ query.swapaxes(-1, -2))[..., 0]
    logits: Array = products * (float(key.shape[-1]) ** -0.5 if scale is None else read.number("scale", scale))
    return logits


def _added(scheme: PositionBias, q_positions: Array, k_positions: Array) -> Array:
    """Return what an operator adds for one query and each key, (H, M)."""
    if not scheme.reads_positions:
        fail(TypeError, "scheme", f"{scheme.name}, which reads no positions", "a function of positions")
    try:
        matrix = scheme.matrix(1, len(k_positions), q_positions=q_positions, k_positions=k_positions, dtype=np.float64)
    except IndexError as error:
        table = str(error).rpartition("; expected ")[2]
        expected = f"{table}, because {scheme.name} has a table of positions and the query is at {q_positions[0]}"
        raise IndexError(f": distances has a key outside the table; expected keys at {expected}") from error
    return matrix[:, 0]


def _read_heads(q: npt.ArrayLike | None, k: npt.ArrayLike | None, width: int | None) -> tuple[Float64, Float64]:
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


@door
def order_sensitivity(
    function: Callable[[Array], npt.ArrayLike],
    x: npt.ArrayLike,
    *,
    permutations: int | npt.ArrayLike = 8,
    seed: int = 0,
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
    if not callable(function):
        fail(TypeError, "function", f"type {type(function).__name__}", "a callable")
    rows = read.data("x", x)
    if rows.ndim < 1 or len(rows) == 0:
        fail(ValueError, "x", f"shape {rows.shape}", "at least one row")
    orders = _read_permutations(permutations, len(rows), seed)
    unpermuted = np.array(function(rows.copy()), np.float64)  # copies, as a function may reuse and change its arrays
    if unpermuted.ndim < 1 or len(unpermuted) != len(rows):
        expected = f"({len(rows)}, ...), one row per row of x"
        fail(ValueError, "function", f"a result of shape {unpermuted.shape}", expected)
    largest = np.abs(unpermuted).max(initial=0) or 1.0
    sensitivities = np.empty(len(orders))
    for number, order in enumerate(orders):
        permuted = np.asarray(function(rows[order]), np.float64)
        with np.errstate(invalid="ignore"):  # results that are not finite have a sensitivity of NaN
            difference, whole = permuted / largest - unpermuted[order] / largest, unpermuted / largest
            sensitivities[number] = np.linalg.norm(difference) / (np.linalg.norm(whole) or 1.0)
    return sensitivities


def _read_permutations(permutations: int | npt.ArrayLike, n: int, seed: int) -> Array:
    """Draw or check the permutations of n rows, (P, n)."""
    if isinstance(permutations, int | np.integer) and not isinstance(permutations, bool):
        rng = np.random.default_rng(read.index("seed", seed, 0))
        return np.stack([rng.permutation(n) for _ in range(read.index("permutations", permutations, 1))])
    orders = np.asarray(permutations)
    if orders.dtype.kind not in "iu":
        fail(TypeError, "permutations", f"dtype {orders.dtype}", "an integer, or an array of integers")
    if orders.ndim != 2 or orders.shape[1] != n or (np.sort(orders) != np.arange(n)).any():
        fail(ValueError, "permutations", f"shape {orders.shape}", f"(P, {n}), each row a permutation")
    return orders


# ---- operators by their equations in `posenc.reference`: slow, and meant for small sizes ----


def _check_places(n: int, m: int, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None) -> None:
    for argument, value, length in (("q_positions", q_positions, n), ("k_positions", k_positions, m)):
        if value is not None and (shape := read.positions(argument, value).shape) != (length,):
            fail(ValueError, argument, f"shape {shape}", f"({length},)")


@door
def reference_matrix(
    bias: PositionBias,
    n: int,
    m: int | None = None,
    *,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
) -> Float64:
    """Compute the matrix of an operator by its equation in plain NumPy.

    ``b[h, i, j]`` is the entry for head h, query i and key j.

    Parameters
    ----------
    bias : PositionBias
        An operator that reads positions.
    n, m : int
        Numbers of queries and keys; m is n by default.
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
    >>> bool((found == bias.matrix(5, 9)).all())
    True
    """
    if not isinstance(bias, PositionBias):
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a PositionBias")
    n = read.index("n", n, 0)
    m = n if m is None else read.index("m", m, 0)
    _check_places(n, m, q_positions, k_positions)
    matrix: Float64 = reference.reference_matrix(bias, n, m, q_positions=q_positions, k_positions=k_positions)
    return matrix


@door
def reference_logits(
    bias: ContentBias,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
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
    if not isinstance(bias, ContentBias):
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a ContentBias")
    queries, keys = read.data("q", q), read.data("k", k)
    for argument, array in (("q", queries), ("k", keys)):
        if array.ndim < 2:
            fail(ValueError, argument, f"{array.ndim} axes", "at least 2: (..., N, D)")
    _check_places(queries.shape[-2], keys.shape[-2], q_positions, k_positions)
    logits: Float64 = reference.reference_logits(bias, queries, keys, q_positions=q_positions, k_positions=k_positions)
    return logits
