"""DeBERTa's disentangled attention."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Array, as_index, check_choice, fail, fail_value
from ..bias.operator import Bias
from ._content import Content, as_table, dtypes

TERMS = ("c2p", "p2c")


__all__ = ["deberta"]


def deberta(
    rel_q: npt.ArrayLike | None,
    rel_k: npt.ArrayLike | None,
    *,
    buckets: int | None = None,
    max_position: int | None = None,
    terms: tuple[str, ...] = TERMS,
    p2c_index: str = "code",
) -> Bias:
    """DeBERTa's disentangled attention: logits get ``q[i] . rel_k[t] + k[j] . rel_q[t]``, ``t = clip(f(i - j) + K)``.

    Parameters
    ----------
    rel_q, rel_k : array (H, 2 K, D), or None where its term is not used
        The relative table projected to queries (for "p2c") and to keys (for "c2p"). Differentiable.
    buckets, max_position : int, optional
        Both or neither. Without, f is the identity (v1). With, distances beyond ``mid = buckets // 2`` are logarithmic:
        ``f(r) = sign(r) (mid + ceil((mid - 1) log(|r| / mid) / log((max_position - 1) / mid)))`` (v2, v3: 256 and 512).
    terms : tuple of "c2p", "p2c"
        Content to position, position to content.
    p2c_index : {"code", "paper"}
        Row of the p2c term: that of i - j, as every implementation has it, or that of j - i, as equation 4 writes it.

    Returns
    -------
    Bias
        For `attention`. It reads q and k; the default scale becomes ``1 / sqrt(D (1 + len(terms)))``.

    Raises
    ------
    TypeError, ValueError
        Tables of different shapes, an odd number of rows, a table missing whose term is used, an unknown term, buckets
        without max_position, a max_position that leaves no logarithmic buckets.

    Notes
    -----
    He et al. 2021 (DeBERTa), equations 2 to 4. f is decided by integers, not by a logarithm that rounds. It is not
    clipped at max_position first, as in transformers; Microsoft's code clips, which moves distances of -max_position
    and below up by one row. The decoder of masked words, where absolute positions enter, is ordinary attention whose
    queries have learned positions added: see the example.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> table = rng.standard_normal((1, 4, 3))  # K = 2
    >>> bias = posenc.deberta(None, table, terms=("c2p",))
    >>> q = rng.standard_normal((1, 5, 3))
    >>> bool(np.isclose(bias.logits(q, q)[0, 4, 0], q[0, 4] @ table[0, 3]))  # i - j = 4 is clipped to the last row
    True

    The enhanced mask decoder: the last layer looks once more at the same keys, its queries with absolute positions.

    >>> hidden, absolute = rng.standard_normal((2, 1, 5, 3))
    >>> out = posenc.attention(hidden + posenc.learned(absolute[0], 5), hidden, hidden, bias=bias)
    >>> out.shape
    (1, 5, 3)
    """
    function = "deberta"
    if not isinstance(terms, tuple | list) or not terms or any(terms.count(term) > 1 for term in terms):
        fail_value(ValueError, function, "terms", terms, "one or both of 'c2p', 'p2c'")
    for term in terms:
        check_choice(function, "terms", term, TERMS)
    check_choice(function, "p2c_index", p2c_index, ("code", "paper"))
    tables: list[Array | None] = []
    for argument, given, term in (("rel_q", rel_q, "p2c"), ("rel_k", rel_k, "c2p")):
        if term not in terms:
            tables.append(None)
            continue
        if given is None:
            fail_value(ValueError, function, argument, None, f"a table, for the term {term!r}")
        table = as_table(function, argument, given, "htd")
        if table.shape[1] % 2 or not table.shape[1]:
            fail(ValueError, function, argument, f"{table.shape[1]} rows", "2 K of them, K at least 1")
        if tables and tables[0] is not None and tables[0].shape != table.shape:
            fail(ValueError, function, argument, f"shape {table.shape}", f"{tables[0].shape}, as rel_q")
        tables.append(table)
    shape = next(table.shape for table in tables if table is not None)
    if (buckets is None) != (max_position is None):
        missing = "buckets" if buckets is None else "max_position"
        fail_value(ValueError, function, missing, None, "buckets and max_position together")
    if buckets is None or max_position is None:
        rows = bucket_rows(shape[1] // 2, 0, 0)
    else:
        count, far = as_index(function, "buckets", buckets, 2), as_index(function, "max_position", max_position, 1)
        if far <= count // 2 + 1:
            fail_value(ValueError, function, "max_position", far, f"more than buckets // 2 + 1 = {count // 2 + 1}")
        rows = bucket_rows(shape[1] // 2, count // 2, far)
    if rows is None:
        fail(ValueError, function, "rel_q" if tables[0] is not None else "rel_k", f"{shape[1]} rows",
             f"no more than {buckets} buckets reach at a distance of 2**20")  # fmt: skip
    of_keys = rows if p2c_index == "code" else np.ascontiguousarray(rows[::-1])
    return Content(function, tuple(tables), dtypes(*tables), (rows, of_keys))


@lru_cache(maxsize=32)
def bucket_rows(last: int, mid: int, far: int) -> Array | None:
    """Row of rel = -B..B, where B is the distance from which on the row stays the same; None if that is past 2**20.

    Beyond mid the bucket is mid + s for the smallest s with (r / mid)**(mid - 1) <= ((far - 1) / mid)**s.
    """
    if not far:
        return np.clip(np.arange(last, -last - 1, -1, dtype=I64) + last, 0, 2 * last - 1)
    ends = list(range(mid + 1))  # ends[b]: the largest distance of bucket b
    while ends[-1] < 2**20 and len(ends) <= last and mid > 1:
        s = len(ends) - mid
        low, high = ends[-1], 2**20
        while low < high:
            middle = (low + high + 1) // 2
            fits = middle ** (mid - 1) * mid**s <= mid ** (mid - 1) * (far - 1) ** s
            low, high = (middle, high) if fits else (low, middle - 1)
        ends.append(low)
    if len(ends) <= last and mid > 1:
        return None
    bound = ends[-1] + (mid > 1)  # with mid 1 the last bucket never ends
    bucket = np.searchsorted(ends, np.arange(bound + 1))
    signed = np.concatenate([bucket[:0:-1], -bucket])  # of i - j = -rel
    rows: Array = np.clip(signed.astype(I64) + last, 0, 2 * last - 1)
    rows.flags.writeable = False
    return rows
