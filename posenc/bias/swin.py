"""Swin Transformer: one learned number per head, row difference and column difference."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Array, Dtype, as_index, fail
from ._pair import PairBias
from .operator import PositionBias
from .parameters import copy_parameters
from .terms import Operands


class SwinArrays(NamedTuple):
    """Arrays of `swin` and `beit`, or their gradients.

    Attributes
    ----------
    table : array ((2 height - 1) (2 width - 1), H)
        With three more rows in `beit`.
    """

    table: Array


class SwinBias(PairBias[SwinArrays]):
    """A table indexed by the row difference and the column difference of two tokens of a grid."""

    @cached_property
    def operands(self) -> Operands:
        return {"table": self.arrays.table, "grid": np.array([self.options["height"], self.options["width"]], I64)}

    @property
    def positions_end(self) -> int:
        return int(self.options["height"] * self.options["width"])


def read_grid(
    function: str, table: npt.ArrayLike, height: int, width: int, further: int = 0
) -> tuple[SwinArrays, dict[str, int], tuple[Dtype, ...]]:
    """Return the arrays, options and dtypes of an operator whose table has `further` rows after those of the grid."""
    height, width = as_index(function, "height", height, 1), as_index(function, "width", width, 1)
    (array,), dtypes = copy_parameters(SwinArrays, function, table)
    rows = (2 * height - 1) * (2 * width - 1) + further
    if len(array) != rows:
        expected = f"(2 height - 1) (2 width - 1){f' + {further}' if further else ''} = {rows}"
        fail(ValueError, function, "table", f"{len(array)} rows", expected)
    by_head = np.ascontiguousarray(array.T).T  # the rows of a head are adjacent in memory
    return SwinArrays(by_head), {"height": height, "width": width}, dtypes


def swin(table: npt.ArrayLike, height: int, width: int) -> PositionBias[SwinArrays]:
    """Return the relative position bias of Swin Transformer.

    ``b[h] = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]``

    Parameters
    ----------
    table : array ((2 height - 1) (2 width - 1), H)
        Finite; the authors store it so (``relative_position_bias_table``). Differentiable.
    height, width : int
        Size of the grid. Positions are tokens in row-major order, ``y width + x``.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``. Positions must be integers from 0 to height width - 1, else TypeError or
        IndexError. `matrix` is dense.

    Raises
    ------
    TypeError, ValueError
        A grid of less than one token, a table of another size or with NaN or infinity.

    Notes
    -----
    Liu et al. 2021 (Swin Transformer), equation 4 and the authors' ``relative_position_index``, whose differences are
    query minus key. BEiT's table has three more rows for its class token.

    Examples
    --------
    One window of 7 x 7 tokens with 3 heads:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> bias = posenc.swin(rng.standard_normal((169, 3)), 7, 7)
    >>> q, k, v = rng.standard_normal((3, 3, 49, 32), np.float32)
    >>> posenc.attention(q, k, v, bias=bias).shape
    (3, 49, 32)

    Rows of the table that the tokens of a grid of 2 x 2 read:

    >>> posenc.swin(np.arange(9.0)[:, None], 2, 2).matrix(4)
    array([[[4., 3., 1., 0.],
            [5., 4., 2., 1.],
            [7., 6., 4., 3.],
            [8., 7., 5., 4.]]], dtype=float32)
    """
    return SwinBias("swin", *read_grid("swin", table, height, width))
