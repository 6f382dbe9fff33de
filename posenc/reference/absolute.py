"""Absolute encodings: a vector for each position."""

import numpy as np

from ._numbers import wide


def merge(x, p, *, mode="add"):
    """Merge an encoding with the data.

    ``x + p``, ``x p``, ``x (1 + p)``, ``[x, p]`` or p. Vaswani et al. 2017, section 3.4, add.
    """
    x, p = wide(x), wide(p)
    if mode == "concat":
        return np.concatenate([x, np.broadcast_to(p, (*x.shape[:-1], p.shape[-1]))], -1)
    if mode == "replace":
        return np.broadcast_to(p, x.shape)
    return {"add": x + p, "mul": x * p, "mul1p": x * (1 + p)}[mode]
