"""TUPE: positions have queries and keys of their own."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import F32, F64, Array, Float64, cast_finite, fail, finish_out, prepare_out, unbroadcast
from ..bias._diagonals import Where
from ..bias.operator import Bias, Sums, check_heads, fits_end
from ._content import Content, as_table, dtypes, same_heads, whole_vectors

__all__ = ["tupe"]


class Tupe(Bias):
    """A product of positions, (H, N, M), with a position bias beside it."""

    __slots__ = ()
    fields = ("pos_q", "pos_k", "cls_to_any", "any_to_cls", "relative")

    @property
    def reads_positions(self) -> bool:  # type: ignore[override]
        return any(operator.reads_positions for operator in self.within)

    @property
    def within(self) -> tuple[Bias, ...]:  # type: ignore[override]
        return () if self.arrays.relative is None else (self.arrays.relative,)

    def default_scale(self, width: int) -> float | None:
        return 1 / sqrt(2 * (width or 1))

    def _factor(self) -> float:
        return 1 / sqrt(2 * (self.arrays.pos_q.shape[-1] or 1))

    def _in(self, function: str, dtype: np.dtype[Any]) -> tuple[Any, ...]:
        """The arrays without `relative`, in the dtype of the arithmetic."""
        pairs = zip(self.arrays._fields[:4], self.arrays[:4], strict=True)
        return tuple(
            None if array is None else cast_finite(function, argument, array, dtype) for argument, array in pairs
        )

    def _check(self, function: str, n: int, m: int) -> None:
        for argument, length in (("pos_q", n), ("pos_k", m)):
            have = getattr(self.arrays, argument).shape[1]
            if have != length:
                fail(ValueError, function, argument, f"{have} positions", str(length))

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        self._check(function, n, m)
        work = F64 if dtype.char == "d" else F32
        pos_q, pos_k, row, column = self._in(function, work)
        made = np.matmul(pos_q * work.type(self._factor()), pos_k.swapaxes(-1, -2))
        if column is not None and m:
            made[:, :, 0] = column[:, None]
        if row is not None and n:
            made[:, 0, :] = row[:, None]
        for operator in self.within:
            made = made + operator._matrix(function, n, m, where, work, None)
        out, buffer = prepare_out(function, out, made.shape, dtype, (made,))
        np.copyto(buffer, made, casting="same_kind")
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Any, ...]:
        self._check(function, n, m)
        heads = self.arrays.pos_q.shape[0]
        relative = None
        for operator in self.within:
            relative = operator.vjp(grad, n, m, **_given(where))
        g = fits_end(function, grad, (heads, n, m)).astype(F64)
        g = unbroadcast(g, (heads, n, m), F64)
        return (*self._split(g), relative)

    def _split(self, g: Float64) -> tuple[Any, ...]:
        """Gradients of the arrays from that of the (H, N, M) matrix, which is overwritten."""
        to_row = to_column = None
        if self.arrays.cls_to_any is not None:
            to_row = g[:, :1].sum((1, 2))
            g[:, :1] = 0
        if self.arrays.any_to_cls is not None:
            to_column = g[:, :, :1].sum((1, 2))
            g[:, :, :1] = 0
        pos_q, pos_k = (array.astype(F64, copy=False) for array in self.arrays[:2])
        return (self._factor() * (g @ pos_k), self._factor() * (g.swapaxes(-1, -2) @ pos_q), to_row, to_column)

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("tables",)

    def tables(
        self, shape: tuple[int, ...], batch: tuple[int, ...], rows: int, dtype: np.dtype[Any]
    ) -> tuple[Array | None, ...]:
        heads, n, width = self.arrays.pos_q.shape
        resets = (None if array is None else np.zeros((*batch, rows)) for array in self.arrays[2:4])
        of_k = np.zeros((*batch, rows, shape[-1], whole_vectors(width)), dtype)
        return (np.zeros((*batch, heads, n, width), dtype), of_k, *resets)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Any, ...]:
        of_q, of_k, *resets = sums.tables
        of_q *= self._factor()  # in place: it may be as large as q
        return (of_q, of_k[..., : of_q.shape[-1]], *resets, None)

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        pos_q, pos_k, *resets = self._in(function, dtype)
        check_heads(function, self.name, pos_q.shape[0], shape)
        self._check(function, *shape[-2:])
        return (self.name, pos_q, pos_k, *resets)


def _given(where: Where) -> dict[str, Array]:
    return {} if where is None else {"q_positions": where[0], "k_positions": where[1]}


def tupe(
    pos_q: npt.ArrayLike,
    pos_k: npt.ArrayLike,
    *,
    cls_to_any: npt.ArrayLike | None = None,
    any_to_cls: npt.ArrayLike | None = None,
    relative: Bias | None = None,
) -> Bias:
    """TUPE: ``b[i, j] = pos_q[i] . pos_k[j] / sqrt(2 D)``, with positions of its own and [CLS] untied.

    Parameters
    ----------
    pos_q, pos_k : array (H, N, D) and (H, M, D)
        Projected positions of the queries and of the keys, by row and column. Differentiable.
    cls_to_any, any_to_cls : array (H,), optional
        What stands in row 0 and in column 0 instead of the product; at their corner, `cls_to_any`. Differentiable.
    relative : Bias, optional
        A position bias that is added as it is: `t5` makes it TUPE-R.

    Returns
    -------
    Bias
        A position bias, added after the cap; `attention`'s default scale becomes ``1 / sqrt(2 D)``.

    Raises
    ------
    TypeError, ValueError
        Arrays whose heads or widths differ, NaN, a `relative` that reads q and k.

    Notes
    -----
    Ke et al. 2021 (TUPE), equations 7, 8 and 10. In the authors' code the two resets are no free numbers but the
    products of an extra position with itself and of the first position with itself, the projections have biases, and
    positions are normalised before them; all of that happens before this function.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.tupe(np.ones((1, 2, 2)), np.ones((1, 2, 2)), any_to_cls=[7.0]).matrix(2)
    array([[[7., 1.],
            [7., 1.]]], dtype=float32)
    """
    function = "tupe"
    queries, keys = as_table(function, "pos_q", pos_q, "hnd"), as_table(function, "pos_k", pos_k, "hmd")
    same_heads(function, "pos_k", keys, queries.shape[0])
    if keys.shape[2] != queries.shape[2]:
        fail(ValueError, function, "pos_k", f"width {keys.shape[2]}", f"{queries.shape[2]}, that of pos_q")
    resets: list[Array | None] = []
    for argument, given in (("cls_to_any", cls_to_any), ("any_to_cls", any_to_cls)):
        reset = None if given is None else as_table(function, argument, given, "h")
        if reset is not None:
            same_heads(function, argument, reset, queries.shape[0])
        resets.append(reset)
    if relative is not None and (not isinstance(relative, Bias) or isinstance(relative, Content | Tupe)):
        has = relative.name if isinstance(relative, Bias) else f"type {type(relative).__name__}"
        fail(TypeError, function, "relative", has, "a position bias such as t5")
    arrays = (queries, keys, *resets)
    return Tupe(function, (*arrays, relative), (*dtypes(*arrays), None))
