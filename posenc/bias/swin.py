"""Swin Transformer: one learned number per head, row difference and column difference; BEiT adds a class token."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import I64, Array
from .._core_api.door import door, fail
from .kinds import PAIR
from .operator import Bias, Operands, PositionBias, Scheme


class SwinArrays(NamedTuple):
    """Arrays of `swin` and `beit`, or their gradients.

    Attributes
    ----------
    table : array ((2 height - 1) (2 width - 1), H)
        With three more rows in `beit`.
    """

    table: Array


def _operands(bias: Bias, class_tokens: int = 0) -> Operands:
    """Return the table, and a number for each position; the difference of two of them is that of their table rows."""
    height, width = bias.options["height"], bias.options["width"]
    codes = np.arange(height, dtype=I64)[:, None] * (2 * width - 1) + np.arange(width, dtype=I64)
    return {"table": bias.arrays.table, "codes": np.concatenate([np.zeros(class_tokens, I64), codes.ravel()])}


SWIN = Scheme("swin", PAIR, SwinArrays, _operands)
BEIT = Scheme("beit", PAIR, SwinArrays, partial(_operands, class_tokens=1))


def _bias_of_grid(
    scheme: Scheme[SwinArrays], table: npt.ArrayLike, height: int, width: int, class_rows: int = 0
) -> PositionBias[SwinArrays]:
    """Return an operator whose table has rows of a class token after those of the grid."""
    height, width = read.index("height", height, 1), read.index("width", width, 1)
    bias = scheme.from_parameters(table, options={"height": height, "width": width})
    rows = (2 * height - 1) * (2 * width - 1) + class_rows
    if len(bias.arrays.table) != rows:
        expected = f"(2 height - 1) (2 width - 1){f' + {class_rows}' if class_rows else ''} = {rows}"
        fail(ValueError, "table", f"{len(bias.arrays.table)} rows", expected)
    return bias


@door
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
    return _bias_of_grid(SWIN, table, height, width)


@door
def beit(table: npt.ArrayLike, height: int, width: int) -> PositionBias[SwinArrays]:
    """Bias attention over a class token and an image window by a table, as BEiT does.

    Between tokens of the grid ``b[h] = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]``; the last
    three rows are class to token, token to class, and class to class.

    Parameters
    ----------
    table : array ((2 height - 1) (2 width - 1) + 3, H)
        Finite; as the authors keep it (``relative_position_bias_table``). Differentiable.
    height, width : int
        The grid of patches. Position 0 is the class token, position ``1 + y width + x`` a patch.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``. Positions must be integers from 0 to height width, else TypeError or IndexError.
        `matrix` is dense.

    Raises
    ------
    TypeError, ValueError
        A grid of less than one token, a table of another size or with NaN or infinity.

    Notes
    -----
    Bao et al. 2022 (BEiT), section 2.3, whose code has the three rows. `swin` is the same without a class token. The
    vision model of data2vec uses this table too.

    Examples
    --------
    A class token and two patches beside each other; rows 3, 4 and 5 of the table are those of the class token:

    >>> import numpy as np, posenc
    >>> posenc.beit(np.arange(6.0)[:, None], 1, 2).matrix(3)
    array([[[5., 3., 3.],
            [4., 1., 0.],
            [4., 2., 1.]]], dtype=float32)
    """
    return _bias_of_grid(BEIT, table, height, width, class_rows=3)
