"""Operators by their equations in `posenc.reference`, to compare code with that skews, rolls or gathers whole matrices.

An equation computes the index of each pair of a query and a key. It is slow, and meant for small sizes.
"""

from __future__ import annotations

import numpy.typing as npt

from .. import ContentBias, PositionBias, reference
from .._core_api.arguments import Float64, as_data, as_index, as_positions, door, fail


def _check_places(n: int, m: int, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None) -> None:
    for argument, value, length in (("q_positions", q_positions, n), ("k_positions", k_positions, m)):
        if value is not None and (shape := as_positions(argument, value).shape) != (length,):
            fail(ValueError, argument, f"shape {shape}", f"({length},)")


@door
def reference_matrix(
    bias: PositionBias, n: int, m: int | None = None, *, q_positions: npt.ArrayLike | None = None, k_positions:
    npt.ArrayLike | None = None,
) -> Float64:  # fmt: skip
    """Compute the matrix of an operator by its equation in plain NumPy.

    ``b[h, i, j]`` is the entry for head h, query i and key j.

    Parameters
    ----------
    bias : PositionBias
        An operator that reads positions.
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
        An operator of the other kind, or positions of another length.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.analysis
    >>> bias = posenc.t5(np.arange(64.0).reshape(32, 2), bidirectional=False)
    >>> found = posenc.analysis.reference_matrix(bias, 5, 9)
    >>> bool((found == bias.matrix(5, 9)).all())
    True
    """
    if not isinstance(bias, PositionBias):
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a PositionBias")
    n = as_index("n", n, 0)
    m = n if m is None else as_index("m", m, 0)
    _check_places(n, m, q_positions, k_positions)
    matrix: Float64 = reference.reference_matrix(bias, n, m, q_positions=q_positions, k_positions=k_positions)
    return matrix


@door
def reference_logits(
    bias: ContentBias, q: npt.ArrayLike, k: npt.ArrayLike, *, q_positions: npt.ArrayLike | None = None, k_positions:
    npt.ArrayLike | None = None,
) -> Float64:  # fmt: skip
    """Compute the logits of an operator by its equation in plain NumPy.

    The entry [..., h, i, j] is the term for query i and key j of head h, before the common scale.

    Parameters
    ----------
    bias : ContentBias
        An operator that reads queries and keys.
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
        An operator of the other kind, or shapes that do not fit.

    Examples
    --------
    The shift of Transformer-XL, with a memory of three keys:

    >>> import numpy as np, posenc, posenc.analysis
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 8, 4))
    >>> table, (u, v) = rng.standard_normal((2, 17, 4)), rng.standard_normal((2, 2, 4))
    >>> bias = posenc.transformer_xl(table, u, v)
    >>> found = posenc.analysis.reference_logits(bias, q, k)
    >>> bool(abs(found - bias.logits(q, k)).max() < 1e-14)
    True
    """
    if not isinstance(bias, ContentBias):
        fail(TypeError, "bias", f"type {type(bias).__name__}", "a ContentBias")
    queries, keys = as_data("q", q), as_data("k", k)
    for argument, array in (("q", queries), ("k", keys)):
        if array.ndim < 2:
            fail(ValueError, argument, f"{array.ndim} axes", "at least 2: (..., N, D)")
    _check_places(queries.shape[-2], keys.shape[-2], q_positions, k_positions)
    logits: Float64 = reference.reference_logits(bias, queries, keys, q_positions=q_positions, k_positions=k_positions)
    return logits
