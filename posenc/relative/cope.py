"""CoPE: contextual position encoding, in which gates of the queries count positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arrays import Array
from .._core_api.door import door, fail
from . import content
from .content import TABLE, ContentBias, ContentScheme


class CopeArrays(NamedTuple):
    """Arrays of `cope`, or their gradients.

    Attributes
    ----------
    table : array (P, D) or (H, P, D)
    """

    table: Array


COPE = ContentScheme("cope", TABLE, CopeArrays, counts_keys=True)


@door
def cope(table: npt.ArrayLike) -> ContentBias[CopeArrays]:
    """Return contextual position encoding, whose positions count gates between key and query.

    Logits get ``q[i] . e(p)``, ``p = min(sum of sigmoid(scale q[i].k[t]) over visible t >= j, P - 1)``.

    Parameters
    ----------
    table : array (P, D) or (H, P, D)
        Embeddings of the positions 0 .. P-1; e is linear between them. Differentiable.

    Returns
    -------
    ContentBias
        For ``attention(bias=...)``. Visible keys are those that causality, windows and masks leave, and that do not
        come after the query (rel <= 0).

    Raises
    ------
    TypeError, ValueError
        A table without rows, or with NaN.

    Notes
    -----
    Golovneva et al. 2024 (Contextual Position Encoding), equations 3 to 5. The gate of a pair is the sigmoid of
    the pair's scaled product. `attention` scales the product with the embedding as it scales q . k; x-transformers
    adds it unscaled. A position is the sum of the gates from the query back to the key, both included.

    Examples
    --------
    Positions up to 63 for a causal model with 4 heads:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 4, 100, 32), np.float32)
    >>> bias = posenc.cope(rng.standard_normal((64, 32), np.float32))
    >>> posenc.attention(q, k, v, bias=bias, causal=True).shape
    (4, 100, 32)

    If all keys are 0, every gate is 1/2, and positions count half steps:

    >>> q, k = np.zeros((1, 3, 2)) + [1.0, 0.0], np.zeros((1, 3, 2))
    >>> table = np.arange(4.0)[:, None] * [10.0, 0.0]  # q . e(p) = 10 p
    >>> posenc.cope(table).logits(q, k)
    array([[[ 5.,  0.,  0.],
            [10.,  5.,  0.],
            [15., 10.,  5.]]])
    """
    kept = content.as_table("table", table, "(P, D)", "(H, P, D)")
    if not kept.shape[-2]:
        fail(ValueError, "table", "no rows", "at least one")
    return COPE.from_arrays(kept)
