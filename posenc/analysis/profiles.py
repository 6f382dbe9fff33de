"""What any scheme does to attention by distance, and whether a function knows the order of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import F64, Float64, as_data, as_index, as_number, fail
from ..bias.operator import Bias
from ..rotary.rope import rope
from ..rotary.scaling import RopeFrequencies
from .curves import as_pairs, places

__all__ = ["AttentionProfile", "attention_profile", "order_sensitivity"]


class AttentionProfile(NamedTuple):
    """One query and keys that differ by where they stand only, float64 (H, distances)."""

    logits: Float64
    """What the scheme makes of them."""
    weights: Float64
    """Their softmax over the distances that were given."""


def attention_profile(
    scheme: Any,
    distances: Any,
    *,
    q: npt.ArrayLike | None = None,
    k: npt.ArrayLike | None = None,
    position: float = 0,
    scale: float | None = None,
) -> AttentionProfile:
    """What a scheme does to attention by distance: ``softmax over rel of logit(rel)``, for keys of equal content.

    Parameters
    ----------
    scheme : Bias, RopeFrequencies or array (e,)
        An operator on the logits, or the frequencies of a rotation ("half" layout).
    distances : array (M,)
        Positions of the keys minus that of the query; 0 and negative ones are what a causal query sees.
    q, k : array (D,) or (H, D), optional
        The query, and the content that all keys share, where the scheme reads them. For a rotation both are ones
        unless given.
    position : number
        Where the query stands: FIRE and Swin's tables know.
    scale : float, optional
        Factor of the logits of a rotation or of an operator that reads q and k; ``D**-0.5`` unless given.

    Returns
    -------
    AttentionProfile
        ``logits`` and ``weights``, (H, M). A part that is the same for every key is left out of the logits of an
        operator that reads q and k: it changes no weight.

    Raises
    ------
    TypeError
        A scheme that is neither; a Bias that reads q and k without them.
    ValueError
        Distances that are not one axis of finite numbers, widths that do not fit.

    Notes
    -----
    With ones, a rotation's logits are ``sqrt(D)`` times `decay`'s real part at its frequencies.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.analysis
    >>> profile = posenc.analysis.attention_profile(posenc.alibi([np.log(2)]), [-2, -1, 0])
    >>> (7 * profile.weights).round(6)
    array([[1., 2., 4.]])
    >>> posenc.analysis.attention_profile(posenc.rope_frequencies(4), [0, 100]).logits.round(3)
    array([[2.   , 1.403]])
    """
    function = "attention_profile"
    where = places(function, "distances", distances)
    if where.ndim != 1:
        fail(ValueError, function, "distances", f"{where.ndim} axes", "1")
    start = places(function, "position", position)
    if start.ndim:
        fail(ValueError, function, "position", f"{start.ndim} axes", "a number")
    at, keys = start[None], start + where
    if isinstance(scheme, Bias):
        if q is None and k is None:
            logits = scheme.matrix(1, len(keys), q_positions=at, k_positions=keys, dtype=F64)[:, 0]
        else:
            query, key = vectors(function, q, k, None)
            many = np.broadcast_to(key[:, None], (len(key), len(keys), key.shape[-1]))
            logits = scheme.logits(query[:, None], many, q_positions=at, k_positions=keys)[:, 0]
            logits = logits * factor(function, scale, query.shape[-1])
    else:
        if not isinstance(scheme, RopeFrequencies | np.ndarray | list | tuple):
            fail(TypeError, function, "scheme", f"type {type(scheme).__name__}", "a Bias or rotary frequencies")
        width = 2 * len(as_pairs(function, "scheme", scheme))
        query, key = vectors(function, q, k, width)
        turned = rope(np.repeat(key[:, None], len(keys), 1), keys, scheme, layout="half")
        logits = (turned @ rope(query[:, None], at, scheme, layout="half").swapaxes(-1, -2))[..., 0]
        logits = logits * factor(function, scale, width)
    logits = np.array(logits, F64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)) if logits.size else logits.copy()
    return AttentionProfile(logits, weights / weights.sum(axis=-1, keepdims=True) if logits.size else weights)


def factor(function: str, scale: float | None, width: int) -> float:
    return float(width) ** -0.5 if scale is None else as_number(function, "scale", scale)


def vectors(function: str, q: Any, k: Any, width: int | None) -> tuple[Float64, Float64]:
    """(H, D) float64 queries and keys of as many heads; without a width both are needed."""
    found = []
    for name, value in (("q", q), ("k", k)):
        if value is None and width is None:
            fail(ValueError, function, name, "no value", "q and k together")
        array = np.ones(width or 0) if value is None else as_data(function, name, value).astype(F64)
        if array.ndim not in (1, 2) or (width is not None and array.shape[-1] != width):
            fail(ValueError, function, name, f"shape {array.shape}", f"(D,) or (H, D), D = {width or 'the same'}")
        found.append(np.atleast_2d(array))
    heads = max(map(len, found))
    if found[0].shape[-1] != found[1].shape[-1] or any(len(a) not in (1, heads) for a in found):
        fail(ValueError, function, "k", f"shape {found[1].shape}", f"one that fits q, {found[0].shape}")
    first, second = (np.ascontiguousarray(np.broadcast_to(a, (heads, a.shape[-1]))) for a in found)
    return first, second


def order_sensitivity(
    function: Callable[[Any], Any], x: npt.ArrayLike, *, permutations: Any = 8, seed: int = 0
) -> Float64:
    """How far a function is from not knowing the order: ``|f(P x) - P f(x)| / |f(x)|`` for each permutation P of rows.

    Parameters
    ----------
    function : callable
        (N, d) -> (N, ...): attention, or a model, with its positions inside. Called once, and once for each P.
    x : array (N, d)
        Rows in their order.
    permutations : int or array (P, N) of integers
        So many random ones, or these: row i of ``P x`` is row ``permutations[., i]`` of x.
    seed : int
        Of the random ones.

    Returns
    -------
    ndarray (P,) of float64
        0, up to rounding, for a function that treats rows as a set: attention without positions.

    Raises
    ------
    TypeError, ValueError
        Permutations that are none, a function that returns another number of rows.

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
    name = "order_sensitivity"
    if not callable(function):
        fail(TypeError, name, "function", f"type {type(function).__name__}", "a callable")
    rows = as_data(name, "x", x)
    if rows.ndim < 1 or len(rows) == 0:
        fail(ValueError, name, "x", f"shape {rows.shape}", "at least one row")
    n = len(rows)
    if isinstance(permutations, int | np.integer) and not isinstance(permutations, bool):
        rng = np.random.default_rng(as_index(name, "seed", seed, 0))
        orders = [rng.permutation(n) for _ in range(as_index(name, "permutations", permutations, 1))]
        table = np.stack(orders)
    else:
        table = np.asarray(permutations)
        if table.dtype.kind not in "iu":
            fail(TypeError, name, "permutations", f"dtype {table.dtype}", "an integer, or an array of integers")
        if table.ndim != 2 or table.shape[1] != n or (np.sort(table) != np.arange(n)).any():
            fail(ValueError, name, "permutations", f"shape {table.shape}", f"(P, {n}), each row an order of all rows")
    before = np.asarray(function(rows), F64)
    if before.ndim < 1 or len(before) != n:
        fail(ValueError, name, "function", f"a result of shape {before.shape}", f"({n}, ...): a row for each row of x")
    size = np.linalg.norm(before) or 1.0
    return np.array([np.linalg.norm(np.asarray(function(rows[p]), F64) - before[p]) / size for p in table])
