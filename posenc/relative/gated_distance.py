"""A bias by distance with gates that each query brings along, as WavLM and Inkling have it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, I64, Array
from .._core_api.door import door, fail, fail_value
from ..bias import operator
from ..bias.operator import Bias, Gradients, Kind, Operands, PositionBias, Scheme, Term
from ..bias.t5 import t5_bucket
from . import content

_ROWS: tuple[Literal["clipped", "past", "buckets"], ...] = ("clipped", "past", "buckets")
_FARTHEST = 2**20
"""The largest `max_distance`: the kernel has the table row of every distance up to there."""


class GatedDistanceArrays(NamedTuple):
    """Arrays of `gated_distance`, or their gradients.

    Attributes
    ----------
    gates : array (..., H, N, R)
    table : array (T, R) or (H, T, R)
    """

    gates: Array
    table: Array


def _operands(bias: Bias) -> Operands:
    """Return the gates, the table, and its row for each relative position -(B // 2) .. B // 2.

    Rows of ``"past"`` are the distances 0 .. T-1. Another row of zeros serves all pairs that are not in the table.
    """
    gates, table = bias.arrays
    count = table.shape[-2]
    rows = np.arange(count, dtype=I64)
    if bias.options["rows"] == "buckets":
        reach = bias.options["max_distance"]
        rows = t5_bucket(np.arange(-reach, reach + 1), bidirectional=True, num_buckets=count, max_distance=reach)
    elif bias.options["rows"] == "past":
        beyond = np.zeros((*table.shape[:-2], 1, table.shape[-1]), table.dtype)
        past = np.arange(count, -1, -1, dtype=I64)  # of rel = -T .. 0
        table, rows = np.concatenate([table, beyond], -2), np.concatenate([past, np.full(count, count)])
    return {"gates": gates, "table": table, "rows": rows}


def _gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    gates, table = bias.arrays
    d_gates, d_table = operator.add_slots(sums[0], 2), operator.add_rows(sums[1], 2)[..., : table.shape[-1]]
    d_table = d_table.sum(0, dtype=F64) if table.ndim == 2 else d_table
    return convert.unbroadcast(d_gates, gates.shape, F64), d_table[..., : table.shape[-2], :]


GATED_DISTANCE = Scheme(
    "gated_distance", Kind(_gradient, content.product_matrix, content.product_vjp), GatedDistanceArrays, _operands
)


@door
def gated_distance(
    gates: npt.ArrayLike,
    table: npt.ArrayLike,
    *,
    rows: Literal["clipped", "past", "buckets"] = "clipped",
    max_distance: int | None = None,
) -> PositionBias[GatedDistanceArrays]:
    """Return a bias by distance that each query gates, as in WavLM and Inkling.

    ``b[h, i, j] = gates[h, i] . table[h, t]``, where t is the table row of the distance from query i to key j.

    Parameters
    ----------
    gates : array (..., H, N, R)
        R numbers for each head and query, finite; a layer computes them from its input. Leading axes broadcast against
        the batch axes of q. Differentiable.
    table : array (T, R) or (H, T, R)
        R profiles over the distance, which the gates mix. Differentiable.
    rows : {"clipped", "past", "buckets"}
        "clipped": T is 2 K + 1, row t is rel = t - K, and distances beyond K take the first or the last row.
        "past": row t is the key t positions before the query; the bias of all other keys is 0.
        "buckets": row t is a bucket of `t5_bucket`, bidirectional, with this `max_distance`.
    max_distance : int, optional
        For "buckets", at most 2**20. Required there, and refused elsewhere.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``, with gates of exactly N queries; in decoding these are the gates of the new query.

    Raises
    ------
    TypeError, ValueError
        Gates or a table that are not finite, or differ in R or H; too few rows, an even number of rows for "clipped".

    Notes
    -----
    With R = 1 this is the gated relative position bias of XLM-E (Chi et al. 2022) and WavLM (Chen et al. 2022, section
    3.2), where the gate is ``1 + (1 - update) + update reset w`` of two sigmoids. Inkling mixes R = 16 profiles of the
    past. The papers of XLM-E and WavLM compute the gates from the query, but the code of the three models computes
    them from the input of the layer, before rotation and normalisation of q. Hence gates are an argument here. For
    gates that depend on q, compute them with `posenc_bridges.torch`, ``.jax`` or ``.autograd``, which pass the gradient
    on to q. Gates that are linear in q are `shaw` with the table ``table @ W.T``. Fractional distances are truncated
    towards zero.

    Examples
    --------
    A layer of WavLM with 2 heads of 8 channels; ``project`` is ``gru_rel_pos_linear``, a (8, 8) weight and a bias, and
    ``const`` is ``gru_rel_pos_const``:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> x, weight, bias, const = rng.standard_normal((2, 50, 8)), rng.standard_normal((8, 8)), np.zeros(8), np.ones(2)
    >>> embed = rng.standard_normal((320, 2))  # rel_attn_embed.weight
    >>> logits = (x @ weight.T + bias).reshape(2, 50, 2, 4).sum(-1)
    >>> a, b = np.moveaxis(1 / (1 + np.exp(-logits)), -1, 0)
    >>> gates = a * (b * const[:, None] - 1) + 2
    >>> bias = posenc.gated_distance(gates[..., None], embed.T[..., None], rows="buckets", max_distance=800)
    >>> q, k, v = rng.standard_normal((3, 2, 50, 8))
    >>> posenc.attention(q, k, v, bias=bias).shape
    (2, 50, 8)

    Two profiles of the past, of which query 1 takes the first and query 2 the second:

    >>> gates = [[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]
    >>> posenc.gated_distance(gates, [[1.0, 10.0], [2.0, 20.0]], rows="past").matrix(3)
    array([[[ 0.,  0.,  0.],
            [ 2.,  1.,  0.],
            [ 0., 20., 10.]]], dtype=float32)
    """
    read.choice("rows", rows, _ROWS)
    of_queries = operator.copy_finite("gates", _core.read("real gates()", gates=gates))
    if of_queries.ndim < 3:
        fail(ValueError, "gates", f"shape {of_queries.shape}", "(..., H, N, R)")
    kept = content.as_table("table", table, "(T, R)", "(H, T, R)")
    content.check_axes("gated_distance", gates=of_queries, table=kept)
    count = int(kept.shape[-2])
    if rows == "clipped":
        content.check_odd_rows("table", kept)
    if rows == "past" and not count:
        fail(ValueError, "table", "no rows", "at least one")
    if rows == "buckets":
        if max_distance is None:
            fail_value(ValueError, "max_distance", None, 'an integer, because rows is "buckets"')
        if count < 4:
            fail(ValueError, "table", f"{count} rows", "at least 4")
        max_distance = read.index("max_distance", max_distance, count // 4 + 1, _FARTHEST)
    elif max_distance is not None:
        fail_value(ValueError, "max_distance", max_distance, f'None, because rows is "{rows}"')
    return GATED_DISTANCE.from_arrays(of_queries, kept, options={"rows": rows, "max_distance": max_distance})
