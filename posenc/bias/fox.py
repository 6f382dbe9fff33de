"""Forgetting Transformer: the sum of logarithms of the forget gates between two positions."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Dtype, Float64
from .._core_api.door import door, fail
from . import operator
from .kinds import PAIR, pair_vjp
from .operator import Bias, Gradients, PositionBias, Scheme, Term
from .positions import Positions


class FoxArrays(NamedTuple):
    """Arrays of `fox`, or their gradients.

    Attributes
    ----------
    log_forget : array (..., H, T)
    """

    log_forget: Array


def _cumsum_vjp(d_sums: Float64) -> tuple[Float64]:
    """Return d log_forget from d C: C[t] = sum of log_forget[s] over s <= t, so it is the sum of d C[t] over t >= s."""
    return (np.cumsum(d_sums[..., ::-1], axis=-1)[..., ::-1],)


def _place(bias: Bias, positions: Positions, dtype: Dtype) -> Term:
    """Return the term with all positions, by which the gradient adds."""
    q, k = positions.as_arrays()
    return bias._term._replace(q_positions=q, k_positions=k)


def _gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    """b_ij = C[query i] - C[key j], so d C[query i] += sum_j dS_ij and d C[key j] -= sum_i dS_ij."""
    shape = bias.arrays.log_forget.shape
    of_queries, of_keys = operator.add_slots(sums[0], 2)[..., 0], operator.add_slots(sums[1], 2)[..., 0, :]
    total = np.zeros((*of_queries.shape[:-1], shape[-1]))
    first = np.arange(prod(total.shape[:-1])).reshape(*total.shape[:-1], 1) * shape[-1]
    has_pairs = of_queries.shape[-1] > 0 and of_keys.shape[-1] > 0
    sides = ((term.q_positions, of_queries), (term.k_positions, -of_keys)) if has_pairs else ()
    for at, part in sides:
        place = first + np.asarray(at)[..., None, :].astype(np.intp)  # all heads have the same positions
        np.add.at(total.reshape(-1), place.reshape(-1), part.reshape(-1))
    return _cumsum_vjp(convert.unbroadcast(total, shape, F64))


def _vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    return _cumsum_vjp(*pair_vjp(bias, grad, positions))


FOX = Scheme(
    "fox",
    PAIR._replace(gradient=_gradient, vjp=_vjp, place=_place),
    FoxArrays,
    operands=lambda bias: {"log_forget": np.cumsum(bias.arrays.log_forget, axis=-1)},
)


@door
def fox(log_forget: npt.ArrayLike) -> PositionBias[FoxArrays]:
    """Return the bias of the Forgetting Transformer, the forget gates between key and query.

    ``b[h, i, j] = C[h, i] - C[h, j]``, ``C = cumsum(log_forget)``

    Parameters
    ----------
    log_forget : array (..., H, T)
        Logarithms of the forget gates of positions 0..T-1. Finite. Leading axes broadcast against the batch axes of q.
        Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=..., causal=True)``. Positions must be integers from 0 to T - 1, else TypeError or
        IndexError.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or not finite.

    Notes
    -----
    Lin et al. 2025 (Forgetting Transformer), equation 5. Sums are in float64, because they grow with the length, and
    the difference of two large float32 sums would be inaccurate. The gate of position t counts for keys before t, so
    the diagonal is 0.
    The same bias is known as CABLE, and as data-dependent ALiBi in x-transformers. A constant gate f is ALiBi with
    slope -log f.

    Examples
    --------
    Gates of 6 positions, computed from the inputs of a layer:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.standard_normal((6, 8)), rng.standard_normal((8, 2))
    >>> log_forget = -np.logaddexp(0, -x @ w).T  # log sigmoid, (heads, positions)
    >>> q, k, v = rng.standard_normal((3, 2, 6, 4))
    >>> posenc.attention(q, k, v, bias=posenc.fox(log_forget), causal=True).shape
    (2, 6, 4)

    Three gates and the sums between each pair of positions:

    >>> posenc.fox([[-0.5, -1.0, -2.0]]).matrix(3)
    array([[[ 0.,  1.,  3.],
            [-1.,  0.,  2.],
            [-3., -2.,  0.]]], dtype=float32)
    """
    array = read.data("log_forget", log_forget)
    if array.ndim < 2:
        fail(ValueError, "log_forget", f"{array.ndim} axes", "at least 2, heads and positions")
    gates = np.array(array, F64, order="C")
    with np.errstate(all="ignore"):
        finite = np.isfinite(gates).all() and np.isfinite(np.cumsum(gates, axis=-1)).all()
    if not finite:
        fail(ValueError, "log_forget", "NaN or infinity, or a sum beyond float64", "finite numbers")
    return FOX.from_arrays(gates, dtypes=(array.dtype,))
