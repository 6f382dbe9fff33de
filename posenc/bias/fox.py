"""Forgetting Transformer: cumulative forget gates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_data,
    fail,
    unbroadcast,
)
from ._diagonals import Where
from ._pair import Pair, check_integers
from .operator import Bias, Sums

__all__ = ["fox"]


class Fox(Pair):
    """Sums of logarithms of forget gates between two positions. The kernel takes their cumulative sums."""

    __slots__ = ()
    fields = ("log_forget",)

    @property
    def heads(self) -> int:
        return int(self.arrays.log_forget.shape[-2])

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.arrays.log_forget.shape[:-2])

    @property
    def operands(self) -> tuple[Array, ...]:
        return (np.cumsum(self.arrays.log_forget, axis=-1),)

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("rows", "columns")

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        """From   b_ij = C[query i] - C[key j]:   d C[query i] += sum_j dS_ij,   d C[key j] -= sum_i dS_ij"""
        n, m = sums.rows.shape[-1], sums.columns.shape[-1]
        shift = 0 if distances is None or not distances.size else -int(distances[0]) - (n - 1)
        places = (np.arange(n) + shift, np.arange(m)) if where is None else where
        total = np.zeros((*sums.rows.shape[:-1], self.arrays.log_forget.shape[-1]))
        flat = total.reshape(-1, total.shape[-1])
        for at, part in zip(places, (sums.rows, -sums.columns), strict=True):
            index = np.broadcast_to(np.expand_dims(at, -2), part.shape)  # the same for all heads
            row = np.arange(len(flat))[:, None]
            np.add.at(flat, (row, index.reshape(len(flat), -1)), part.reshape(len(flat), -1))
        return self.pull_back((unbroadcast(total, self.arrays.log_forget.shape, F64),))

    def pull_back(self, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
        """C[t] = sum of log_forget[s] over s <= t, so d log_forget[s] = sum of d C[t] over t >= s."""
        (sums,) = gradients
        return (np.cumsum(sums[..., ::-1], axis=-1)[..., ::-1],)

    def check_places(self, function: str, q: Array, k: Array) -> None:
        check_integers(function, q, k, self.arrays.log_forget.shape[-1])


def fox(log_forget: npt.ArrayLike) -> Bias:
    """Forgetting Transformer: ``b[h] = C[i] - C[j]``, ``C = cumsum(log_forget)``, the gates between key and query.

    Parameters
    ----------
    log_forget : array (..., H, T)
        Logarithms of the forget gates of T positions, from 0 on. Finite. Leading axes broadcast as the batch axes of q.
        Differentiable.

    Returns
    -------
    Bias
        Meant for ``causal=True``. Takes integer positions from 0 to T - 1 only: TypeError, IndexError.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or not finite.

    Notes
    -----
    Lin et al. 2025 (Forgetting Transformer), equation 5. Sums are in float64: they grow with the length, and their
    differences would lose as many digits. The gate of position t counts for keys before t, so the diagonal is 0. It is
    CABLE, and x-transformers' data-dependent ALiBi. A constant gate f is ALiBi with slope -log f.

    Examples
    --------
    >>> import posenc
    >>> posenc.fox([[-0.5, -1.0, -2.0]]).matrix(3)
    array([[[ 0.,  1.,  3.],
            [-1.,  0.,  2.],
            [-3., -2.,  0.]]], dtype=float32)
    """
    given = as_data("fox", "log_forget", log_forget)
    if given.ndim < 2:
        fail(ValueError, "fox", "log_forget", f"{given.ndim} axes", "at least 2, heads and positions")
    gates = np.array(given, F64, order="C")
    with np.errstate(all="ignore"):
        finite = np.isfinite(gates).all() and np.isfinite(np.cumsum(gates, axis=-1)).all()
    if not finite:
        fail(ValueError, "fox", "log_forget", "NaN or infinity, or a sum beyond float64", "finite numbers")
    return Fox("fox", (gates,), (given.dtype,))
