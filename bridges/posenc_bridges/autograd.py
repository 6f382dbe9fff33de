"""Functions and operators of posenc for HIPS autograd, under their own names.

This module has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take the
arguments of their namesakes, except `out`. Every array that has a gradient may be traced by autograd.

>>> import autograd.numpy as np
>>> from autograd import grad
>>> import posenc_bridges.autograd as pa
>>> x = np.eye(3, dtype=np.float32)[None]  # one head, three positions, three channels
>>> def loss(q, k, slopes):
...     out = pa.attention(q, k, x, bias=pa.alibi(slopes), causal=True)
...     return np.sum(out**2)
>>> d_q, d_k, d_slopes = grad(loss, (0, 1, 2))(x, x, np.array([0.5]))  # one backward call for the three
>>> d_q.dtype, d_slopes.round(3)
(dtype('float32'), array([0.49]))

- A gradient has the dtype of its argument, whatever the dtype of the cotangent: float32 stays float32.
- One call of a ``_vjp`` computes all gradients of a call, however many of its arguments are traced.
- A ``distance_function`` without ``vjp`` is differentiated by autograd, so it computes with ``autograd.numpy``.
- A traced argument without a gradient (``scale``, a mask, a width) is a TypeError.
- Only reverse mode and first derivatives exist. A second derivative and forward mode are a NotImplementedError, so
  `check_grads` needs ``modes=["rev"], order=1``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import posenc
from posenc_bridges import _common
from posenc_bridges._common import Arguments, Array, Call, Function, cast_result

try:
    from autograd.builtins import SequenceBox  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.core import make_vjp  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.extend import defvjp_argnums, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.tracer import Box, getval, isbox  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as error:
    raise ImportError("posenc_bridges.autograd needs HIPS autograd: pip install autograd") from error


class Operator(_common.Operator):
    """A `posenc.Bias` whose arrays may be traced, for `attention` of this module.

    Attributes
    ----------
    bias : Bias
        The operator with its current arrays, for functions that do not trace.
    """

    __slots__ = ("bias",)
    bias: posenc.Bias

    def __init__(self, name: str, arguments: Arguments) -> None:
        if name == "distance_function" and arguments.get("vjp") is None:
            arguments = {**arguments, "vjp": partial(_vjp, arguments["function"])}
        super().__init__(name, arguments)
        self.bias = _common.make(name, {argument: _untraced(one) for argument, one in arguments.items()})
        for argument, one in arguments.items():
            if isbox(one) and argument not in getattr(self.bias.arrays, "_fields", ()):
                _common.fail_without_gradient(name, (argument,))

    def __repr__(self) -> str:
        return f"<posenc_bridges.autograd of {self.bias!r}>"


def _vjp(function: Callable[..., Array], grad: Array, rel: Array, *arrays: Array) -> tuple[Array, ...]:
    """Return the gradients of the arrays of a function of distances, which autograd differentiates."""
    gradients: tuple[Array, ...] = make_vjp(lambda given: function(rel, *given), arrays)[0](grad)
    return gradients


def _untraced(value: object) -> object:
    if isinstance(value, (tuple, list)):
        return tuple(map(_untraced, value))
    return value.bias if isinstance(value, Operator) else getval(value)


def _convert(value: object) -> object:
    return tuple(value[i] for i in range(len(value))) if isinstance(value, SequenceBox) else value


def _check_first_order(name: str, *values: object) -> None:
    if any(map(isbox, values)):
        raise NotImplementedError(f"{name}: its gradient is differentiated again; expected first derivatives only")


def _as_autograd_keeps(value: object, gradient: Array | None) -> Array | np.generic:
    """Return a gradient in the shape and dtype of `value`, as a scalar if `value` is a Python float."""
    array = np.asarray(value)
    if gradient is None:  # an array that nothing reads
        result = np.zeros_like(array)
    else:
        result = np.asarray(gradient)
        if array.dtype.kind not in "iu":
            result = cast_result(result, array.dtype)
    return result if type(value) is np.ndarray else result[()]


def _make_twin(function: Function) -> Callable[[Arguments, bool], object]:
    """Return a function that adds one node to the tape, whatever the number of its traced arrays."""
    name = function.name

    def run(call: Call, returns_all: bool, results: list[Array], *arrays: object) -> Array | tuple[Array, ...]:
        results[:] = function.forward(call.arguments(arrays))
        return tuple(results) if returns_all else results[0]

    run.__name__ = run.__qualname__ = name
    node = primitive(run)

    def vjp_maker(argnums: tuple[int, ...], ans: object, args: tuple[Any, ...], _: object) -> Callable[..., object]:
        call, _, results, *arrays = args

        def vjp(g: Array | tuple[Array, ...]) -> tuple[Array | np.generic, ...]:
            cotangents = g if isinstance(g, tuple) else (g,)
            _check_first_order(name, g, *cotangents, *arrays)
            # autograd's cotangents of complex numbers are conjugates of ours
            cotangents = tuple(np.conj(part) if np.iscomplexobj(part) else part for part in cotangents)
            gradients, paths = function.backward(call.arguments(arrays), results, cotangents), list(call.paths())
            return tuple(
                _as_autograd_keeps(arrays[number], function.gradient_at(gradients, paths[number]))
                for number in (argument - 3 for argument in argnums)
            )

        return vjp

    defvjp_argnums(node, vjp_maker)

    def traced(arguments: Arguments, returns_all: bool) -> object:
        call = Call(arguments, _convert, (np.ndarray, Box))
        if any(map(isbox, call.arrays)):
            for array, path in zip(call.arrays, call.paths(), strict=True):
                if isbox(array) and not function.has_gradient(path):
                    _common.fail_without_gradient(name, path)
            call.keep()
        return node(call, returns_all, [], *call.arrays)

    return traced


_common.export(globals(), Operator, _make_twin, "arrays that autograd traces")

if TYPE_CHECKING:
    __all__: list[str]

    def __getattr__(name: str) -> Any: ...
