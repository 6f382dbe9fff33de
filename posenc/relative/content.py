"""Operators that multiply q or k by tables of embeddings: their records, their kind, and the checks of their arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F32, F64, Array, Dtype
from .._core_api.door import door, fail
from ..bias import operator
from ..bias.kinds import batch_of
from ..bias.operator import NO_OPTIONS, Arrays, Bias, Gradients, Kind, Operands, Options, Scheme, Term
from ..bias.positions import Positions


class LogitsGradient(NamedTuple):
    """Gradients of the logits of an operator, each in its argument's dtype.

    Attributes
    ----------
    q : array (..., H, N, D)
    k : array (..., G, M, D)
    bias : NamedTuple
        The gradients of the operator's arrays; of a sum, a tuple with the NamedTuple of each part.
    """

    q: Array
    k: Array
    bias: Any


class ContentBias(Bias[Arrays]):
    """An operator that reads queries and keys: `attention` adds its logits before scale and cap.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> bias = posenc.shaw(np.zeros((3, 64)))
    >>> isinstance(bias, posenc.ContentBias), hasattr(bias, "matrix")
    (True, False)
    """

    @door
    def logits(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
        out: Array | None = None,
    ) -> Array:
        """Return what the operator adds to the logits, before the common scale.

        Parameters
        ----------
        q : array (..., H, N, D)
            Queries. Arrays q (N, D) and k (M, D), both without an axis of heads, are one head.
        k : array (..., G, M, D)
            Keys; head h reads kv head ``h // (H // G)``.
        q_positions, k_positions : array (N,) and (M,), or with batch axes before, optional
            As in `PositionBias.matrix`.
        scale : float, optional
            Scale of the gates of `cope`; ``D**-0.5`` by default. Other operators ignore it.
        out : array (..., H, N, M), optional
            Filled and returned.

        Returns
        -------
        ndarray (..., H, N, M)
            In the dtype of q; (N, M) for one head.

        Raises
        ------
        TypeError
            Arrays of a dtype that is none of the four.
        ValueError
            Shapes that do not fit.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits(np.ones((1, 2, 1)), np.ones((1, 2, 1)))
        array([[[ 0.,  2.],
                [-1.,  0.]]])
        """
        return _core.logits(**_arguments(self, q, k, q_positions, k_positions, scale), out=out)

    @door
    def logits_vjp(
        self,
        grad: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
    ) -> LogitsGradient:
        """Return the gradient of `logits` with respect to q, k and the operator's arrays.

        Parameters
        ----------
        grad : array (..., H, N, M)
            Cotangent of the logits.
        q, k, q_positions, k_positions, scale
            As in `logits`.

        Returns
        -------
        LogitsGradient
            ``q``, ``k`` and ``bias``, a NamedTuple with one gradient per array of the operator, each in the shape and
            dtype of its argument. For one head, too, the gradients of the operator's arrays keep their axis of heads.
            The gradient of an array that no logit reads, such as ``rel_v`` of `shaw`, is 0. Of a sum, ``bias`` is a
            tuple with the NamedTuple of each part.

        Raises
        ------
        TypeError, ValueError
            As `logits`; also a `grad` that has not the shape of the logits.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> q = k = np.ones((1, 2, 1))
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits_vjp(np.ones((1, 2, 2)), q, k).bias.rel_k
        array([[1.],
               [2.],
               [1.]])
        """
        arguments = _arguments(self, q, k, q_positions, k_positions, scale)
        with convert.without_warnings():
            d_q, d_k, sums = _core.logits_vjp(**arguments, grad=grad)
            gradients = [
                part._scheme.kind.gradient(part, own, part._term) for part, own in zip(self.parts, sums, strict=True)
            ]
        sides = zip((d_q, d_k), (arguments["q"], arguments["k"]), strict=True)
        d_q, d_k = (convert.unbroadcast(operator.add_slots(d, 2), side.shape, side.dtype) for d, side in sides)
        return LogitsGradient(d_q, d_k, operator.name_gradients(self, gradients))


class ContentScheme(Scheme[Arrays]):
    """A scheme of operators that read queries and keys."""

    def from_arrays(  # type: ignore[override]  # another class of operators
        self, *arrays: Any, options: Options = NO_OPTIONS
    ) -> ContentBias[Arrays]:
        return ContentBias(self.name, self.arrays(*arrays), options)


def _arguments(
    bias: Bias,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
    scale: float | None,
) -> dict[str, Any]:
    """Return the arguments of the kernels of logits."""
    operator.refuse_positions(bias, q_positions, k_positions)
    positions = {"q_positions": q_positions, "k_positions": k_positions}
    terms = tuple([part._term for part in bias.parts])
    return {"q": read.data("q", q), "k": read.data("k", k), **positions, "bias": terms, "scale": scale}


# ---- operators that add a product of their own vectors: logits of q and k without channels ----


def _product_arguments(bias: Bias, positions: Positions, dtype: Dtype) -> dict[str, Any]:
    batch, heads, (q_positions, k_positions) = batch_of(bias, positions), bias.heads or 1, positions.as_arrays()
    return {
        "q": np.empty((*batch, heads, positions.n, 0), dtype),
        "k": np.empty((*batch, heads, positions.m, 0), dtype),
        "bias": (bias._term._replace(q_positions=q_positions, k_positions=k_positions),),
        "scale": 1.0,
    }


def product_matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    """Return the matrix of an operator that adds a product of its own vectors, from its CONTENT entry."""
    logits = _core.logits(**_product_arguments(bias, positions, F64 if dtype.char == "d" else F32))
    return convert.store(out, logits, dtype)


def product_vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    """Return the gradient of each array, for a cotangent of the matrix."""
    arguments = _product_arguments(bias, positions, F64)
    cotangent = operator.read_cotangent(grad, (*arguments["q"].shape[:-1], positions.m))
    _, _, (sums,) = _core.logits_vjp(**arguments, grad=cotangent)
    return bias._scheme.kind.gradient(bias, sums, bias._term)


# ---- the kind of operators with tables ----


def _table_gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    gradients: list[Array | None] = []
    for array, axes, padded in zip(bias.arrays, operator.read_row(bias.name).axes.values(), sums, strict=True):
        if padded is None:  # the array was left out
            gradients.append(None)
            continue
        per_head, shares = operator.add_rows(padded, len(axes) - 1)[..., : array.shape[-1]], array.ndim < len(axes)
        gradients.append(per_head.sum(0, dtype=F64) if shares else per_head)
    return tuple(gradients)


TABLE = Kind(_table_gradient)
"""Tables that multiply q or k: (rows, D), which the heads share, or (H, rows, D), one per head.

The operands of the row are the arrays and, except in `cope`, maps of an odd length B: entry B // 2 + rel is the table
row of the relative position rel.
"""


def rows_in_order(bias: Bias) -> Operands:
    """Return the arrays, and the map of tables with 2 K + 1 rows: rel = -K .. K reads the rows 0 .. 2 K."""
    return {**bias.arrays._asdict(), "rows": np.arange(bias.arrays[0].shape[-2], dtype=np.int64)}


# ---- checks of arrays ----


def as_table(argument: str, value: npt.ArrayLike, *shapes: str) -> Array:
    """Return a copy of an array that has as many axes as one of `shapes`, such as "(H, 2 K + 1, D)"."""
    array = read.data(argument, value)
    if array.ndim not in [len(shape.strip("(,)").split(",")) for shape in shapes]:
        fail(ValueError, argument, f"shape {array.shape}", " or ".join(shapes))
    return operator.copy_finite(argument, array)


def check_odd_rows(argument: str, table: Array) -> None:
    """Refuse a table that does not have 2 K + 1 rows, one for each rel = -K .. K, with K at least 1."""
    rows = table.shape[-2]
    if rows % 2 == 0 or rows < 3:
        fail(ValueError, argument, f"{rows} rows", "2 K + 1 rows, K at least 1")


def check_axes(row: str, **arrays: Array | None) -> None:
    """Refuse arrays of an operator whose heads, rows or channels differ although its row has one letter for them."""
    _core.read(row, **{name: array for name, array in arrays.items() if array is not None})
