"""Attention in tiles, with any operator on the logits; no N x M array is allocated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail, fail_value
from ..bias import operator
from ..bias.operator import Bias, Gradients, Term
from .inputs import per_head, read_inputs, read_operators, read_quantized
from .options import DEFAULTS, READ_BY_PYTHON, Options, refuse_unknown, show_options
from .quantized import Quantized, quantize

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Quantized", "attention", "attention_vjp", "attention_weights", "merge_attention", "quantize"]


class AttentionGradient(NamedTuple):
    """Gradients of `attention`, each in its argument's dtype.

    Attributes
    ----------
    q : array (..., H, N, D)
    k, v : array (..., G, M, D) and (..., G, M, Dv)
    bias : tuple of NamedTuples
        One per operator.
    sink : array (H,) or None
        None without a sink.
    scale : array (H,) or None
        None if the scale is a number.
    """

    q: Array
    k: Array
    v: Array
    bias: Gradients
    sink: Array | None
    scale: Array | None = None


@overload
def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    return_lse: Literal[False] = False,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array: ...
@overload
def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    out: Array | None = None,
    **options: Unpack[Options],
) -> tuple[Array, Array]: ...
@overload
def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    return_lse: bool,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array | tuple[Array, Array]: ...
@door
@show_options(before="return_lse")
def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    return_lse: bool = False,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array | tuple[Array, Array]:
    """Compute attention in tiles; no N x M array is allocated.

    ``softmax(softcap(scale (q.k + content operators)) + position operators, over visible keys) . v``

    Parameters
    ----------
    q : array (..., H, N, D)
        Queries. Arrays q (N, D), k (M, D) and v (M, Dv), all three without an axis of heads, are one head: then `keep`
        broadcasts to (N, M), and `sink` and `scale` are numbers or have shape (1,).
    k : array (..., G, M, D)
        Keys. H is a multiple of G, and head h reads kv head ``h // (H // G)``.
    v : array (..., G, M, Dv)
        Values. The batch axes of q, k and v broadcast.
    bias : Bias or sequence of Bias
        Operators on the logits, at most 16. A `PositionBias` is added after scale and cap, a `ContentBias` before them.
        A sum counts as many as its parts.
    keep : bool array that broadcasts to (..., H, N, M), optional
        True = the query may see the key. Integer masks are refused, because libraries differ in what 1 means.
    causal : bool
        If True, a key is visible only if its position is at most the query's position.
    align : {"start", "end"}, optional
        Alignment of N queries with M keys: query i is at position i, or at i + M - N. Required if N != M, no positions
        are passed, and causal, window or a bias reads positions.
    window : (left, right), optional
        A query at position p sees the keys at p - left .. p + right. None is no limit. ``(W - 1, 0)`` is the last W
        keys, the query's own included. Numbers may be negative: with ``(None, -w)`` a query sees keys at least w back.
    q_positions, k_positions : array (N,) and (M,), or with the batch axes before, optional
        Integers or reals, or an int n for 0..n-1. Unlike the positions of `rope` they have no axis for heads. If
        only one is passed, the other is 0, 1, 2, ....
    q_segments, k_segments : integer array (N,) and (M,), or with the batch axes before, optional
        Documents packed into one sequence: a key is visible only if its segment equals the query's segment.
    scale : float or array (H,), optional
        Factor of the logits; ``D**-0.5`` by default, unless an operator has another default (`deberta`, `tupe`, and
        `t5` with ``unscaled=True``). An array has one number for each head, as in Swin V2; operators that read queries
        and keys refuse it.
    softcap : float, optional
        Logits become ``softcap * tanh(logits / softcap)`` before position operators and masks.
    sink : array (H,), or with the batch axes before, optional
        One more logit of each head, without a value: it joins the softmax's sum, and is neither scaled nor capped.
        Finite, or -inf for none.
    dropout : float
        Probability that a weight of the softmax is dropped, from 0 to below 1, rounded to a multiple of 2**-16. The
        other weights are divided by ``1 - dropout``. lse does not depend on it.
    seed : int, optional
        0 to 2**64 - 1; required if dropout is not 0. It decides which weights are dropped; see Notes.
    invariant : bool
        If True, the bits of a query's result depend only on the query, the keys that it sees, and their indices. They
        are equal in one call for a whole text, in chunks, token by token, and in any batch. Decoding takes longer.
    precision : {"high", "low"}
        Ignored for float32 and float64, and where `isa` multiplies no 16-bit numbers. "high" splits each weight of the
        softmax into two 16-bit numbers. "low" rounds it to one if q is bfloat16, as PyTorch and flash-attention do; the
        result then has up to twice the error.
    return_lse : bool
        If True, also return the natural logarithm of the softmax's denominator, biases and sink included.
    out : array (..., H, N, Dv), optional
        Filled and returned.

    Returns
    -------
    out : ndarray (..., H, N, Dv)
        In the dtype of q; integers become float64; (N, Dv) for one head. If a query sees no key, its row is 0 and its
        lse is the sink, or -inf without a sink.
    lse : ndarray (..., H, N)
        Only if `return_lse`; float64 if q is, else float32.

    Raises
    ------
    TypeError
        An integer mask, segments that are not integers, dtypes that are none of the four.
    ValueError
        Shapes that do not fit; `align` missing where it matters, or passed with positions; more than 16 operators.

    Notes
    -----
    Vaswani et al. 2017 (Attention Is All You Need), equation 1. The online softmax follows Milakov and Gimelshein 2018
    (Online normalizer calculation for softmax), tiled as in Dao et al. 2022 (FlashAttention). The dtype of q decides
    the arithmetic: float64 for float64, else float32; k and v are converted. Masked keys and values are never used, so
    their NaN does not reach the result. A pair whose bias is -inf is masked. Numbers below 2**-126 (float64: 2**-1022)
    count as 0. A logit whose parts leave the range of the dtype is inf, NaN or 0, as in PyTorch: in float32, scale
    times q beyond 2**127, or products with an int8 scale below 2**-80. With a scale for each head, products are
    computed from float32 numbers (float64 if q is). The sink follows gpt-oss (OpenAI 2025, gpt-oss model card, section
    2); if the keys are split into parts for `merge_attention`, exactly one part gets it. PyTorch's ``is_causal`` is
    ``align="start"``; flash-attention's ``causal`` since version 2.1 is ``align="end"``. The keys that two queries see,
    of three keys:

    =======  =========  =========
    align    query 0    query 1
    =======  =========  =========
    "start"  ``1 0 0``  ``1 1 0``
    "end"    ``1 1 0``  ``1 1 1``
    =======  =========  =========

    Dropout (Srivastava et al. 2014, Dropout) drops weights after the softmax has summed all visible keys, as PyTorch
    does. Philox4x32-7 (Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3) draws the random numbers from
    the seed and the indices of batch row, head, query and key. No mask is stored: `attention_vjp` draws them again.
    They do not depend on threads or on the instruction set, but on what is in the call: a part of the keys or of the
    batch gets others. Each layer and each training step needs another seed. ``posenc.reference.dropout_factors``
    returns the mask, bit for bit.

    Few queries, as in decoding, run in another kernel, which is limited by memory bandwidth and sums in another
    order. Beyond 8192 keys, the keys of few heads are split into parts, which threads share and whose results
    are merged. Both depend on the shapes of one row of the batch and on `isa`, not on the number of threads.
    Compared with ``invariant=True``, results differ by rounding: by some units of ``2**-24 max |v|`` in float32.

    Examples
    --------
    A causal prompt of two tokens:

    >>> import numpy as np, posenc
    >>> q = k = v = np.eye(2)[None]
    >>> posenc.attention(q, k, v, causal=True).round(3)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])

    One head, without an axis for it:

    >>> posenc.attention(np.eye(2), np.eye(2), np.eye(2), causal=True).round(3)
    array([[1.  , 0.  ],
           [0.33, 0.67]])

    Decoding: one query, the last of 100 positions, with ALiBi.

    >>> q, k, v = np.ones((8, 1, 64)), np.ones((8, 100, 64)), np.ones((8, 100, 64))
    >>> posenc.attention(q, k, v, bias=posenc.alibi(posenc.alibi_slopes(8)), align="end").shape
    (8, 1, 64)

    Two documents of 60 and 40 words in one sequence:

    >>> document = np.repeat([0, 1], [60, 40])
    >>> posenc.attention(k, k, v, causal=True, q_segments=document, k_segments=document).shape
    (8, 100, 64)
    """
    wants_lse = return_lse if type(return_lse) is bool else read.flag("return_lse", return_lse)
    if isinstance(k, Quantized) or isinstance(v, Quantized) or not READ_BY_PYTHON.isdisjoint(options):
        inputs = read_inputs("attention", q, k, v, options)
        dtype = None if inputs.head_scale is None else inputs.q.dtype
        return _core.attention(**inputs.arguments, out=out, lse=wants_lse or None, dtype=dtype)
    if options and not options.keys() <= DEFAULTS.keys():
        refuse_unknown("attention", options)
    return _core.attention(q=q, k=k, v=v, out=out, lse=wants_lse or None, **options)


@door
@show_options()
def attention_vjp(
    grad: npt.ArrayLike,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    out: npt.ArrayLike | None = None,
    lse: npt.ArrayLike | None = None,
    grad_lse: npt.ArrayLike | None = None,
    **options: Unpack[Options],
) -> AttentionGradient:
    """Return the gradient of `attention` for a cotangent, its first argument, computed in tiles.

    ``dS = P (grad v - sum(grad out) + grad_lse)``, ``P = exp(logits - lse)``

    Parameters
    ----------
    grad : array (..., H, N, Dv)
        Cotangent of the result.
    q, k, v
        Arguments of `attention`.
    out : array (..., H, N, Dv), optional
        Result of `attention`; only read. Without `out` and `lse`, both are computed again, which takes the time of
        `attention`.
    lse : array (..., H, N), optional
        Second result of `attention` with ``return_lse=True``. Passed if and only if `out` is.
    grad_lse : array (..., H, N), optional
        Cotangent of lse.
    bias, keep, causal, align, window, q_positions, k_positions, q_segments, k_segments, scale, softcap, sink
        The options that were passed to `attention`.
    dropout, seed
        The arguments that were passed to `attention`, so that the same weights are dropped.
    invariant
        Ignored: one kernel computes all gradients.
    precision
        As in `attention`, for weights and dS. Products are of float32 if `grad` is, with an operator that reads q
        and k, and for numbers that are not finite.

    Returns
    -------
    AttentionGradient
        ``q``, ``k``, ``v``, ``sink`` and ``scale`` in the shapes and dtypes of their arguments, and ``bias``: one
        NamedTuple per operator with the gradients of its arrays, which keep their axis of heads for one head too.
        ``sink`` is None without a sink. ``scale`` is None unless the scale was an array. The gradient is 0 for a query
        that sees no key and for a key that no query sees.

    Raises
    ------
    TypeError, ValueError
        As `attention`; also if `grad` or `out` does not have the shape of the result, if `lse` or `grad_lse` does not
        have the shape of lse, or if only one of `out` and `lse` is passed.

    Notes
    -----
    The kernel recomputes the weights from `lse`, as in algorithm 2 of Dao 2023 (FlashAttention-2). Nothing of size
    N x M is allocated, except the gradient of a `dense` array of that size. The softmax is over the keys that `lse` is
    over: with `out` and `lse` of all keys, a call with a part of the keys gives the gradient of that part, and the
    gradient of q is the sum over the parts. The gradients of q, k and v in one row of the batch do not depend on the
    other rows, bit for bit. The gradient of an operator is a sum over the batch, whose order depends on the size of the
    batch but not on the number of threads; for tables of float32 its last bits may differ from those of a sum over
    calls with one row each. A pair of weight 0, masked or underflowed, contributes nothing, so NaN in masked keys does
    not reach a gradient. PyTorch's memory-efficient backward on the CPU has no gradient for a mask or bias.

    Examples
    --------
    Gradients of the sum of the results, for the values and for ALiBi's slopes:

    >>> import numpy as np, posenc
    >>> q = k = v = np.eye(2)[None]
    >>> bias = posenc.alibi([0.5])
    >>> out, lse = posenc.attention(q, k, v, bias=bias, return_lse=True)
    >>> d = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse, bias=bias)
    >>> d.v.round(3)
    array([[[1., 1.],
            [1., 1.]]])
    >>> d.bias[0].slopes.round(3)
    array([0.])
    """
    inputs = read_inputs("attention_vjp", q, k, v, options)
    arguments = inputs.arguments
    for name in ("k", "v"):
        arguments[name] = read.data(name, arguments[name])
    if (out is None) != (lse is None):
        missing, other = ("out", "lse") if out is None else ("lse", "out")
        fail_value(ValueError, missing, None, f"an array, because {other} is passed, or both None")
    read.flag("invariant", arguments.pop("invariant", False))
    if out is None:
        out, lse = _core.attention(**arguments, dtype=inputs.dtype, lse=True)
    *of_arrays, d_sink, of_terms = _core.attention_vjp(**arguments, out=out, lse=lse, grad=grad, grad_lse=grad_lse)
    terms = zip(arguments["bias"], of_terms, strict=True)
    with convert.without_warnings():
        arrays = zip(of_arrays, (arguments["q"], arguments["k"], arguments["v"]), strict=True)
        d_q, d_k, d_v = (convert.unbroadcast(operator.add_slots(d, 2), array.shape, array.dtype) for d, array in arrays)
        d_bias = tuple(_operator_gradients(bias, terms) for bias in inputs.operators)
        if d_sink is not None:
            sink = arguments["sink"]
            d_sink = convert.unbroadcast(d_sink[..., 0, :].sum(-1), np.atleast_1d(sink).shape, sink.dtype)
            d_sink = d_sink.reshape(sink.shape)
        d_scale = None
        if inputs.head_scale is not None:
            d_q, of_heads = _scale_gradient(inputs.q, inputs.head_scale, d_q)
            scale = read.data("scale", options["scale"])
            d_scale = convert.result(of_heads if scale.ndim else of_heads.sum(), scale.dtype)
    return AttentionGradient(d_q, d_k, d_v, d_bias, d_sink, d_scale)


def _operator_gradients(bias: Bias, terms: Iterator[tuple[Term, Gradients]]) -> Any:
    """Return the gradients of an operator by name, whose parts are the next terms."""
    gradients = [
        part._scheme.kind.gradient(part, sums, term) for part, (term, sums) in zip(bias.parts, terms, strict=False)
    ]
    return operator.name_gradients(bias, gradients)


def _scale_gradient(q: Array, scale: Array, grad: Array) -> tuple[Array, Array]:
    """Return the gradients of q and of the scale of each head, for the gradient of their product.

    Logits are products of the queries with numbers that do not depend on the scale, so no kernel is needed.
    """
    # the order of the sums depends on the layout
    factors = (array.astype(F64, order="C", copy=False) for array in (q, grad))
    of_heads = np.einsum("...nd,...nd->...", *factors).reshape(-1, len(scale)).sum(0)
    d_q = convert.result(grad * per_head(scale, q).astype(convert.arithmetic(q)), q.dtype)
    return d_q, of_heads


@door
@show_options()
def attention_weights(q: npt.ArrayLike, k: npt.ArrayLike, **options: Unpack[Options]) -> Array:
    """Return the weights of `attention`, the softmax itself, to look at.

    ``softmax(softcap(scale (q.k + content operators)) + position operators, over visible keys)``

    Parameters
    ----------
    q : array (..., H, N, D)
        Queries.
    k : array (..., G, M, D)
        Keys.
    bias, keep, causal, align, window, q_positions, k_positions, q_segments, k_segments, scale, softcap, sink
        The options of `attention`. What operators add to values, as ``rel_v`` of `shaw`, is left out.
    dropout, seed
        As in `attention`: the result has 0 in place of dropped weights, and the others are divided by ``1 - dropout``.
    invariant, precision
        As in `attention`.

    Returns
    -------
    ndarray (..., H, N, M)
        In the dtype of q; (N, M) for q and k without an axis of heads. Without dropout, rows sum to 1 up to rounding,
        to less with a sink, and to 0 if the query sees no key.

    Raises
    ------
    TypeError, ValueError
        As `attention`.

    Notes
    -----
    The result has N M numbers per head, which `attention` never makes, and takes the time of attention to values of
    width M. There is no vjp.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> q = k = np.zeros((1, 3, 4))
    >>> posenc.attention_weights(q, k, causal=True).round(3)
    array([[[1.   , 0.   , 0.   ],
            [0.5  , 0.5  , 0.   ],
            [0.333, 0.333, 0.333]]])
    """
    query = read.data("q", q)
    if isinstance(k, Quantized):
        read_quantized("attention_weights", "k", k, query.dtype)
    key = read.data("k", k)
    m = key.shape[-2] if key.ndim > 1 else 0
    if m > MOST_WIDTH:
        fail(ValueError, "k", f"sequence axis {m}", f"at most {MOST_WIDTH} keys")
    unit_vectors = np.broadcast_to(np.eye(m, dtype=convert.arithmetic(query)), (*key.shape[-3:-2], m, m))
    operators = read_operators(options.get("bias"))
    parts = [_without_values(part) for operator in operators for part in operator.parts]
    inputs = read_inputs("attention_weights", query, key, unit_vectors, {**options, "bias": parts})
    return _core.attention(**inputs.arguments, dtype=query.dtype)


def _without_values(bias: Bias) -> Bias:
    """Return the operator without the tables that it adds to values: those as wide as v."""
    letters = operator.read_row(bias.name).axes
    of_values = [name for name in bias.arrays._fields if letters.get(name, "")[-1:] == "e"]
    return replace(bias, arrays=bias.arrays._replace(**dict.fromkeys(of_values))) if of_values else bias


@door
def merge_attention(
    outs: npt.ArrayLike | Sequence[npt.ArrayLike], lses: npt.ArrayLike | Sequence[npt.ArrayLike]
) -> tuple[Array, Array]:
    """Merge attention over disjoint parts of the keys into attention over all keys.

    ``out = sum_p exp(lse_p - lse) out_p``, ``lse = log(sum_p exp(lse_p))``

    Parameters
    ----------
    outs : sequence of arrays (..., N, Dv), or an array with the parts on axis 0
        Results of `attention` for the same queries over disjoint keys.
    lses : sequence of arrays (..., N), or an array with the parts on axis 0
        Their log-sum-exps, natural logarithm.

    Returns
    -------
    out : ndarray (..., N, Dv)
        The result of one call over all keys, up to rounding, in the dtype of `outs`.
    lse : ndarray (..., N)
        Its log-sum-exp; float64 if `outs` is, else float32.

    Raises
    ------
    TypeError, ValueError
        Parts of different shapes, no parts, dtypes that are none of the four.

    Notes
    -----
    A part that saw no key (lse = -inf) contributes nothing. There is no vjp: pass the merged out and lse to
    `attention_vjp` of each part.

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
    out, lse = _stack_parts("outs", outs), _stack_parts("lses", lses)
    if out.ndim < 2 or out.shape[0] == 0:
        fail(ValueError, "outs", f"shape {out.shape}", "(parts, ..., Dv), at least one part")
    if lse.shape != out.shape[:-1]:
        fail(ValueError, "lses", f"shape {lse.shape}", f"{out.shape[:-1]}, as outs without the last axis")
    lse = convert.operand("lses", lse, convert.arithmetic(out))
    merged, lse = _core.merge_attention(outs=np.moveaxis(out, 0, -2), lses=np.moveaxis(lse, 0, -1))
    return merged, lse


def _stack_parts(argument: str, parts: object) -> Array:
    """Return a sequence of parts as one array in the dtype of the first part."""
    if not isinstance(parts, tuple | list):
        return read.data(argument, parts)
    arrays = [read.data(argument, part) for part in parts]
    arrays = [convert.copied(argument, array, arrays[0].dtype) for array in arrays]
    if not arrays or any(array.shape != arrays[0].shape for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays) or "no parts"
        fail(ValueError, argument, shapes, "one or more parts of one shape")
    return np.stack(arrays)
