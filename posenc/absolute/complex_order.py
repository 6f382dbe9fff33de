"""Complex order: a word's vector turns as its position grows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_array,
    as_data,
    as_float64,
    as_positions,
    broadcasts_to,
    cast_operand,
    check_positions,
    compute_dtype,
    fail,
    unbroadcast,
)
from .._core_api.constants import LARGEST_ANGLE

__all__ = ["ComplexOrderGradient", "complex_order", "complex_order_vjp"]


class ComplexOrderGradient(NamedTuple):
    """Gradients of `complex_order`: `amplitude` in its dtype, the others float64; None for a phase that was None."""

    amplitude: Array
    frequency: Float64
    positions: Float64
    phase: Float64 | None


def _largest(function: str, argument: str, array: Array) -> float:
    """Largest magnitude; NaN and infinity are refused."""
    if not array.size:
        return 0.0
    largest = max(-float(array.min()), float(array.max()))
    if not np.isfinite(largest) or np.isnan(float(array.min())):
        fail(ValueError, function, argument, "NaN or infinity", "finite numbers")
    return largest


def _angle(function: str, argument: str, value: Any, amplitude: Array, most_position: float) -> Float64:
    array = as_float64(function, argument, value)
    if not broadcasts_to(array.shape, amplitude.shape):
        fail(
            ValueError, function, argument, f"shape {array.shape}",
            f"what broadcasts to the shape {amplitude.shape} of amplitude",
        )  # fmt: skip
    largest = _largest(function, argument, array)
    if largest * most_position > LARGEST_ANGLE:
        fail(ValueError, function, argument, largest, "at most 2**56 radians at the largest position")
    return array


def _widened(array: Float64 | None, width: int) -> Float64 | None:
    """As wide as the amplitude, without a copy: the kernel takes any stride."""
    if array is None or array.shape[-1:] == (width,):
        return array
    return np.broadcast_to(array, (*array.shape[:-1], width))


class _Operands(NamedTuple):
    amplitude: Array
    frequency: Float64
    where: Array
    phase: Float64 | None

    def rows(self) -> tuple[Array, Array, Float64 | None, Float64 | None]:
        """What the kernels take, in their order."""
        width = self.amplitude.shape[-1]
        return self.amplitude, self.where, _widened(self.frequency, width), _widened(self.phase, width)


def _operands(function: str, amplitude: Any, frequency: Any, positions: Any, phase: Any) -> _Operands:
    radius = as_data(function, "amplitude", amplitude)
    if radius.ndim < 2:
        fail(ValueError, function, "amplitude", f"{radius.ndim} axes", "at least 2: (..., N, C)")
    where = as_positions(function, "positions", positions)
    if not broadcasts_to(where.shape, radius.shape[:-1]) or where.shape[-1] != radius.shape[-2]:
        fail(
            ValueError, function, "positions", f"shape {where.shape}",
            f"{radius.shape[-2]} positions on the last axis, and leading axes that broadcast to {radius.shape[:-2]}",
        )  # fmt: skip
    check_positions(function, "positions", where)
    most = _largest(function, "positions", where)
    w = _angle(function, "frequency", frequency, radius, most)
    theta = None if phase is None else _angle(function, "phase", phase, radius, 1.0)
    return _Operands(radius, w, where, theta)


def complex_order(
    amplitude: npt.ArrayLike,
    frequency: npt.ArrayLike,
    positions: npt.ArrayLike | int,
    *,
    phase: npt.ArrayLike | None = None,
) -> npt.NDArray[np.complexfloating[Any, Any]]:
    """Complex order: ``z = amplitude * exp(i (frequency * position + phase))``.

    Parameters
    ----------
    amplitude : array (..., N, C)
        Vectors of the words, of either sign.
    frequency : array that broadcasts to `amplitude`
        Radians per position, in float64: (..., N, C) for each word and dimension, (..., N, 1) for each word, (C,) for
        each dimension.
    positions : int or array (..., N)
        ``n`` means 0..n-1. Any integers or reals up to 2**53 in magnitude; the leading axes broadcast to those of
        `amplitude`.
    phase : array that broadcasts to `amplitude`, optional
        Radians at position 0; 0 unless given.

    Returns
    -------
    ndarray (..., N, C) of complex128 where `amplitude` is float64 (or integers), complex64 otherwise

    Raises
    ------
    TypeError
        Complex or boolean arguments, positions that are a bare float.
    ValueError
        Shapes that do not broadcast to `amplitude`, NaN or infinite angles, angles past 2**56 radians.

    Notes
    -----
    Wang et al. 2020, equation 11. The authors' programs have no phase (but for a variant without positions), share
    frequencies in all three ways, and count positions from 1 or backwards; here positions are what you pass. They
    return real and imaginary parts as two arrays: ``z.real`` and ``z.imag``. There is no `out`.

    Angles are reduced in double-double as in `sinusoidal`: each part is within 1 ulp of amplitude in complex64, and
    within 4e-16 amplitude at positions below 2**31 in complex128.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.complex_order(np.ones((3, 1)), [np.pi / 2], 3).round(3) + 0
    array([[ 1.+0.j],
           [ 0.+1.j],
           [-1.+0.j]])
    """
    function = "complex_order"
    given = _operands(function, amplitude, frequency, positions, phase)
    real = compute_dtype(given.amplitude)
    out = np.empty(given.amplitude.shape, np.complex128 if real is F64 else np.complex64)
    _core.complex_order(function, *given.rows(), _pairs(out, real))
    return out


def _pairs(array: Array, real: np.dtype[Any]) -> Array:
    """(..., C) complex as (..., 2 C) numbers, the same memory."""
    return array.view(real)


def complex_order_vjp(
    grad: npt.ArrayLike,
    amplitude: npt.ArrayLike,
    frequency: npt.ArrayLike,
    positions: npt.ArrayLike | int,
    *,
    phase: npt.ArrayLike | None = None,
) -> ComplexOrderGradient:
    """Gradient of `complex_order`: ``dr = cos g.re + sin g.im``, ``da = r (cos g.im - sin g.re)``, ``dw = p da``.

    Parameters
    ----------
    grad : array (..., N, C), complex or real
        Cotangent: its real part belongs to the real part of the result, its imaginary part to the imaginary part (not
        its conjugate). The other arguments are those of `complex_order`.

    Returns
    -------
    ComplexOrderGradient
        ``amplitude`` in its dtype, ``frequency``, ``positions`` and ``phase`` in float64, each in the shape of its
        argument; ``phase`` is None where none was given.

    Raises
    ------
    TypeError, ValueError
        As `complex_order`; also where `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> g = posenc.complex_order_vjp(np.array([[1j]]), np.array([[2.0]]), [0.5], [0.0])
    >>> g.amplitude, g.frequency, g.positions
    (array([[0.]]), array([0.]), array([1.]))
    """
    function = "complex_order_vjp"
    given = _operands(function, amplitude, frequency, positions, phase)
    real = compute_dtype(given.amplitude)
    cotangent = as_array(function, "grad", grad)
    if not (cotangent.dtype.kind == "c" and cotangent.dtype.itemsize <= 16):
        cotangent = cast_operand(as_data(function, "grad", cotangent), real)
    if cotangent.shape != given.amplitude.shape:
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(given.amplitude.shape))
    dense = np.ascontiguousarray(cotangent, np.complex128 if real is F64 else np.complex64)
    shape, kind = given.amplitude.shape, given.amplitude.dtype
    d_amplitude = np.empty(shape, kind if kind.isnative else kind.newbyteorder("="))
    d_frequency, d_positions = np.empty(shape), np.empty(shape[:-1])
    d_phase = None if given.phase is None else np.empty(shape)
    _core.complex_order_vjp(
        function, _pairs(dense, real), *given.rows(), d_amplitude, d_frequency, d_positions, d_phase
    )
    return ComplexOrderGradient(
        d_amplitude,
        unbroadcast(d_frequency, given.frequency.shape, F64),
        unbroadcast(d_positions, given.where.shape, F64),
        None if d_phase is None or given.phase is None else unbroadcast(d_phase, given.phase.shape, F64),
    )
