"""Streaming attention: any position operator, never an N x M array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, as_data, cast_operand, compute_dtype, fail, finish_out, prepare_out
from ..bias.operator import Bias
from ._backward import backward
from ._inputs import read_inputs

__all__ = ["attention", "attention_vjp", "merge_attention"]


class AttentionGradient(NamedTuple):
    """Gradients of `attention`, each in its argument's dtype; `bias` has a NamedTuple for each operator."""

    q: Array
    k: Array
    v: Array
    bias: tuple[Any, ...]


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
    given = read_inputs(
        function, q, k, v, bias=bias, keep=keep, causal=causal, align=align, window=window, q_positions=q_positions,
        k_positions=k_positions, q_segments=q_segments, k_segments=k_segments, scale=scale, softcap=softcap,
    )  # fmt: skip
    rows = given.shape[:-1]
    out, buffer = prepare_out(function, out, (*rows, given.v.shape[-1]), given.q.dtype, given.arrays)
    lse = np.empty(rows, given.dtype)
    _core.attention(function, *given.operands, buffer, lse, *given.numbers)
    finish_out(out, buffer)
    return (out, lse) if return_lse else out


def attention_vjp(
    grad: npt.ArrayLike,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    out: npt.ArrayLike,
    lse: npt.ArrayLike,
    grad_lse: npt.ArrayLike | None = None,
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
) -> AttentionGradient:
    """Gradient of `attention`: ``dS = P (grad v - sum(grad out) + grad_lse)``, in tiles; ``P = exp(logits - lse)``.

    Parameters
    ----------
    grad : array (..., H, N, Dv)
        Cotangent of the result.
    q, k, v
        As they were given to `attention`, and so all options below.
    out : array (..., H, N, Dv)
        What `attention` returned; not written to.
    lse : array (..., H, N)
        What it returned with ``return_lse=True``.
    grad_lse : array (..., H, N), optional
        Cotangent of lse.
    bias, keep, causal, align, window, q_positions, k_positions, q_segments, k_segments, scale, softcap
        Options of `attention`.

    Returns
    -------
    AttentionGradient
        ``q``, ``k`` and ``v`` in their arguments' shapes and dtypes, and ``bias``: for each operator a NamedTuple of
        the gradients of its arrays. A query that sees nothing, and what nobody sees, has gradient 0.

    Raises
    ------
    TypeError, ValueError
        As `attention`; also where `grad` or `out` has not the shape of the result, or `lse` or `grad_lse` that of lse.

    Notes
    -----
    Weights are computed again from `lse`, as in algorithm 2 of Dao 2023 (FlashAttention-2): nothing of size N x M is
    made, unless the gradient of a `dense` array is. The softmax is over whatever keys `lse` is over: with `out` and
    `lse` of all keys, a call with a part of the keys gives the gradient of that part (the gradient of q is the sum over
    the parts). Gradients are added up in an order that depends on the shapes of one row of the batch alone. A pair
    whose weight is 0, masked or underflown, gives nothing: NaN does not leak from what is masked. torch's memory-saving
    backward on the CPU has no gradient for a mask or bias.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> q = k = v = np.eye(2)[None]
    >>> slopes = posenc.alibi([0.5])
    >>> out, lse = posenc.attention(q, k, v, bias=slopes, return_lse=True)
    >>> d = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse, bias=slopes)
    >>> d.v.round(3)
    array([[[1., 1.],
            [1., 1.]]])
    >>> d.bias[0].slopes.round(3)
    array([0.])
    """
    function = "attention_vjp"
    given = read_inputs(
        function, q, k, v, bias=bias, keep=keep, causal=causal, align=align, window=window, q_positions=q_positions,
        k_positions=k_positions, q_segments=q_segments, k_segments=k_segments, scale=scale, softcap=softcap,
    )  # fmt: skip
    rows = given.shape[:-1]
    shape = (*rows, given.v.shape[-1])

    def read(argument: str, value: Any, expected: tuple[int, ...]) -> Array:
        array = as_data(function, argument, value)
        if array.shape != expected:
            fail(ValueError, function, argument, f"shape {array.shape}", str(expected))
        return cast_operand(array, given.dtype)

    arrays = read("out", out, shape), read("lse", lse, rows), read("grad", grad, shape)
    of_lse = None if grad_lse is None else read("grad_lse", grad_lse, rows)
    return AttentionGradient(*backward(function, given, (*arrays, of_lse)))


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
    dtype = compute_dtype(out)
    merged = np.empty(out.shape[1:], out.dtype.newbyteorder("="))
    merged_lse = np.empty(lse.shape[1:], dtype)
    _core.merge_attention(
        function, np.moveaxis(out, 0, -2), np.moveaxis(cast_operand(lse, dtype), 0, -1), merged, merged_lse
    )
    return merged, merged_lse
