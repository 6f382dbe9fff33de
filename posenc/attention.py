"""Streaming attention: any position operator, never an N x M array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from ._call import (
    F32,
    F64,
    I64,
    Array,
    as_array,
    as_data,
    as_number,
    broadcasts_to,
    fail,
    finish,
    one_of,
    output,
    working,
)
from .bias.operator import Bias, consecutive, diagonal_distances, position_pair

__all__ = ["attention", "merge_attention"]

INFINITY = float("inf")


def _heads(function: str, argument: str, value: Any) -> Array:
    array = as_data(function, argument, value)
    if array.ndim < 3:
        fail(ValueError, function, argument, f"{array.ndim} axes", "at least 3, heads, sequence and channels")
    return array


def _batch_array(function: str, argument: str, array: Array, batch: tuple[int, ...], length: int) -> Array:
    """(N,) or (batch axes, N), without a head axis."""
    if array.ndim < 1 or array.shape[-1] != length or not broadcasts_to(array.shape[:-1], batch):
        expected = f"({length},)" + (f" or {(*batch, length)}" if batch else "")
        fail(ValueError, function, argument, f"shape {array.shape}", expected)
    return array


def _segments(function: str, argument: str, value: Any, batch: tuple[int, ...], length: int) -> Array:
    array = as_array(function, argument, value)
    if array.dtype.kind not in "iu":
        fail(TypeError, function, argument, f"dtype {array.dtype}", "integers")
    if array.dtype.char in "QL" and array.size and int(array.max()) >= 2**63:
        fail(ValueError, function, argument, int(array.max()), "at most 2**63 - 1")
    return _batch_array(function, argument, array.astype(I64, copy=False), batch, length)


def _range(function: str, causal: bool, window: Any) -> tuple[float, float]:
    """Visible relative positions, low <= rel <= high."""
    if not isinstance(causal, bool | np.bool_):
        fail(TypeError, function, "causal", f"type {type(causal).__name__}", "True or False")
    low, high = -INFINITY, INFINITY
    if window is not None:
        if not isinstance(window, tuple | list) or len(window) != 2:
            fail(ValueError, function, "window", repr(window), "(left, right), each a number or None")
        left, right = window
        low = -INFINITY if left is None else -as_number(function, "window", left)
        high = INFINITY if right is None else as_number(function, "window", right)
    return low, min(high, 0.0) if causal else high


def _operators(function: str, bias: Any) -> tuple[Bias, ...]:
    operators = (bias,) if isinstance(bias, Bias) else bias
    if not isinstance(operators, Sequence) or not all(isinstance(operator, Bias) for operator in operators):
        fail(TypeError, function, "bias", f"type {type(bias).__name__}", "a Bias or a sequence of them")
    return tuple(operators)


def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    bias: Bias | Sequence[Bias] = (),
    keep: npt.ArrayLike | None = None,
    causal: bool = False,
    align: str | None = None,
    window: tuple[float | None, float | None] | None = None,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
    q_segments: npt.ArrayLike | None = None,
    k_segments: npt.ArrayLike | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    return_lse: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]:
    """``softmax(softcap(scale q.k) + biases, where visible) . v``, in tiles: no N x M array is ever made.

    Parameters
    ----------
    q : array (..., H, N, D)
        Queries.
    k : array (..., G, M, D)
        Keys; H is a multiple of G, and head h reads kv head ``h // (H // G)``.
    v : array (..., G, M, Dv)
        Values. Batch axes of q, k and v broadcast.
    bias : Bias or sequence of them
        Added to the scaled logits after the cap.
    keep : bool array that broadcasts to (..., H, N, M), optional
        True = this key may be seen. Integer masks are refused: their polarity is anyone's guess.
    causal : bool
        Key j is visible to query i where position of key <= position of query.
    align : {"start", "end"}, optional
        Where N queries stand among M keys: query i at i, or at i + M - N. Required by causal, window and biases that
        read positions when N != M and no positions are given.
    window : (left, right), optional
        Visible where ``-left <= rel <= right``, in positions, inclusive: the last W keys, the query's own among them,
        are ``(W - 1, 0)``. None is no limit, negative numbers are fine: ``(None, -w)`` sees what is at least w back.
    q_positions, k_positions : array (N,) and (M,), or with the batch axes before, optional
        Any integers or reals, or an int n for 0..n-1. Unlike those of `rope` they have no axis for heads. If only one
        is given the other is 0, 1, 2, ....
    q_segments, k_segments : integer array (N,) and (M,), or with the batch axes before, optional
        Packed documents: visible where the segments are equal.
    scale : float, optional
        ``D**-0.5``.
    softcap : float, optional
        ``softcap * tanh(logit / softcap)``, before biases and masks.
    return_lse : bool
        Also return the natural logarithm of the softmax's denominator, biases included.
    out : array (..., H, N, Dv), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., H, N, Dv)
        In the dtype of q; integers become float64. A query that may see nothing gives 0, and lse = -inf.
    lse : ndarray (..., H, N)
        If `return_lse`; float64 where q is, else float32.

    Raises
    ------
    TypeError
        An integer mask, segments that are not integers, dtypes that are none of the four.
    ValueError
        Shapes that do not fit; align missing where it matters, or given with positions.

    Notes
    -----
    Vaswani et al. 2017, equation 1; the streaming softmax is that of Milakov and Gimelshein 2018, tiled as by Dao et
    al. 2022. q decides: arithmetic is in float64 if q is, else in float32, and k and v are converted. Masked keys and
    values are never used: their NaN does not leak; a pair whose bias is -inf is masked. PyTorch's ``is_causal`` is
    ``align="start"``, flash-attention's since 2.1 is ``align="end"``:

    ======  =========  =========
    N M     start      end
    ======  =========  =========
    2 3     ``1 0 0``  ``1 1 0``
    .       ``1 1 0``  ``1 1 1``
    ======  =========  =========

    Examples
    --------
    >>> import numpy as np, posenc
    >>> q = k = v = np.eye(2)[None]
    >>> posenc.attention(q, k, v, causal=True).round(3)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])

    Decoding: one query, the last of 100 keys, with a bias that reads positions.

    >>> q, k, v = np.ones((8, 1, 64)), np.ones((8, 100, 64)), np.ones((8, 100, 64))
    >>> posenc.attention(q, k, v, bias=posenc.alibi(posenc.alibi_slopes(8)), align="end").shape
    (8, 1, 64)

    Two documents of 60 and 40 words in one sequence.

    >>> document = np.repeat([0, 1], [60, 40])
    >>> posenc.attention(k, k, v, causal=True, q_segments=document, k_segments=document).shape
    (8, 100, 64)
    """
    function = "attention"
    query, key, value = (_heads(function, argument, x) for argument, x in (("q", q), ("k", k), ("v", v)))
    heads, n, width = query.shape[-3:]
    groups, m = key.shape[-3:-1]
    if key.shape[-1] != width:
        fail(ValueError, function, "k", f"width {key.shape[-1]}", f"{width}, that of q")
    if value.shape[-3:-1] != (groups, m):
        fail(ValueError, function, "v", f"shape {value.shape}", f"(..., {groups}, {m}, Dv), as k")
    if heads % groups if groups else heads:
        fail(ValueError, function, "k", f"{groups} heads", f"a divisor of the {heads} heads of q")
    batch = query.shape[:-3]
    for argument, array in (("k", key), ("v", value)):
        try:
            batch = np.broadcast_shapes(batch, array.shape[:-3])
        except ValueError:
            fail(ValueError, function, argument, f"batch axes {array.shape[:-3]}", f"to broadcast against {batch}")
    wide = query.dtype.char == "d"
    operators = _operators(function, bias)
    low, high = _range(function, causal, window)
    cap = 0.0 if softcap is None else as_number(function, "softcap", softcap)
    if softcap is not None:
        if cap <= 0:
            fail(ValueError, function, "softcap", softcap, "a positive number or None")
        size = 1e300 if wide else 1e37  # it and its inverse are numbers of the working precision; results are the same
        cap = min(max(cap, 1 / size), size)
    factor = (width or 1) ** -0.5 if scale is None else as_number(function, "scale", scale)

    where = position_pair(function, n, m, q_positions, k_positions)
    if align is not None:
        one_of(function, "align", align, ("start", "end"))
        if where is not None:
            fail(ValueError, function, "align", repr(align), "None where positions are given")
    needs_positions = low > -INFINITY or high < INFINITY or any(operator.reads_positions for operator in operators)
    shift = 0.0
    if where is not None:
        for argument, array, length in (("q_positions", where[0], n), ("k_positions", where[1], m)):
            _batch_array(function, argument, array, batch, length)
        if consecutive(where[0]) and consecutive(where[1]):
            shift, where = float(where[0][0] - where[1][0]) if n and m else 0.0, None
    elif n != m and align is None and needs_positions:
        fail(ValueError, function, "align", "None", f"'start', or 'end' as in decoding: N = {n} and M = {m} differ")
    elif align == "end":
        shift = float(m - n)
    reads = where is None and any(operator.reads_positions for operator in operators)
    distances = diagonal_distances(n, m, shift) if reads else None

    mask = None
    if keep is not None:
        mask = as_array(function, "keep", keep)
        if mask.dtype != np.bool_:
            fail(TypeError, function, "keep", f"dtype {mask.dtype}", "bool, True = this key may be seen")
        try:
            mask = np.broadcast_to(mask, (*batch, heads, n, m))
        except ValueError:
            fail(ValueError, function, "keep", f"shape {mask.shape}", f"to broadcast to {(*batch, heads, n, m)}")
    if (q_segments is None) != (k_segments is None):
        missing = "q_segments" if q_segments is None else "k_segments"
        fail(ValueError, function, missing, "None", "segments of both queries and keys")
    of_q = None if q_segments is None else _segments(function, "q_segments", q_segments, batch, n)
    of_k = None if k_segments is None else _segments(function, "k_segments", k_segments, batch, m)
    terms = tuple(operator.term(function, wide, (*batch, heads, n, m), distances) for operator in operators)

    out, memory, staged = output(
        function,
        out,
        (*batch, heads, n, value.shape[-1]),
        query.dtype,
        (query, key, value, mask, *(where or ()), of_q, of_k, *_arrays(operators)),
    )
    lse = np.empty((*batch, heads, n), F64 if wide else F32)
    _core.attention(
        function, query, working(key, wide), working(value, wide), mask,
        *(where or (None, None)), of_q, of_k, terms, memory, lse, factor, cap, low, high, shift,
    )  # fmt: skip
    finish(out, staged)
    return (out, lse) if return_lse else out


def _arrays(operators: tuple[Bias, ...]) -> tuple[Array, ...]:
    return tuple(array for operator in operators for array in operator.arrays)


def merge_attention(outs: Any, lses: Any) -> tuple[Array, Array]:
    """Attention over all keys from attention over disjoint parts of them: ``out = sum_p exp(lse_p - lse) out_p``.

    Parameters
    ----------
    outs : sequence of arrays (..., N, Dv), or an array with the parts on axis 0
        Results of `attention` for the same queries over disjoint keys.
    lses : sequence of arrays (..., N), or an array with the parts on axis 0
        Their log-sum-exps, natural logarithm.

    Returns
    -------
    (out, lse)
        Exactly what one call over all the keys gives, up to rounding; `out` in the dtype of `outs`.

    Raises
    ------
    TypeError, ValueError
        Parts of different shapes, no parts, dtypes that are none of the four.

    Notes
    -----
    A part that saw nothing (lse = -inf) counts nothing. There is no vjp: give the merged out and lse to the gradient of
    each part.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 4, 8))
    >>> parts = [posenc.attention(q, k[:, s], v[:, s], return_lse=True) for s in (slice(0, 1), slice(1, 4))]
    >>> out, lse = posenc.merge_attention(*zip(*parts))
    >>> bool(np.allclose(out, posenc.attention(q, k, v)))
    True
    """
    function = "merge_attention"
    stacks = []
    for argument, parts in (("outs", outs), ("lses", lses)):
        if not isinstance(parts, tuple | list):
            stacks.append(as_data(function, argument, parts))
            continue
        arrays = [as_data(function, argument, part) for part in parts]
        arrays = [array.astype(arrays[0].dtype, copy=False) for array in arrays]
        if not arrays or any(array.shape != arrays[0].shape for array in arrays):
            shapes = ", ".join(str(array.shape) for array in arrays) or "no parts"
            fail(ValueError, function, argument, shapes, "one or more parts of one shape")
        stacks.append(np.stack(arrays))
    out, lse = stacks
    if out.ndim < 2 or out.shape[0] == 0:
        fail(ValueError, function, "outs", f"shape {out.shape}", "(parts, ..., Dv), at least one part")
    if lse.shape != out.shape[:-1]:
        fail(ValueError, function, "lses", f"shape {lse.shape}", f"{out.shape[:-1]}, as outs without the last axis")
    wide = out.dtype.char == "d"
    merged = np.empty(out.shape[1:], out.dtype.newbyteorder("="))
    merged_lse = np.empty(lse.shape[1:], F64 if wide else F32)
    _core.merge_attention(function, np.moveaxis(out, 0, -2), np.moveaxis(working(lse, wide), 0, -1), merged, merged_lse)
    return merged, merged_lse
