"""BEiT's relative position table: Swin's table with rows for a class token."""

from __future__ import annotations

import numpy.typing as npt

from .operator import PositionBias
from .swin import SwinArrays, SwinBias, read_grid


class BeitBias(SwinBias):
    """A table indexed by the row and column difference of two tokens of a grid that follows a class token."""

    @property
    def positions_end(self) -> int:
        return 1 + super().positions_end


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
    return BeitBias("beit", *read_grid("beit", table, height, width, further=3))
