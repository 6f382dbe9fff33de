"""CoPE: positions that count what the query chooses to count."""

from __future__ import annotations

import numpy.typing as npt

from .._core_api.arguments import fail
from ..bias.operator import Bias
from ._content import Content, as_table, dtypes

__all__ = ["cope"]


def cope(table: npt.ArrayLike) -> Bias:
    """CoPE: logits get ``q[i] . e(p)``, ``p = min(sum of sigmoid(scale q[i].k[t]) over visible t >= j, P - 1)``.

    Parameters
    ----------
    table : array (P, D) or (H, P, D)
        Embeddings of the positions 0 .. P-1; between them e is linear. Differentiable.

    Returns
    -------
    Bias
        For `attention`. It reads q and k. Visible keys are those that causality, windows and masks leave, and that do
        not come after the query (rel <= 0).

    Raises
    ------
    TypeError, ValueError
        A table without rows, NaN.

    Notes
    -----
    Golovneva et al. 2024 (Contextual Position Encoding), equations 3 to 5. The gates are those of the pair's own
    scaled product. The embedding's product is scaled as q . k is; x-transformers adds it unscaled. The sum counts from
    the query back to the key, both included.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> q = np.zeros((1, 3, 2)) + [1.0, 0.0]
    >>> k = np.zeros((1, 3, 2))  # every gate is sigmoid(0) = 1/2
    >>> table = np.arange(4.0)[:, None] * [10.0, 0.0]  # q . e(p) = 10 p
    >>> posenc.cope(table).logits(q, k)
    array([[[ 5.,  0.,  0.],
            [10.,  5.,  0.],
            [15., 10.,  5.]]])
    """
    kept = as_table("cope", "table", table, "pd hpd")
    if not kept.shape[-2]:
        fail(ValueError, "cope", "table", "no rows", "at least one")
    return Content("cope", (kept,), dtypes(kept))
