"""DeBERTa: disentangled attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log, sqrt
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import I64, Array
from .._core_api.door import door, fail, fail_value
from ..bias.operator import Bias, Operands
from ..bias.t5 import smallest_integer
from . import content
from .content import TABLE, ContentBias, ContentScheme

_TERMS: tuple[Literal["c2p", "p2c"], ...] = ("c2p", "p2c")
_FARTHEST = 2**20
"""Row 0 of a table with logarithmic buckets must begin at this distance or before it."""


class DebertaArrays(NamedTuple):
    """Arrays of `deberta`, or their gradients.

    Attributes
    ----------
    rel_q, rel_k : array (H, 2 K, D) or (2 K, D), or None
    """

    rel_q: Array | None
    rel_k: Array | None


def _operands(bias: Bias) -> Operands:
    options, table = bias.options, next(table for table in bias.arrays if table is not None)
    rows = _bucket_rows(table.shape[-2] // 2, options["num_buckets"], options["max_distance"])
    rows_q = rows if options["p2c_index"] == "code" else _read_only(rows[::-1].copy())
    return {**bias.arrays._asdict(), "rows": rows, "rows_q": rows_q}


def _default_scale(bias: Bias, width: int) -> float:
    return 1 / sqrt((width or 1) * (1 + sum(table is not None for table in bias.arrays)))


DEBERTA = ContentScheme("deberta", TABLE, DebertaArrays, _operands, _default_scale)
"""Queries multiply `rel_k`, keys multiply `rel_q`; a table has a row for each bucket of distances."""


@door
def deberta(
    rel_q: npt.ArrayLike | None,
    rel_k: npt.ArrayLike | None,
    *,
    num_buckets: int | None = None,
    max_distance: int | None = None,
    terms: Sequence[Literal["c2p", "p2c"]] = _TERMS,
    p2c_index: Literal["code", "paper"] = "code",
) -> ContentBias[DebertaArrays]:
    """Return the relative terms of DeBERTa's disentangled attention, as transformers computes them.

    Logits get ``q[i] . rel_k[t] + k[j] . rel_q[t]``, ``t = clip(f(i - j) + K, 0, 2 K - 1)``.

    Parameters
    ----------
    rel_q, rel_k : array (H, 2 K, D) or (2 K, D), or None if its term is not used
        The relative table, projected by the layer's query projection (`rel_q`, for "p2c") and by its key projection
        (`rel_k`, for "c2p"). Differentiable. The heads share a table that has no axis H.
    num_buckets, max_distance : int, optional
        Both or neither. Without them ``f(r) = r`` (v1). With them ``f(r) = r`` up to the distance
        ``mid = num_buckets // 2``, and beyond it
        ``f(r) = sign(r) (mid + ceil((mid - 1) log(|r| / mid) / log((max_distance - 1) / mid)))``. Versions 2 and 3 have
        256 buckets and a max_distance of 512.
    terms : sequence of "c2p", "p2c"
        The terms to add: "c2p", content to position, is ``q[i] . rel_k[t]``; "p2c", position to content, is
        ``k[j] . rel_q[t]``.
    p2c_index : {"code", "paper"}
        The row of `rel_q` that the p2c term reads: with "code" the row of i - j, as in the authors' code and in
        transformers; with "paper" the row of j - i, as in equation 4.

    Returns
    -------
    ContentBias
        For ``attention(bias=...)``, whose default scale becomes ``1 / sqrt(D (1 + len(terms)))``.

    Raises
    ------
    TypeError, ValueError
        Tables of different shapes, an odd number of rows, a missing table whose term is used, an unknown term, only one
        of num_buckets and max_distance, a max_distance that leaves no logarithmic buckets.

    Notes
    -----
    He et al. 2021 (DeBERTa), equations 2 to 4. Comparisons of integers decide the ceiling, so no rounding moves a
    distance to another bucket. As in transformers, f reads distances that are not clipped. Microsoft's code first clips
    them to less than max_distance, so with the 512 rows of versions 2 and 3 it reads row 1 instead of row 0 where
    ``i - j <= -512``. The enhanced mask decoder, which adds absolute positions, needs no other function: the second
    example adds learned positions to queries.

    Examples
    --------
    The tables of a v3 checkpoint, 512 rows by 768 channels, projected with the layer's own query and key projections:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> rel_embeddings = rng.standard_normal((512, 768), np.float32)
    >>> query_proj, key_proj = rng.standard_normal((2, 768, 768), np.float32) / 28
    >>> rel_q, rel_k = (
    ...     (rel_embeddings @ weight).reshape(512, 12, 64).swapaxes(0, 1) for weight in (query_proj, key_proj)
    ... )
    >>> bias = posenc.deberta(rel_q, rel_k, num_buckets=256, max_distance=512)
    >>> q, k, v = rng.standard_normal((3, 12, 100, 64), np.float32)
    >>> posenc.attention(q, k, v, bias=bias).shape
    (12, 100, 64)

    The enhanced mask decoder: a layer reads the same keys again, with positions added to its queries.

    >>> hidden, absolute = rng.standard_normal((2, 12, 100, 64), np.float32)
    >>> posenc.attention(hidden + posenc.learned(absolute[0], 100), hidden, hidden, bias=bias).shape
    (12, 100, 64)
    """
    if not isinstance(terms, tuple | list) or not terms or len({*map(str, terms)}) < len(terms):
        fail_value(ValueError, "terms", terms, "one or both of 'c2p', 'p2c'")
    for term in terms:
        read.choice("terms", term, _TERMS)
    read.choice("p2c_index", p2c_index, ("code", "paper"))
    tables = {
        argument: _read_table(argument, table, term)
        for argument, table, term in (("rel_q", rel_q, "p2c"), ("rel_k", rel_k, "c2p"))
        if term in terms
    }
    shapes = [table.shape for table in tables.values()]
    if shapes[0] != shapes[-1]:
        fail(ValueError, "rel_k", f"shape {shapes[1]}", f"{shapes[0]}, as rel_q")
    rows = shapes[0][-2]
    if (num_buckets is None) != (max_distance is None):
        missing = "num_buckets" if num_buckets is None else "max_distance"
        fail_value(ValueError, missing, None, "num_buckets and max_distance together")
    if num_buckets is not None and max_distance is not None:
        num_buckets = read.index("num_buckets", num_buckets, 2)
        max_distance = read.index("max_distance", max_distance, 1)
        if max_distance <= num_buckets // 2 + 1:
            expected = f"more than num_buckets // 2 + 1 = {num_buckets // 2 + 1}"
            fail_value(ValueError, "max_distance", max_distance, expected)
        if not _bucket_rows(rows // 2, num_buckets, max_distance).size:
            expected = f"fewer, because with {num_buckets} buckets row 0 begins beyond a distance of 2**20"
            fail(ValueError, next(iter(tables)), f"{rows} rows", expected)
    options = {"num_buckets": num_buckets, "max_distance": max_distance, "terms": tuple(terms), "p2c_index": p2c_index}
    return DEBERTA.from_arrays(tables.get("rel_q"), tables.get("rel_k"), options=options)


def _read_table(argument: str, table: npt.ArrayLike | None, term: str) -> Array:
    if table is None:
        fail_value(ValueError, argument, None, f"a table, for the term {term!r}")
    array = content.as_table(argument, table, "(2 K, D)", "(H, 2 K, D)")
    rows = array.shape[-2]
    if rows % 2 or not rows:
        fail(ValueError, argument, f"{rows} rows", "2 K rows, K at least 1")
    return array


@lru_cache(maxsize=32)
def _bucket_rows(last: int, num_buckets: int | None, max_distance: int | None) -> Array:
    """Return the table rows of rel = j - i = -B .. B, entry rel + B, for a table of 2 K rows, K = `last`.

    Distances beyond B read the first or the last entry. The bucket of a distance r beyond mid = num_buckets // 2 is
    mid + s, where s is the smallest integer with
    (r / mid)**(mid - 1) <= ((max_distance - 1) / mid)**s. The result is empty if K is a logarithmic bucket that begins
    beyond 2**20.
    """
    if num_buckets is None or max_distance is None:
        return _read_only(np.clip(np.arange(last, -last - 1, -1, dtype=I64) + last, 0, 2 * last - 1))
    mid = num_buckets // 2
    ends = list(range(min(mid, last) + 1))  # ends[b]: the largest distance of bucket b; with mid = 1, b = 1 has no end
    while ends[-1] < _FARTHEST and len(ends) <= last and mid > 1:
        s = len(ends) - mid

        def is_beyond(r: int, s: int = s) -> bool:
            return bool(r ** (mid - 1) * mid**s > mid ** (mid - 1) * (max_distance - 1) ** s)

        log_end = log(mid) + s * log((max_distance - 1) / mid) / (mid - 1)
        end = smallest_integer(exp(log_end), is_beyond) - 1 if log_end < 20 else _FARTHEST  # exp(20) is beyond it
        ends.append(min(end, _FARTHEST))
    if len(ends) <= last and mid > 1:
        return np.empty(0, I64)
    bound = ends[-1] + (mid > 1)  # with mid = 1 the last bucket never ends
    bucket = np.searchsorted(ends, np.arange(bound + 1))
    signed = np.concatenate([bucket[:0:-1], -bucket])  # f(i - j) of rel = -B .. B: i - j is -rel
    return _read_only(np.clip(signed.astype(I64) + last, 0, 2 * last - 1))


def _read_only(rows: Array) -> Array:
    rows.flags.writeable = False
    return rows
