"""The sinusoidal encoding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    as_positions,
    check_choice,
    fail,
    finish_out,
    prepare_out,
    result_dtype,
)
from .frequency import DENOMINATORS, exact_frequencies, given_frequencies

__all__ = ["SinusoidalGradient", "sinusoidal", "sinusoidal_vjp"]

LAYOUTS = ("interleaved", "halves")
ORDERS = ("sincos", "cossin")


class SinusoidalGradient(NamedTuple):
    """Gradients of `sinusoidal`, float64."""

    positions: Float64
    frequencies: Float64


class Columns(NamedTuple):
    """Frequencies as double-doubles and where their sines and cosines lie in a row of `dim` columns."""

    high: Float64
    low: Float64 | None
    sine: int
    cosine: int
    step: int


def columns_of(
    function: str, dim: int, base: float, frequencies: Any, layout: str, order: str, denominator: str
) -> Columns:
    check_choice(function, "layout", layout, LAYOUTS)
    check_choice(function, "order", order, ORDERS)
    check_choice(function, "denominator", denominator, DENOMINATORS)
    low: Float64 | None
    if frequencies is None:
        high, low = exact_frequencies(function, dim, base, denominator)
    else:
        high, low = given_frequencies(function, frequencies), None
        if len(high) not in (dim // 2, (dim + 1) // 2):
            counts = f"{(dim + 1) // 2} or {dim // 2}" if dim % 2 else f"{dim // 2}"
            fail(ValueError, function, "frequencies", f"{len(high)} entries", counts)
    second = 1 if layout == "interleaved" else len(high)
    step = 2 if layout == "interleaved" else 1
    return Columns(high, low, *((0, second) if order == "sincos" else (second, 0)), step)


def sinusoidal(
    positions: npt.ArrayLike | int,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
    scale: float = 1.0,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
) -> Array:
    """Sinusoidal encoding: ``PE[p, 2i] = scale sin(p w[i])``, ``PE[p, 2i+1] = scale cos(p w[i])``.

    Parameters
    ----------
    positions : int or array (..., N)
        ``n`` means 0..n-1. Any integers or reals up to 2**53 in magnitude.
    dim : int
        Width d of the encoding, at least 1.
    base : float
        ``w[i] = base**-t``, ``t = 2 i / dim``, as the exact real number; see `frequencies`.
    frequencies : array (ceil(dim / 2),) or (dim // 2,), optional
        Radians per position, taken as exact float64, in place of `base` and `denominator`.
    layout : {"interleaved", "halves"}
        ``sin, cos, sin, cos, ...`` or ``[sin ... | cos ...]``. (The pairs of `rope` are another matter: "half".)
    order : {"sincos", "cossin"}
        Which of the two comes first.
    denominator : {"dim", "half-1"}
        See `frequencies`.
    scale : float
        Factor on the result.
    dtype : dtype, optional
        float32 unless given, or that of `out`.
    out : array (..., N, dim), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, dim)
        An odd `dim` has one sine more than cosines; where there are only ``dim // 2`` frequencies its last column is 0.

    Raises
    ------
    TypeError
        A bare float, bool or complex positions, a dtype that is none of the four.
    ValueError
        NaN or infinite positions, positions past 2**53, an unknown option, a wrong number of frequencies.

    Notes
    -----
    Vaswani et al. 2017, section 3.5. Angles are reduced in double-double: float32 results are within 1 ulp at every
    integer position below 2**31 and within 2**-24 below 2**53; float64 within 4e-16 below 2**31. The usual float32
    formula is wrong by 0.005 at 131072 and by a radian at 2**24. A row depends on its position alone, bit for bit.
    Between instruction sets (`use_isa`) two float32 entries in 10**9 differ, by 1 ulp.

    What others call by name: Vaswani, keras-hub, XLM, DistilBERT: the defaults. Marian, Pegasus, RoFormer, CTRL,
    Transformer-XL, XLNet: ``layout="halves"``, and x-transformers with a learned `scale`. tensor2tensor, fairseq,
    M2M100, Whisper: ``layout="halves", denominator="half-1"`` (fairseq counts positions from padding_idx + 1).
    MusicGen: the same with ``order="cossin"``. tensor2tensor pads an odd width with zeros, as here.

    Examples
    --------
    >>> import posenc
    >>> posenc.sinusoidal(2, 4)
    array([[0.        , 1.        , 0.        , 1.        ],
           [0.84147096, 0.5403023 , 0.00999983, 0.99995   ]], dtype=float32)
    """
    function = "sinusoidal"
    where = as_positions(function, "positions", positions)
    dim = as_index(function, "dim", dim, 1)
    columns = columns_of(function, dim, base, frequencies, layout, order, denominator)
    factor = as_number(function, "scale", scale)
    kind = result_dtype(function, dtype, out)
    out, buffer = prepare_out(function, out, (*where.shape, dim), kind, (where, columns.high))
    _core.sinusoid(
        function, where, columns.high, columns.low, buffer, columns.sine, columns.cosine, columns.step, factor, factor
    )
    return finish_out(out, buffer)


def sinusoidal_vjp(
    grad: npt.ArrayLike,
    positions: npt.ArrayLike | int,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
    scale: float = 1.0,
) -> SinusoidalGradient:
    """Gradient of `sinusoidal`: ``dp = sum_i w phase``, ``dw = sum_n p phase``, phase = cos grad_sin - sin grad_cos.

    Parameters
    ----------
    grad : array (..., N, dim)
        Cotangent of the encoding; the other arguments are those of `sinusoidal`.

    Returns
    -------
    SinusoidalGradient
        ``positions`` (..., N) and ``frequencies``, both float64. The frequencies are those of `base` where none are
        given, so that they can be trained from there.

    Raises
    ------
    TypeError, ValueError
        As `sinusoidal`; also where `grad` does not have the shape of the encoding.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.sinusoidal_vjp(np.ones((1, 2)), [0.0], 2)
    SinusoidalGradient(positions=array([1.]), frequencies=array([0.]))
    """
    function = "sinusoidal_vjp"
    where = as_positions(function, "positions", positions)
    dim = as_index(function, "dim", dim, 1)
    columns = columns_of(function, dim, base, frequencies, layout, order, denominator)
    factor = as_number(function, "scale", scale)
    cotangent = as_data(function, "grad", grad)
    if cotangent.shape != (*where.shape, dim):
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str((*where.shape, dim)))
    d_positions, d_frequencies = np.empty(where.shape), np.empty(columns.high.shape)
    _core.sinusoid_vjp(
        function, cotangent, where, columns.high, columns.low, d_positions, d_frequencies,
        columns.sine, columns.cosine, columns.step, factor, factor,
    )  # fmt: skip
    return SinusoidalGradient(d_positions, d_frequencies)
