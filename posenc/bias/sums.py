"""Sums of operators, which are operators too."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    Array,
    as_data,
    cast_result,
    compute_dtype,
    copy_result,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
    without_warnings,
)
from ._diagonals import diagonals_of, fill_matrix, is_matrix_view
from ._parameters import check_cotangent
from ._positions import Positions
from .operator import Bias, ContentBias, MissingMethodError, PositionBias, Reductions


class SumGradient(NamedTuple):
    """Gradients of the logits of a sum; `parts` has one NamedTuple for each part."""

    q: Array
    k: Array
    parts: tuple[Any, ...]


def make_sum(parts: tuple[Bias, ...]) -> Bias:
    """Return the sum of operators that are no sums: of the kind of its parts, if they are of one kind."""
    if all(isinstance(part, PositionBias) for part in parts):
        return PositionSum(parts)
    return ContentSum(parts) if all(isinstance(part, ContentBias) for part in parts) else MixedSum(parts)


class _Sum(Bias[Any]):
    """A sum of operators. `arrays` has the arrays of each part. Attention sees only the parts."""

    __slots__ = ()
    _terms: tuple[Bias, ...]

    def __init__(self, parts: tuple[Bias, ...]) -> None:
        object.__setattr__(self, "_terms", parts)
        object.__setattr__(self, "name", "sum")
        object.__setattr__(self, "arrays", tuple(part.arrays for part in parts))
        object.__setattr__(self, "_options", ())
        object.__setattr__(self, "_own_positions", (None, None))

    @property
    def parts(self) -> tuple[Bias, ...]:
        return self._terms

    @property
    def reads_positions(self) -> bool:
        return any(part.reads_positions for part in self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return make_sum, (self.parts,)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))

    def _placed(self, function: str, q: Array | None, k: Array | None) -> Any:
        placed = tuple(
            part._placed(function, q, k) if all(own is None for own in part._own_positions) else part
            for part in self.parts
        )
        return type(self)(placed)

    def _without_values(self) -> Bias:
        return make_sum(tuple(part._without_values() for part in self.parts))

    def _parts(self) -> tuple[Bias, ...]:
        return tuple(inner for part in self.parts for inner in part._parts())

    def _assemble(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        rest = iter(gradients)
        return tuple(part._assemble(tuple(islice(rest, len(part._parts())))) for part in self.parts)

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> NoReturn:
        raise NotImplementedError("a sum is no term: its parts are")

    def _reductions(self, positions: Positions) -> NoReturn:
        raise NotImplementedError("a sum is no term: its parts are")

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> NoReturn:
        raise NotImplementedError("a sum is no term: its parts are")


class MixedSum(_Sum):
    """A sum of operators of both kinds: it exists only inside `attention`."""

    __slots__ = ("_terms",)
    _of_other_kind = ("positions, queries and keys", dict.fromkeys(("matrix", "vjp", "logits", "logits_vjp"), ""))

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> NoReturn:
            if attribute in self._of_other_kind[1]:
                what = "undefined for a sum of operators of both kinds"
                message = f"sum: {attribute} is {what}; expected that of one of its parts"
                raise MissingMethodError(message, name=attribute, obj=self)
            super().__getattr__(attribute)


class PositionSum(_Sum, PositionBias[Any]):
    """A sum of operators that read only positions."""

    __slots__ = ("_terms",)
    _of_other_kind = PositionBias._of_other_kind

    @property
    def _is_function_of_distance(self) -> bool:
        return all(part._is_function_of_distance for part in self._position_parts)

    @property
    def _shown_lengths(self) -> tuple[int, int]:
        queries, keys = zip(*(part._shown_lengths for part in self._position_parts), strict=True)
        return min(queries), min(keys)

    @property
    def _position_parts(self) -> tuple[PositionBias[Any], ...]:
        return tuple(part for part in self.parts if isinstance(part, PositionBias))

    def _matrices(self, function: str, positions: Positions) -> list[Array]:
        matrices = [
            part._matrix(function, part._resolve(function, positions), np.dtype(np.float64), None)
            for part in self._position_parts
        ]
        try:
            np.broadcast_shapes(*(matrix.shape for matrix in matrices))
        except ValueError:
            shapes = ", ".join(str(matrix.shape) for matrix in matrices)
            fail(ValueError, function, "bias", f"parts of shapes {shapes}", "shapes that broadcast")
        return matrices

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        matrices = self._matrices(function, positions)
        n, m = positions.n, positions.m
        if n > 1 and m > 1 and all(map(is_matrix_view, matrices)):
            diagonals = sum(diagonals_of(matrix) for matrix in matrices)
            return fill_matrix(function, cast_result(np.asarray(diagonals), dtype), n, m, out)
        total = sum(matrices[1:], matrices[0])
        out, buffer = prepare_out(function, out, total.shape, dtype, (total,))
        copy_result(buffer, total)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Any, ...]:
        n, m = positions.n, positions.m
        matrices = self._matrices(function, positions)
        shape = np.broadcast_shapes(*(matrix.shape for matrix in matrices))
        are_sums = grad.shape[-1:] == (n + m - 1,) and grad.shape[-2:] != (n, m) and all(map(is_matrix_view, matrices))
        cotangent = grad if are_sums else check_cotangent(function, grad, shape)
        gradients = []
        for part, matrix in zip(self._position_parts, matrices, strict=True):
            own = cotangent if are_sums else unbroadcast(cotangent, matrix.shape, np.dtype(np.float64))
            gradients.append(part._vjp(function, own, part._resolve(function, positions)))
        return tuple(gradients)

    def _named(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part._named(own) for part, own in zip(self.parts, gradients, strict=True))


class ContentSum(_Sum, ContentBias[Any, SumGradient]):
    """A sum of operators that read queries and keys."""

    __slots__ = ("_terms",)
    _of_other_kind = ContentBias._of_other_kind

    @property
    def _content_parts(self) -> tuple[ContentBias[Any, Any], ...]:
        return tuple(part for part in self.parts if isinstance(part, ContentBias))

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
        function = "sum.logits"
        query = as_data(function, "q", q)
        wide = query.astype(compute_dtype(query), copy=False)
        self._check_call(function, q_positions, k_positions)
        logits = [
            part.logits(wide, k, **self._positions_of(part, q_positions, k_positions), scale=scale)
            for part in self._content_parts
        ]
        out, buffer = prepare_out(function, out, logits[0].shape, query.dtype, (query, *logits))
        copy_result(buffer, sum(logits[1:], logits[0]))
        return finish_out(out, buffer)

    def logits_vjp(
        self,
        grad: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
    ) -> SumGradient:
        function = "sum.logits_vjp"
        query, key = as_data(function, "q", q), as_data(function, "k", k)
        wide_q, wide_k = (array.astype(compute_dtype(array), copy=False) for array in (query, key))
        self._check_call(function, q_positions, k_positions)
        gradients = [
            part.logits_vjp(grad, wide_q, wide_k, **self._positions_of(part, q_positions, k_positions), scale=scale)
            for part in self._content_parts
        ]
        with without_warnings():
            d_q = cast_result(sum((g.q for g in gradients[1:]), gradients[0].q), query.dtype.newbyteorder("="))
            d_k = cast_result(sum((g.k for g in gradients[1:]), gradients[0].k), key.dtype.newbyteorder("="))
        parts = zip(self.parts, gradients, strict=True)
        return SumGradient(d_q, d_k, tuple(part.arrays._make(gradient[2:]) for part, gradient in parts))

    def _positions_of(
        self, part: Bias, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None
    ) -> dict[str, Any]:
        """Return the positions of the call that a part reads."""
        given = {"q_positions": q_positions, "k_positions": k_positions}
        sides = zip(given.items(), part._own_positions, strict=True)
        return {argument: positions for (argument, positions), own in sides if own is None}
