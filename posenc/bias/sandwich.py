"""Sandwich: inner products of sinusoids, which depend on distance alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import F32, F64, Array, Float64, as_index, fail_value, finish_out, prepare_out
from ..absolute.frequency import exact_frequencies
from ._diagonals import Where, consecutive, diagonal_distances, fill_matrix
from .operator import Bias, Sums, check_heads, fits_end

__all__ = ["sandwich"]

ROWS = 8192
"""Distances whose cosines are held at a time."""


class Sandwich(Bias):
    """Sums of cosines, one divisor for each head."""

    __slots__ = ()

    @property
    def _divisor(self) -> Float64:
        heads = self.options["heads"]
        divisor: Float64 = 8.0 * np.arange(1, heads + 1) / heads
        return divisor

    def _waves(self, function: str, positions: Array) -> Float64:
        """[sin | cos] of positions: (..., N, dim)."""
        dim = self.options["dim"]
        # t / i = 1 / (dim / 2), i from 0 to dim / 2: without the first, the exponents 2 t / dim of t = 1 .. dim / 2
        high, low = (part[1:] for part in exact_frequencies(function, dim + 2, 10000, "half-1"))
        waves = np.empty((*positions.shape, dim))
        _core.sinusoid(function, positions, high, low, waves, 0, dim // 2, 1, 1.0, 1.0)
        return waves

    def _row(self, function: str, rel: Float64) -> Float64:
        """b_h(rel), (H, l)."""
        half = self.options["dim"] // 2
        sums = np.empty(len(rel))
        for first in range(0, len(rel), ROWS):
            part = slice(first, first + ROWS)
            sums[part] = self._waves(function, rel[part])[:, half:].sum(axis=-1)
        row: Float64 = (sums - half) / self._divisor[:, None]
        return row

    def _operands(self, function: str, where: tuple[Array, Array]) -> tuple[Array, ...]:
        queries, keys = (self._waves(function, positions) for positions in where)
        return np.ascontiguousarray(np.swapaxes(queries, -1, -2)), keys, self._divisor

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        if where is None or (consecutive(where[0]) and consecutive(where[1])):
            shift = m - n if where is None else float(where[0][0] - where[1][0]) if n and m else 0.0
            row = self._row(function, diagonal_distances(n, m, shift))
            return fill_matrix(function, row.astype(dtype if dtype == F64 else F32).astype(dtype), n, m, out)
        batch = np.broadcast_shapes(where[0].shape[:-1], where[1].shape[:-1])
        out, buffer = prepare_out(function, out, (*batch, self.options["heads"], n, m), dtype, where)
        _core.sandwich(function, *self._operands(function, where), *where, buffer)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        """Nothing to learn; the cotangent must still be one."""
        heads = self.options["heads"]
        if grad.shape[-2:] != (heads, max(n + m - 1, 0)):
            fits_end(function, grad, (heads, n, m))
        return ()

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        check_heads(function, self.name, self.options["heads"], shape)
        if distances is not None or where is None:
            row = self._row(function, np.empty(0) if distances is None else distances)
            return ("toeplitz", row.astype(dtype))
        return (self.name, *self._operands(function, where))

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ()

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        return ()


def sandwich(heads: int, dim: int) -> Bias:
    """Sandwich: ``b[h](rel) = (sum_t cos(rel 10000**(-2 t / dim)) - dim / 2) / (8 h / H)``, t = 1..dim/2, h = 1..H.

    Parameters
    ----------
    heads : int
        H, at least 1.
    dim : int
        Width of the sinusoids whose inner product it is; even, at least 2. In the authors' code, the width of a head.

    Returns
    -------
    Bias
        Without arrays: there is nothing to differentiate.

    Raises
    ------
    TypeError, ValueError
        Numbers that are no integers, below 1, or an odd `dim`.

    Notes
    -----
    Chi et al. 2023 (Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis), section 4:
    the inner product of the sinusoids of two positions, with a slope for each head. The paper's listing leaves out
    ``- dim / 2``, which the softmax does not see, and counts t from 0; NeMo has both as here.

    Examples
    --------
    >>> import posenc
    >>> posenc.sandwich(4, 64).matrix(2)[:, 0, 1].round(4)
    array([-0.3117, -0.1559, -0.1039, -0.0779], dtype=float32)
    """
    heads = as_index("sandwich", "heads", heads, 1)
    dim = as_index("sandwich", "dim", dim, 2)
    if dim % 2:
        fail_value(ValueError, "sandwich", "dim", dim, "an even number")
    return Sandwich("sandwich", (), (), (("heads", heads), ("dim", dim)))
