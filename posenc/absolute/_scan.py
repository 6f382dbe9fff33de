"""Steps that `recurrent` and `floater` share: a scan along positions that computes each state from the one before.

The kernels take one batch axis, so all leading axes of states are merged into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, cast_result, store_result


def merge_batch_axes(array: Array, core: int) -> Array:
    """Merge all axes but the last `core` into one."""
    batch, shape = array.shape[: array.ndim - core], array.shape[array.ndim - core :]
    return array.reshape(int(np.prod(batch, dtype=np.int64)), *shape)  # -1 would be ambiguous for an empty array


def split_batch_axis(rows: Array, p0: Array, out: Array | None) -> Array:
    """Return n states (B, n, C) with the batch axes of p0, in `out` if it is an array."""
    states = rows.reshape(*p0.shape[:-1], *rows.shape[1:])
    return states if out is None else store_result(out, states, states.dtype)


def read_grad_of_rows(grad: npt.ArrayLike, p0: Array, n: int) -> Array:
    """Return the cotangent of n states, with one batch axis and in the dtype of the arithmetic."""
    _, array = _core.read("real p0(c) -> real out(n,c)", p0=p0, grad=grad, n=n)
    return merge_batch_axes(array, 2)


def like_arguments(gradients: Iterable[Array], arguments: Iterable[Array]) -> Iterator[Array]:
    """Yield gradients in the shapes and dtypes of their arguments."""
    for gradient, argument in zip(gradients, arguments, strict=True):
        yield cast_result(gradient.reshape(argument.shape), argument.dtype)
