"""Operators in two loops over queries and keys: the definitions of their index arithmetic, to read and to compare with.

Code that skews, rolls or gathers whole matrices is fast and easily off by one row. These loops do neither: each pair of
a query and a key computes its own row of a table. They are slow, and meant for small sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import F64, Array, Float64, as_data, as_index, as_positions, fail
from ..bias.operator import Bias, ContentBias, PositionBias

__all__ = ["reference_logits", "reference_matrix"]

Vector: TypeAlias = Float64
Entry: TypeAlias = Callable[..., float]


def _row(distance: float, before: int, rows: int) -> int:
    """Row of a table whose row `before` is the distance 0, clipped at both ends."""
    return min(max(int(distance) + before, 0), rows - 1)


def _of_head(table: Array, head: int) -> Array:
    """Rows of a table that belongs to each head or to all."""
    return np.asarray(table[head] if table.ndim == 3 else table, F64)


# ---- operators that read positions: (arrays, options, head, i, j, position of i, position of j) ----


def _alibi(arrays: Any, options: dict[str, Any], head: int, i: int, j: int, p: float, q: float) -> float:
    return -float(arrays.slopes[head]) * abs(q - p)


def _t5(arrays: Any, options: dict[str, Any], head: int, i: int, j: int, p: float, q: float) -> float:
    """Raffel et al. 2020: a bucket for each short distance, then buckets by the logarithm of the distance."""
    side = len(arrays.table) // (2 if options["bidirectional"] else 1)
    exact, first = side // 2, 0
    distance = int(p - q)  # positive for keys before the query
    if options["bidirectional"] and distance < 0:
        first, distance = side, -distance
    distance = max(distance, 0)
    bucket, steps = distance, side - exact
    if distance >= exact:
        bucket = exact
        ratio, farthest = Fraction(distance, exact) ** steps, Fraction(options["max_distance"], exact)
        while bucket < side - 1 and ratio >= farthest ** (bucket + 1 - exact):
            bucket += 1
    return float(arrays.table[first + bucket, head])


def _swin(arrays: Any, options: dict[str, Any], head: int, i: int, j: int, p: float, q: float) -> float:
    """Liu et al. 2021: the position of a pixel is row * width + column."""
    height, width = int(options["height"]), int(options["width"])
    (y, x), (v, u) = divmod(int(p), width), divmod(int(q), width)
    return float(arrays.table[(y - v + height - 1) * (2 * width - 1) + x - u + width - 1, head])


def _tupe(arrays: Any, options: dict[str, Any], head: int, i: int, j: int, p: float, q: float) -> float:
    """Ke et al. 2021, equations 7 and 8: the first row and column may be reset; the bias of distance is added."""
    pos_q, pos_k = arrays.pos_q[head, i].astype(F64), arrays.pos_k[head, j].astype(F64)
    value = float(pos_q @ pos_k / sqrt(2 * len(pos_q)))
    if j == 0 and arrays.any_to_cls is not None:
        value = float(arrays.any_to_cls[head])
    if i == 0 and arrays.cls_to_any is not None:
        value = float(arrays.cls_to_any[head])
    if arrays.relative is not None:
        relative = arrays.relative
        entry = _entry("reference_matrix", relative, POSITION_ENTRIES)
        value += entry(relative.arrays, relative.options, head, i, j, p, q)
    return value


POSITION_ENTRIES: dict[str, Entry] = {"alibi": _alibi, "t5": _t5, "swin": _swin, "tupe": _tupe}


# ---- operators that read a query and a key: (arrays, options, head, query, key, rel) ----


def _shaw(arrays: Any, options: dict[str, Any], head: int, q: Vector, k: Vector, rel: float) -> float:
    """Shaw et al. 2018, equation 4, and Music Transformer's skewed term with ``k_min`` and one row for rel = 0."""
    table = _of_head(arrays.rel_k, head)
    before = options.get("k_min", len(table) // 2)
    return float(q @ table[_row(rel, before, len(table))])


def _relative_key_query(arrays: Any, options: dict[str, Any], head: int, q: Vector, k: Vector, rel: float) -> float:
    table = _of_head(arrays.table, head)
    return float((q + k) @ table[_row(rel, len(table) // 2, len(table))])


def _transformer_xl(arrays: Any, options: dict[str, Any], head: int, q: Vector, k: Vector, rel: float) -> float:
    """Dai et al. 2019, section 3.3, terms b, c and d, without the shift of a matrix."""
    table = _of_head(arrays.r, head)
    u, v = arrays.u[head].astype(F64), arrays.v[head].astype(F64)
    return float(u @ k + (q + v) @ table[_row(rel, len(table) // 2, len(table))])


def _deberta(arrays: Any, options: dict[str, Any], head: int, q: Vector, k: Vector, rel: float) -> float:
    """He et al. 2021, equation 4, whose distances are those of the query from the key."""

    def row(distance: float, table: Array) -> int:
        bucket = _deberta_bucket(int(distance), options.get("buckets"), options.get("max_position"))
        return _row(bucket, len(table) // 2, len(table))

    value = 0.0
    if "c2p" in options["terms"]:
        table = _of_head(arrays.rel_k, head)
        value += float(q @ table[row(-rel, table)])
    if "p2c" in options["terms"]:
        table = _of_head(arrays.rel_q, head)
        value += float(k @ table[row(-rel if options["p2c_index"] == "code" else rel, table)])
    return value


def _deberta_bucket(distance: int, buckets: int | None, max_position: int | None) -> int:
    if buckets is None or max_position is None or abs(distance) <= buckets // 2:
        return distance
    middle, steps = buckets // 2, 0
    power = Fraction(abs(distance), middle) ** (middle - 1)
    while Fraction(max_position - 1, middle) ** steps < power:
        steps += 1
    return middle + steps if distance > 0 else -(middle + steps)


CONTENT_ENTRIES: dict[str, Entry] = {
    "shaw": _shaw, "relative_key_query": _relative_key_query, "transformer_xl": _transformer_xl, "deberta": _deberta,
}  # fmt: skip


# ---- the loops ----


def _entry(function: str, bias: Bias, entries: dict[str, Entry]) -> Entry:
    if bias.name not in entries:
        fail(ValueError, function, "bias", bias.name, f"one of {', '.join(entries)}")
    return entries[bias.name]


def _places(
    function: str, bias: Bias, n: int, m: int, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None
) -> tuple[Array, Array]:
    """Positions (n,) and (m,): the operator's own, those of the call, or the last n of m."""
    none = q_positions is None and k_positions is None
    found = []
    sides = (("q_positions", q_positions, n, m - n if none else 0), ("k_positions", k_positions, m, 0))
    for (argument, given, length, first), own in zip(sides, bias._own_positions, strict=True):
        positions = np.arange(length) + first if given is None else as_positions(function, argument, given)
        if own is not None:
            positions = own
        if positions.shape != (length,):
            fail(ValueError, function, argument, f"shape {positions.shape}", f"({length},)")
        found.append(positions)
    return found[0], found[1]


def reference_matrix(
    bias: PositionBias[Any],
    n: int,
    m: int | None = None,
    *,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
) -> Float64:
    """Compute the matrix of an operator by two loops, pair after pair.

    ``b[h, i, j]`` is the entry for head h, query i and key j.

    Parameters
    ----------
    bias : PositionBias
        `alibi`, `t5`, `swin` or `tupe`.
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
        Another operator, or positions of another length.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.analysis
    >>> bias = posenc.t5(np.arange(64.0).reshape(32, 2), bidirectional=False)
    >>> loops = posenc.analysis.reference_matrix(bias, 5, 9)
    >>> bool((loops == bias.matrix(5, 9)).all())
    True
    """
    function = "reference_matrix"
    if not isinstance(bias, PositionBias):
        fail(TypeError, function, "bias", f"type {type(bias).__name__}", "a PositionBias")
    entry = _entry(function, bias, POSITION_ENTRIES)
    n = as_index(function, "n", n, 0)
    m = n if m is None else as_index(function, "m", m, 0)
    p, q = _places(function, bias, n, m, q_positions, k_positions)
    heads = bias.matrix(n, m, q_positions=q_positions, k_positions=k_positions).shape[0]
    out = np.empty((heads, n, m))
    for h, i, j in np.ndindex(heads, n, m):
        out[h, i, j] = entry(bias.arrays, bias.options, h, i, j, p[i], q[j])
    return out


def reference_logits(
    bias: ContentBias[Any, Any],
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
) -> Float64:
    """Compute the logits of an operator by two loops, pair after pair.

    The entry [..., h, i, j] is the term for query i and key j of head h, before the common scale.

    Parameters
    ----------
    bias : ContentBias
        `shaw`, `relative_key_query`, `transformer_xl` or `deberta`.
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
        Another operator, or shapes that do not fit.

    Examples
    --------
    The shift of Transformer-XL, with a memory of three keys:

    >>> import numpy as np, posenc, posenc.analysis
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 8, 4))
    >>> table, (u, v) = rng.standard_normal((2, 17, 4)), rng.standard_normal((2, 2, 4))
    >>> bias = posenc.transformer_xl(table, u, v)
    >>> loops = posenc.analysis.reference_logits(bias, q, k)
    >>> bool(abs(loops - bias.logits(q, k)).max() < 1e-14)
    True
    """
    function = "reference_logits"
    if not isinstance(bias, ContentBias):
        fail(TypeError, function, "bias", f"type {type(bias).__name__}", "a ContentBias")
    entry = _entry(function, bias, CONTENT_ENTRIES)
    queries, keys = as_data(function, "q", q).astype(F64), as_data(function, "k", k).astype(F64)
    shape = bias.logits(queries, keys, q_positions=q_positions, k_positions=k_positions).shape
    *batch, heads, n, m = shape
    p, r = _places(function, bias, n, m, q_positions, k_positions)
    queries = np.broadcast_to(queries, (*batch, *queries.shape[-3:]))
    keys = np.broadcast_to(keys, (*batch, *keys.shape[-3:]))
    share = heads // keys.shape[-3]
    out = np.empty(shape)
    for *b, h, i, j in np.ndindex(*shape):
        one, other = queries[(*b, h, i)], keys[(*b, h // share, j)]
        out[(*b, h, i, j)] = entry(bias.arrays, bias.options, h, one, other, r[j] - p[i])
    return out
