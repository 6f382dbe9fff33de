"""Swin: an index worked by hand."""

import numpy as np

import posenc


def test_swin_by_hand():
    """2 x 3 tokens, query (1, 0), key (0, 2): dy = 1 and dx = -2 give row (1 + 1) 5 + (-2 + 2) = 10 of 15."""
    matrix = posenc.swin(np.arange(15.0)[:, None], 2, 3).matrix(6)
    assert matrix[0, 3, 2] == 10
    assert matrix[0, 2, 3] == 4
    assert np.all(np.diag(matrix[0]) == 7)
