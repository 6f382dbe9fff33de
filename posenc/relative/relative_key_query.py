"""Relative embeddings that multiply queries and keys alike: BERT's "relative_key_query"."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arrays import Array
from .._core_api.door import door
from . import content
from .content import TABLE, ContentBias, ContentScheme


class RelativeKeyQueryArrays(NamedTuple):
    """Arrays of `relative_key_query`, or their gradients.

    Attributes
    ----------
    table : array (2 K + 1, D) or (H, 2 K + 1, D)
    """

    table: Array


RELATIVE_KEY_QUERY = ContentScheme("relative_key_query", TABLE, RelativeKeyQueryArrays, content.rows_in_order)


@door
def relative_key_query(table: npt.ArrayLike) -> ContentBias[RelativeKeyQueryArrays]:
    """Let queries and keys read one table of relative embeddings, as BERT's ``relative_key_query`` does.

    Logits get ``q[i] . table[t] + k[j] . table[t]``, ``t = clip(rel) + K``.

    Parameters
    ----------
    table : array (2 K + 1, D) or (H, 2 K + 1, D)
        Row t is rel = t - K; distances beyond K take the first or the last row. Differentiable.

    Returns
    -------
    ContentBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        A table with an even number of rows, NaN.

    Notes
    -----
    Huang et al. 2020 (Improve Transformer Models with Better Relative Position Embeddings), method 4. `attention`
    scales all three products by ``D**-0.5``. transformers' ``position_embedding_type="relative_key_query"`` indexes its
    ``distance_embedding`` by query minus key: take its rows in reverse. ``"relative_key"`` is `shaw` without values.

    Examples
    --------
    A BERT layer of 3 positions, whose weight has 2 * 3 - 1 rows:

    >>> import numpy as np, posenc
    >>> weight = np.arange(5.0)[:, None]  # (2 * 3 - 1, D), row of distance i - j + 2
    >>> bias = posenc.relative_key_query(weight[::-1])
    >>> bias.logits(np.ones((1, 3, 1)), np.ones((1, 3, 1)))
    array([[[4., 2., 0.],
            [6., 4., 2.],
            [8., 6., 4.]]])
    """
    kept = content.as_table("table", table, "(2 K + 1, D)", "(H, 2 K + 1, D)")
    content.check_odd_rows("table", kept)
    return RELATIVE_KEY_QUERY.from_arrays(kept)
