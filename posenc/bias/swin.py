"""Swin Transformer's relative position table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    I64,
    Array,
    as_index,
    fail,
)
from ._pair import Pair, check_integers
from .operator import Bias, keep_arrays

__all__ = ["swin"]


class Swin(Pair):
    """A table by row and column difference of two tokens of a grid."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        return int(self.arrays.table.shape[1])

    @property
    def _grid(self) -> tuple[int, int]:
        return self.options["height"], self.options["width"]

    @property
    def operands(self) -> tuple[Array, ...]:
        return self.arrays.table, np.array(self._grid, I64)

    def check_places(self, function: str, q: Array, k: Array) -> None:
        height, width = self._grid
        check_integers(function, q, k, height * width)


def swin(table: npt.ArrayLike, height: int, width: int) -> Bias:
    """Swin: ``b[h] = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]``.

    Parameters
    ----------
    table : array ((2 height - 1) (2 width - 1), H)
        Finite; as the authors keep it (``relative_position_bias_table``). Differentiable.
    height, width : int
        The grid. A position is a token in row-major order, ``y width + x``.

    Returns
    -------
    Bias
        Takes integer positions from 0 to height width - 1 only: TypeError, IndexError. `matrix` is dense.

    Raises
    ------
    TypeError, ValueError
        A grid of less than one token, a table of another size or with NaN or infinity.

    Notes
    -----
    Liu et al. 2021 (Swin Transformer), equation 4 and the authors' ``relative_position_index``. Differences are query
    minus key there, which is kept. BEiT's table has three more rows for its class token.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.swin(np.arange(9.0)[:, None], 2, 2).matrix(4)
    array([[[4., 3., 1., 0.],
            [5., 4., 2., 1.],
            [7., 6., 4., 3.],
            [8., 7., 5., 4.]]], dtype=float32)
    """
    height, width = as_index("swin", "height", height, 1), as_index("swin", "width", width, 1)
    (kept,), dtypes = keep_arrays("swin", table)
    rows = (2 * height - 1) * (2 * width - 1)
    if len(kept) != rows:
        fail(ValueError, "swin", "table", f"{len(kept)} rows", f"(2 height - 1) (2 width - 1) = {rows}")
    columns = np.ascontiguousarray(kept.T).T  # the rows of a head beside each other
    return Swin("swin", (columns,), dtypes, (("height", height), ("width", width)))
