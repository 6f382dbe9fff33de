"""Operators by distance and by their equations, and the sensitivity of a function to the order of its rows."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import Bias, ContentBias, PositionBias, RopeFrequencies, rope
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
