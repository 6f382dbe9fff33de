"""TUPE: positions have queries and keys of their own, untied from those of the words."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Float64,
    cast_operand,
    copy_result,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ..bias._parameters import check_cotangent, check_heads
from ..bias._positions import Positions
from ..bias.operator import Bias, PositionBias, Reduction, Reductions, Term, make_term
from ._content import as_table, check_table_heads, padded_width

__all__ = ["tupe"]


class TupeArrays(NamedTuple):
    """Arrays of `tupe` and its bias `relative`, or their gradients."""

    pos_q: Array
    pos_k: Array
    cls_to_any: Array | None
    any_to_cls: Array | None
    relative: Any


class TupeBias(PositionBias[TupeArrays]):
    """A product of position vectors, (H, N, M), with a resettable first row and column, and a bias added to it."""

    __slots__ = ()
    first_chunk_only: ClassVar[dict[str, str]] = {"cls_to_any": "n", "any_to_cls": "m"}

    @property
    def _relative(self) -> tuple[PositionBias, ...]:
        return () if self.arrays.relative is None else (self.arrays.relative,)

    @property
    def _scale(self) -> float:
        return 1 / sqrt(2 * (self.arrays.pos_q.shape[-1] or 1))

    @property
    def _is_function_of_distance(self) -> bool:
        return False

    @property
    def _shown_lengths(self) -> tuple[int, int]:
        return self.arrays.pos_q.shape[1], self.arrays.pos_k.shape[1]

    @property
    def reads_positions(self) -> bool:
        return any(bias.reads_positions for bias in self._relative)

    def _placed(self, function: str, q: Array | None, k: Array | None) -> TupeBias:
        if not self._relative:
            return super()._placed(function, q, k)
        (relative,) = (bias._placed(function, q, k) for bias in self._relative)
        return TupeBias(self.name, self.arrays._replace(relative=relative), self._dtypes, self._options)

    def default_scale(self, width: int) -> float:
        return 1 / sqrt(2 * (width or 1))

    def _kernel_operands(self) -> tuple[Array | None, ...]:
        return self.arrays[:4]

    def _parts(self) -> tuple[Bias, ...]:
        return (self, *(part for bias in self._relative for part in bias._parts()))

    def _assemble(self, gradients: tuple[Any, ...]) -> TupeArrays:
        own: TupeArrays = gradients[0]
        for bias in self._relative:
            own = own._replace(relative=bias._assemble(gradients[1:]))
        return own

    def _cast_arrays(self, function: str, dtype: np.dtype[Any]) -> tuple[Array, Array, Array | None, Array | None]:
        """Return the arrays without `relative`, in the dtype of the arithmetic."""
        pos_q, pos_k, cls_to_any, any_to_cls, _ = self.arrays

        def cast(argument: str, array: Array) -> Array:
            return cast_operand(function, argument, array, dtype).astype(dtype, copy=False)

        return (
            cast("pos_q", pos_q),
            cast("pos_k", pos_k),
            None if cls_to_any is None else cast("cls_to_any", cls_to_any),
            None if any_to_cls is None else cast("any_to_cls", any_to_cls),
        )

    def _check_lengths(self, function: str, n: int, m: int) -> None:
        for argument, array, length in (("pos_q", self.arrays.pos_q, n), ("pos_k", self.arrays.pos_k, m)):
            if array.shape[1] != length:
                fail(ValueError, function, argument, f"{array.shape[1]} positions", str(length))

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        self._check_lengths(function, positions.n, positions.m)
        work = F64 if dtype.char == "d" else F32
        pos_q, pos_k, cls_to_any, any_to_cls = self._cast_arrays(function, work)
        matrix: Array = np.matmul(pos_q * work.type(self._scale), pos_k.swapaxes(-1, -2))
        if any_to_cls is not None and positions.m:
            matrix[:, :, 0] = any_to_cls[:, None]
        if cls_to_any is not None and positions.n:
            matrix[:, 0, :] = cls_to_any[:, None]
        for bias in self._relative:
            added = bias._matrix(function, bias._resolve(function, positions), work, None)
            if added.shape != matrix.shape:
                has, expected = f"{added.shape[-3]} heads", f"{matrix.shape[-3]}, those of pos_q"
                fail(ValueError, function, "relative", has, expected)
            matrix = matrix + added
        out, buffer = prepare_out(function, out, matrix.shape, dtype, (matrix,))
        copy_result(buffer, matrix)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Any, ...]:
        n, m = positions.n, positions.m
        self._check_lengths(function, n, m)
        relative = None
        for bias in self._relative:
            relative = bias._named(bias._vjp(function, grad, bias._resolve(function, positions)))
        shape = (self.arrays.pos_q.shape[0], n, m)
        d_matrix = unbroadcast(check_cotangent(function, grad, shape).astype(F64), shape, F64)
        return (*self._product_vjp(d_matrix), relative)

    def _product_vjp(self, d_matrix: Float64) -> tuple[Float64, Float64, Float64 | None, Float64 | None]:
        """Return the gradients of the arrays from that of the matrix (H, N, M), which is overwritten."""
        d_cls_to_any = d_any_to_cls = None
        if self.arrays.cls_to_any is not None:
            d_cls_to_any = d_matrix[:, :1].sum((1, 2))
            d_matrix[:, :1] = 0
        if self.arrays.any_to_cls is not None:
            d_any_to_cls = d_matrix[:, :, :1].sum((1, 2))
            d_matrix[:, :, :1] = 0
        pos_q, pos_k = (array.astype(F64, copy=False) for array in (self.arrays.pos_q, self.arrays.pos_k))
        d_pos_q = self._scale * (d_matrix @ pos_k)
        d_pos_k = self._scale * (d_matrix.swapaxes(-1, -2) @ pos_q)
        return d_pos_q, d_pos_k, d_cls_to_any, d_any_to_cls

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        operands = self._cast_arrays(function, dtype)
        check_heads(function, self.name, operands[0].shape[0], shape)
        self._check_lengths(function, *shape[-2:])
        return make_term(self.name, *operands)

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        return ("tables",)

    def _gradient_buffers(
        self, shape: tuple[int, ...], batch: tuple[int, ...], rows: int, dtype: np.dtype[Any]
    ) -> tuple[Array | None, ...]:
        heads, n, width = self.arrays.pos_q.shape
        d_pos_q = np.zeros((*batch, heads, n, width), dtype)
        d_pos_k = np.zeros((*batch, rows, shape[-1], padded_width(width)), dtype)
        resets = (self.arrays.cls_to_any, self.arrays.any_to_cls)
        return (d_pos_q, d_pos_k, *(None if array is None else np.zeros((*batch, rows)) for array in resets))

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Any, ...]:
        d_pos_q, d_pos_k, d_cls_to_any, d_any_to_cls = reductions.tables
        d_pos_q *= self._scale  # in place: it may be as large as q
        return (d_pos_q, d_pos_k[..., : d_pos_q.shape[-1]], d_cls_to_any, d_any_to_cls, None)


def tupe(
    pos_q: npt.ArrayLike,
    pos_k: npt.ArrayLike,
    *,
    cls_to_any: npt.ArrayLike | None = None,
    any_to_cls: npt.ArrayLike | None = None,
    relative: PositionBias | None = None,
) -> PositionBias[TupeArrays]:
    """Return the bias of TUPE, a product of position vectors with the [CLS] token untied.

    ``b[h, i, j] = pos_q[h, i] . pos_k[h, j] / sqrt(2 D)``

    Parameters
    ----------
    pos_q, pos_k : array (H, N, D) and (H, M, D)
        Projected positions of queries and keys, by row and column whatever the positions are. Differentiable.
    cls_to_any, any_to_cls : array (H,), optional
        Numbers that replace the product in row 0 and in column 0; the corner is that of `cls_to_any`. Differentiable.
    relative : PositionBias, optional
        A bias that is added unscaled: with `t5` the sum is TUPE-R.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``, whose default scale becomes ``1 / sqrt(2 D)``.

    Raises
    ------
    TypeError, ValueError
        Arrays whose heads or widths differ, NaN, a `relative` that reads q and k.

    Notes
    -----
    Ke et al. 2021 (TUPE), equations 7, 8 and 10. In the authors' code the two resets are not free numbers but the
    products of an extra position with itself and of the first position with itself, the projections have biases, and
    positions are normalised before them; compute all of these before calling this function.

    Examples
    --------
    TUPE-R for 100 tokens and 8 heads, with normalised position vectors of 512 channels:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> vectors, w_q, w_k = rng.standard_normal((100, 512)), *rng.standard_normal((2, 512, 8, 64)) / 22
    >>> pos_q, pos_k = (np.einsum("nd,dhc->hnc", vectors, w) for w in (w_q, w_k))
    >>> relative = posenc.t5(rng.standard_normal((32, 8)))
    >>> bias = posenc.tupe(pos_q, pos_k, cls_to_any=np.zeros(8), any_to_cls=np.zeros(8), relative=relative)
    >>> q, k, v = rng.standard_normal((3, 8, 100, 64), np.float32)
    >>> posenc.attention(q, k, v, bias=bias).shape
    (8, 100, 64)

    A reset column:

    >>> posenc.tupe(np.ones((1, 2, 2)), np.ones((1, 2, 2)), any_to_cls=[7.0]).matrix(2)
    array([[[7., 1.],
            [7., 1.]]], dtype=float32)
    """
    function = "tupe"
    queries, keys = as_table(function, "pos_q", pos_q, "hnd"), as_table(function, "pos_k", pos_k, "hmd")
    heads, _, width = queries.shape
    check_table_heads(function, "pos_k", keys, heads)
    if keys.shape[2] != width:
        fail(ValueError, function, "pos_k", f"width {keys.shape[2]}", f"{width}, that of pos_q")
    row = _read_reset(function, "cls_to_any", cls_to_any, heads)
    column = _read_reset(function, "any_to_cls", any_to_cls, heads)
    if relative is not None and (not isinstance(relative, PositionBias) or isinstance(relative, TupeBias)):
        has = f"operator {relative.name}" if isinstance(relative, Bias) else f"type {type(relative).__name__}"
        fail(TypeError, function, "relative", has, "a position bias such as t5")
    return TupeBias(function, TupeArrays(queries, keys, row, column, relative))


def _read_reset(function: str, argument: str, reset: npt.ArrayLike | None, heads: int) -> Array | None:
    if reset is None:
        return None
    array = as_table(function, argument, reset, "h")
    check_table_heads(function, argument, array, heads)
    return array
