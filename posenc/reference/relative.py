"""Operators that read queries and keys: terms that attention adds to q.k before the scale; and two biases beside them.

Each function returns a `ContentBias`. Its equation gets queries (..., H, N, D) and keys (..., H, M, D), their positions
i and j, and, for `cope`, the visible pairs and the scale. It returns the logits (..., H, N, M). `tupe` and
`gated_distance` read arrays of their own instead, and return a `PositionBias`.
"""

from fractions import Fraction
from functools import cache

import numpy as np

from . import absolute
from ._numbers import floor, precise, sqrt, tanh, wide
from .bias import Bias, PositionBias, each_integer, gather, per_head, positions, rel, t5_bucket

__all__ = [
    "ContentBias", "cope", "deberta", "gated_distance", "nezha_table", "relative_key_query", "shaw", "transformer_xl",
    "tupe", "xl_table",
]  # fmt: skip


class ContentBias(Bias):
    """An operator that reads queries and keys: its logits are added to q.k, before the scale and the cap."""

    def logits(self, q, k, *, q_positions=None, k_positions=None, scale=None):
        """The logits of q (..., H, N, D) and k (..., G, M, D). Two axes are one head."""
        q, k = wide(q), wide(k)
        if q.ndim == 2:
            options = {"q_positions": q_positions, "k_positions": k_positions, "scale": scale}
            return self.logits(q[None], k[None], **options)[0]
        k = np.repeat(k, q.shape[-3] // max(k.shape[-3], 1), -3)
        i, j = positions(q.shape[-2], k.shape[-2], q_positions, k_positions)
        scale = precise(q.shape[-1] or 1, q) ** -0.5 if scale is None else scale
        return self.equation(q, k, *self.reads(i, j), True, scale)


def clipped(rel, before, rows):
    """Row of a table whose row `before` is the distance 0; longer distances take the first or the last row."""
    return np.clip(rel.astype(int) + before, 0, rows - 1)


def of_rows(x, table, row):
    """x_i . table[row_ij]: the products with all rows of the table, of which each pair takes one."""
    return gather(x @ table.swapaxes(-1, -2), row)


def shaw(rel_k, rel_v=None, *, k_min=None):
    """Return Shaw's relative representations of keys and of values.

    ``q_i . rel_k[t]`` and ``sum_j p_ij (v_j + rel_v[t])``, t = clip(j - i, -K, K) + K

    Shaw et al. 2018 (Self-Attention with Relative Position Representations), equations 3 to 5. Code that indexes
    by i - j has the rows in reverse. With k_min, row t is j - i = t - k_min, so the two ends clip apart.
    """
    rel_k, rel_v = wide(rel_k), None if rel_v is None else wide(rel_v)

    def row(i, j):
        count = rel_k.shape[-2]
        return clipped(rel(i, j), count // 2 if k_min is None else k_min, count)

    def added_to_values(i, j):
        return rel_v[row(i, j)] if rel_v.ndim == 2 else rel_v[np.arange(len(rel_v))[:, None, None], row(i, j)]

    def equation(q, k, i, j, seen, scale):
        return of_rows(q, rel_k, row(i, j))

    return ContentBias(equation, added_to_values=None if rel_v is None else added_to_values)


def nezha_table(K, dim):
    """Return NEZHA's fixed table for `shaw`, sinusoids of the row number t.

    ``[sin(t w_0), cos(t w_0), sin(t w_1), ...]``, w_c = 10000**(-2 c / dim)

    Wei et al. 2019 (NEZHA), equation 8. The authors' code passes the row number t, not j - i.
    """
    t = np.arange(2 * K + 1)
    return absolute.sinusoidal(t, dim, base=10000.0 + 0 * K)  # in the precision of K


def relative_key_query(table):
    """Return BERT's relative_key_query, one table of embeddings for queries and keys.

    ``q_i . table[t] + k_j . table[t]``, t = clip(j - i, -K, K) + K

    Huang et al. 2020 (Improve Transformer Models with Better Relative Position Embeddings), method 4. transformers
    indexes by i - j.
    """
    table = wide(table)
    count = table.shape[-2]

    def equation(q, k, i, j, seen, scale):
        row = clipped(rel(i, j), count // 2, count)
        return of_rows(q, table, row) + of_rows(k, table, row.swapaxes(-1, -2)).swapaxes(-1, -2)

    return ContentBias(equation)


def transformer_xl(r, u, v):
    """Return the relative terms of Transformer-XL.

    ``q_i . r[t] + u . k_j + v . r[t]``, t = clip(j - i, -K, K) + K

    Dai et al. 2019 (Transformer-XL), section 3.3, terms b, c and d. The authors' row of the distance d = i - j is K - d
    here.
    """
    r, u, v = map(wide, (r, u, v))
    count = r.shape[-2]

    def equation(q, k, i, j, seen, scale):
        of_keys = (k @ u[..., :, None]).swapaxes(-1, -2)
        return of_keys + of_rows(q + v[..., None, :], r, clipped(rel(i, j), count // 2, count))

    return ContentBias(equation)


def xl_table(K, dim):
    """Return Transformer-XL's sinusoids of the distance d = i - j, whose row is K - d.

    ``[sin(d w) | cos(d w)]``, w_c = 10000**(-2 c / dim)

    Dai et al. 2019 (Transformer-XL), section 3.3: R before its projection to heads.
    """
    distance = K - np.arange(2 * K + 1)
    return absolute.sinusoidal(distance, dim, base=10000.0 + 0 * K, layout="half")


def deberta(rel_q, rel_k, *, num_buckets=None, max_distance=None, terms=("c2p", "p2c"), p2c_index="code"):
    """Return DeBERTa's terms, content to position and position to content.

    ``q_i . rel_k[t] + k_j . rel_q[t]``, t = clip(bucket(i - j) + K, 0, 2 K - 1)

    He et al. 2021 (DeBERTa), equation 4. There the row of the second term is that of j - i (p2c_index="paper"); all
    code takes that of i - j. The scale of attention is ``1 / sqrt(D (1 + terms))``.
    """

    def row(distance, table):
        half = table.shape[-2] // 2
        bucket = distance if num_buckets is None else deberta_bucket(distance, num_buckets, max_distance)
        return clipped(bucket, half, 2 * half)

    def equation(q, k, i, j, seen, scale):
        logits, distance = 0.0, -rel(i, j)
        if "c2p" in terms:
            logits = logits + of_rows(q, rel_k, row(distance, rel_k))
        if "p2c" in terms:
            of_key = row(distance if p2c_index == "code" else -distance, rel_q).swapaxes(-1, -2)
            logits = logits + of_rows(k, rel_q, of_key).swapaxes(-1, -2)
        return logits

    rel_q, rel_k = (None if table is None else wide(table) for table in (rel_q, rel_k))
    return ContentBias(equation, default_scale=lambda width: (width * (1 + len(terms))) ** -0.5)


def deberta_bucket(distance, num_buckets, max_distance):
    """Return DeBERTa's bucket of each distance.

    d up to mid = num_buckets / 2, then ``mid + ceil((mid - 1) log(d / mid) / log((max_distance - 1) / mid))``

    He et al. 2021 (DeBERTa), the authors' make_log_bucket_position. Comparing fractions, no rounding decides.
    """
    mid = num_buckets // 2

    @cache
    def bucket(d):
        if abs(d) <= mid:
            return d
        step, power = 0, Fraction(abs(d), mid) ** (mid - 1)
        while Fraction(max_distance - 1, mid) ** step < power:
            step += 1
        return mid + step if d > 0 else -(mid + step)

    return each_integer(bucket, distance)


def cope(table):
    """Return CoPE, whose positions are counted by gates that depend on the content.

    ``q_i . e(p_ij)``, ``p_ij = sum_t sigmoid(scale q_i . k_t)``, t = j .. i, with e linear between rows of the table

    Golovneva et al. 2024 (Contextual Position Encoding), equations 3 to 5. Only visible keys are counted.
    """
    table = wide(table)
    last = table.shape[-2] - 1

    def equation(q, k, i, j, seen, scale):
        gates = (1 + tanh(scale * (q @ k.swapaxes(-1, -2)) / 2)) / 2  # the sigmoid, which does not overflow
        gates = np.where(seen & (rel(i, j) <= 0), gates, 0)
        position = np.minimum(np.cumsum(gates[..., ::-1], -1)[..., ::-1], last)
        row = floor(position).astype(int)
        below, above = of_rows(q, table, row), of_rows(q, table, np.minimum(row + 1, last))
        return below + (position - row) * (above - below)

    return ContentBias(equation)


def tupe(pos_q, pos_k, *, cls_to_any=None, any_to_cls=None):
    """Return TUPE's bias, the product of projected positions, with numbers of its own for the class token.

    ``pos_q_i . pos_k_j / sqrt(2 D)``; then column 0 is `any_to_cls`, and row 0 is `cls_to_any`

    Ke et al. 2021 (TUPE), equations 7, 8 and 10. The sum with `t5` is TUPE-R. The scale of attention is
    ``1 / sqrt(2 D)``.
    """
    pos_q, pos_k = wide(pos_q), wide(pos_k)

    def equation(i, j):
        product = pos_q @ pos_k.swapaxes(-1, -2) / sqrt(precise(2 * pos_q.shape[-1], pos_q))
        if any_to_cls is not None:
            product[:, :, :1] = per_head(any_to_cls)
        if cls_to_any is not None:
            product[:, :1] = per_head(cls_to_any)
        return product

    return PositionBias(equation, default_scale=lambda width: (2 * width) ** -0.5)


def gated_distance(gates, table, *, rows="clipped", max_distance=None):
    """Return a bias by distance that each query gates, as in WavLM and Inkling.

    ``gates_i . table[t]``, t = clip(j - i, -K, K) + K; rows="past": t = i - j, and 0 for pairs without a row

    Chi et al. 2022 (XLM-E) and Chen et al. 2022 (WavLM), section 3.2, have one gate and rows="buckets", those of
    `t5_bucket`. Inkling has 16 gates and rows="past".
    """
    gates, table = wide(gates), wide(table)
    count = table.shape[-2]

    def equation(i, j):
        distance = rel(i, j).astype(int)
        if rows == "clipped":
            return of_rows(gates, table, clipped(distance, count // 2, count))
        if rows == "buckets":
            return of_rows(
                gates, table, t5_bucket(distance, bidirectional=True, num_buckets=count, max_distance=max_distance)
            )
        exists = (distance <= 0) & (distance > -count)
        return np.where(exists, of_rows(gates, table, clipped(-distance, 0, count)), 0)

    return PositionBias(equation)
