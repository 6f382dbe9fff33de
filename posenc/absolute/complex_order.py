"""Complex-order encodings: the vector of a word rotates in the complex plane as its position grows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Float64
from .._core_api.constants import LARGEST_ANGLE
from .._core_api.door import door, fail
from .frequency import check_plain
from .rotated_pairs import halves, row_blocks


class ComplexOrderGradient(NamedTuple):
    """Gradients of `complex_order`.

    Attributes
    ----------
    amplitude : array (..., N, C)
        In the shape and dtype of the argument.
    frequency : float64 array
        In the shape of the argument.
    positions : float64 array (..., N)
    phase : float64 array or None
        In the shape of the argument; None without a phase.
    """

    amplitude: Array
    frequency: Float64
    positions: Float64
    phase: Float64 | None


class _Operands(NamedTuple):
    """The checked arguments of `complex_order`."""

    amplitude: Array
    frequency: Float64
    positions: Array
    phase: Float64 | None

    def table(self, index: tuple[slice, ...]) -> Array:
        """Return [cos | sin] in float64 for a block of amplitude's rows, with the rows that its angles differ in."""
        coordinates, w = _rows(self.positions[..., None], index).astype(F64), _rows(self.frequency, index)
        frequencies = w[..., None, :]
        if self.phase is not None:
            # w p + phase is the sum of two angles, at the coordinates (p, unit) with the frequencies (w, phase / unit).
            # The kernel bounds the largest coordinate times the largest frequency, so unit is a power of two near p.
            largest = _largest_magnitude(coordinates)
            unit = 2.0 ** (math.frexp(largest)[1] - 1) if largest else 1.0
            coordinates = np.concatenate([coordinates, np.full_like(coordinates, unit)], axis=-1)
            frequencies = np.stack(np.broadcast_arrays(w, _rows(self.phase, index) / unit), axis=-2)
        width = self.amplitude.shape[-1]
        frequencies = np.broadcast_to(frequencies, (*frequencies.shape[:-1], width))
        return _core.rotation_table(
            positions=coordinates, frequencies=frequencies, sine_scale=1, cosine_scale=1, t=2 * width, dtype=F64
        )


def _rows(array: Array, index: tuple[slice, ...]) -> Array:
    """View a block of an array whose axes of length 1 are broadcast, as are those that it lacks."""
    array = array.reshape((1,) * (len(index) + 1 - array.ndim) + array.shape)
    chosen = [slice(None) if length == 1 else block for block, length in zip(index, array.shape, strict=False)]
    return array[tuple(chosen)]


def _largest_magnitude(array: Array) -> float:
    return max(-float(array.min()), float(array.max())) if array.size else 0.0


def _read_operands(
    amplitude: npt.ArrayLike,
    frequency: npt.ArrayLike,
    positions: npt.ArrayLike,
    phase: npt.ArrayLike | None,
    start: int,
) -> _Operands:
    check_plain("frequency", frequency)
    row = (
        "real amplitude(n,c), f64 frequency(n,c) finite following, pos positions(n) counted following, "
        "f64 phase(n,c) optional finite following"
    )
    arrays = {"amplitude": amplitude, "frequency": frequency, "positions": positions, "phase": phase}
    operands = _Operands(*_core.read(row, **arrays, start=start))
    amplitude, frequency, positions, phase = operands
    n = amplitude.shape[-2]
    if positions.shape[-1] != n:
        fail(ValueError, "positions", f"shape {positions.shape}", f"{n} positions on the last axis")
    largest = _largest_magnitude(frequency)
    if largest * _largest_magnitude(positions) > LARGEST_ANGLE:
        fail(ValueError, "frequency", largest, "at most 2**56 radians at the largest position")
    largest = 0.0 if phase is None else _largest_magnitude(phase)
    if 2 * largest > LARGEST_ANGLE:
        fail(ValueError, "phase", largest, "at most 2**55 radians")
    return operands


@door
def complex_order(
    amplitude: npt.ArrayLike,
    frequency: npt.ArrayLike,
    positions: npt.ArrayLike,
    *,
    phase: npt.ArrayLike | None = None,
    start: int = 0,
) -> npt.NDArray[np.complex64 | np.complex128]:
    """Return complex-order encodings of words.

    ``z = amplitude * exp(i (frequency * position + phase))``.

    Parameters
    ----------
    amplitude : array (..., N, C)
        Vectors of the words, with either sign.
    frequency : array that broadcasts to `amplitude`
        Radians per position, in float64: (..., N, C) for each word and dimension, (..., N, 1) for each word, (C,) for
        each dimension.
    positions : int or array (..., N)
        An int n means start .. start+n-1, by default 0 .. n-1. An array has integers or reals up to 2**53 in magnitude.
        Its leading axes broadcast to those of `amplitude`.
    phase : array that broadcasts to `amplitude`, optional
        Radians at position 0; 0 by default.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.

    Returns
    -------
    ndarray (..., N, C) of complex128 where `amplitude` is float64 (or integers), complex64 otherwise

    Raises
    ------
    TypeError
        Complex or boolean arguments, positions that are a bare float.
    ValueError
        Shapes that do not broadcast to `amplitude`, NaN or infinite angles, angles past 2**56 radians, phases
        past 2**55.

    Notes
    -----
    Wang et al. 2020, equation 11. The authors' programs have no phase (except in a variant without positions), share
    frequencies in all three ways, and count positions from 1 or from the end; here positions are explicit. They return
    the real and imaginary parts as two arrays, which are ``z.real`` and ``z.imag`` here. There is no `out`.

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
    operands = _read_operands(amplitude, frequency, positions, phase, start)
    dtype = convert.arithmetic(operands.amplitude)
    out: Array = np.empty(operands.amplitude.shape, np.complex128 if dtype is F64 else np.complex64)
    pairs = out.view(dtype)
    for index in row_blocks(out.shape[:-1], out.shape[-1]):
        cos, sin = halves(operands.table(index))
        _core.complex_order(amplitude=operands.amplitude[index], cos=cos, sin=sin, out=pairs[index])
    return out


@door
def complex_order_vjp(
    grad: npt.ArrayLike,
    amplitude: npt.ArrayLike,
    frequency: npt.ArrayLike,
    positions: npt.ArrayLike,
    *,
    phase: npt.ArrayLike | None = None,
    start: int = 0,
) -> ComplexOrderGradient:
    """Return the gradients of `complex_order`.

    ``dr = cos g.re + sin g.im``, ``da = r (cos g.im - sin g.re)``, ``dw = p da``, ``dp = w da`` for amplitude r,
    angle a, frequency w and position p.

    Parameters
    ----------
    grad : array (..., N, C), complex or real
        Cotangent: its real part pairs with the real part of the result, its imaginary part with the imaginary part, and
        is not conjugated. See `complex_order` for the other arguments.

    Returns
    -------
    ComplexOrderGradient
        ``amplitude`` in its dtype, ``frequency``, ``positions`` and ``phase`` in float64, each in the shape of its
        argument; ``phase`` is None without a phase.

    Raises
    ------
    TypeError, ValueError
        As `complex_order`. Also if `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> g = posenc.complex_order_vjp(np.array([[1j]]), np.array([[2.0]]), [0.5], [0.0])
    >>> g.amplitude, g.frequency, g.positions
    (array([[0.]]), array([0.]), array([1.]))
    """
    operands = _read_operands(amplitude, frequency, positions, phase, start)
    amplitude, frequency, positions, phase = operands
    grad = read.array("grad", grad)
    if not (grad.dtype.kind == "c" and grad.dtype.itemsize <= 16):
        grad = _core.read("f64 grad()", grad=grad)
    if grad.shape != amplitude.shape:
        fail(ValueError, "grad", f"shape {grad.shape}", str(amplitude.shape))
    pairs = np.ascontiguousarray(grad, np.complex128).view(F64)
    d_amplitude = np.empty(amplitude.shape, amplitude.dtype.newbyteorder("="))
    d_frequency, d_positions = np.zeros(frequency.shape), np.zeros(positions.shape)
    d_phase = None if phase is None else np.zeros(phase.shape)
    for index in row_blocks(amplitude.shape[:-1], amplitude.shape[-1]):
        cos, sin = halves(operands.table(index))
        _, d_angle = _core.complex_order_vjp(
            amplitude=amplitude[index], grad=pairs[index], cos=cos, sin=sin, damplitude=d_amplitude[index]
        )
        with convert.without_warnings():
            _add(_rows(d_positions[..., None], index), (_rows(frequency, index) * d_angle).sum(-1, keepdims=True))
            _add(_rows(d_frequency, index), _rows(positions[..., None], index) * d_angle)
        if d_phase is not None:
            _add(_rows(d_phase, index), d_angle)
    return ComplexOrderGradient(d_amplitude, d_frequency, d_positions, d_phase)


def _add(target: Float64, terms: Float64) -> None:
    """Add terms to a target that was broadcast to their shape."""
    target += convert.unbroadcast(terms, target.shape, F64)
