"""Functions and operators of posenc for HIPS autograd, under their own names.

`posenc.autograd` has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take
the arguments of their namesakes, except `out`. Every array that has a gradient may be traced by autograd.

>>> import autograd.numpy as np
>>> from autograd import grad
>>> import posenc.autograd as pa
>>> x = np.eye(3, dtype=np.float32)[None]  # one head, three positions, three channels
>>> def loss(q, k, slopes):
...     out = pa.attention(q, k, x, bias=pa.alibi(slopes), causal=True)
...     return np.sum(out**2)
>>> d_q, d_k, d_slopes = grad(loss, (0, 1, 2))(x, x, np.array([0.5]))  # one backward call for the three
>>> d_q.dtype, d_slopes.round(3)
(dtype('float32'), array([0.49]))

- A gradient has the dtype of its argument, whatever the dtype of the cotangent: float32 stays float32.
- One call of a ``_vjp`` computes all gradients of a call, however many of its arguments are traced.
- A traced argument without a gradient (``scale``, a mask, a width) is a TypeError.
- Only reverse mode and first derivatives exist. A second derivative and forward mode are a NotImplementedError, so
  `check_grads` needs ``modes=["rev"], order=1``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import posenc
from posenc import _derive
from posenc._core_api.arguments import cast_result

try:
    from autograd.builtins import SequenceBox  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.extend import defvjp_argnums, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.tracer import getval, isbox  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as error:
    raise ImportError('posenc.autograd needs HIPS autograd: pip install "posenc[autograd]"') from error


class Operator(_derive.Operator):
    """A `posenc.Bias` whose arrays may be traced, for `attention` of this module.

    Attributes
    ----------
    bias : Bias
        The operator with its current arrays, for functions that do not trace.
    """

    __slots__ = ("bias",)
    bias: posenc.Bias

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        super().__init__(name, arguments)
        self.bias = _derive.make(name, {argument: _untraced(one) for argument, one in arguments.items()})
        for argument, one in arguments.items():
            if isbox(one) and argument not in getattr(self.bias.arrays, "_fields", ()):
                _derive.fail_without_gradient(name, (argument,))

    def __repr__(self) -> str:
        return f"<posenc.autograd of {self.bias!r}>"

    def matrix(self, *args: Any, **options: Any) -> Any:
        """Return `PositionBias.matrix`, traced; float32 without ``dtype``."""
        return _matrix(self, *args, **options)

    def logits(self, *args: Any, **options: Any) -> Any:
        """Return `ContentBias.logits`, traced; q and k may be traced too."""
        return _logits(self, *args, **options)


def _untraced(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_untraced, value))
    return value.bias if isinstance(value, Operator) else getval(value)


def _is_array(value: Any) -> bool:
    return isbox(value) or isinstance(value, np.ndarray | posenc.Bias)


def _convert(value: Any, path: _derive.Path) -> Any:
    return tuple(value[i] for i in range(len(value))) if isinstance(value, SequenceBox) else value


class _Node(_derive.Call):
    """A call that is one node of the tape, and the results of its forward call."""

    def __init__(self, returns_all: bool) -> None:
        super().__init__(_is_array, _convert)
        self.returns_all = returns_all
        self.results: tuple[Any, ...] = ()

    def arguments(self, arrays: Any) -> dict[str, Any]:
        return _derive.arguments(self.text, arrays, self.integers, self.numbers)


def _check_first_order(name: str, *values: Any) -> None:
    if any(map(isbox, values)):
        raise NotImplementedError(f"{name}: its gradient is traced; expected first derivatives only")


def _as_autograd_keeps(value: Any, gradient: Any) -> Any:
    """Return a gradient in the shape and dtype of `value`, as a scalar if `value` is a Python float."""
    array = np.asarray(value)
    if gradient is None:  # an array that nothing reads
        result = np.zeros_like(array)
    else:
        result = np.asarray(gradient)
        if array.dtype.kind not in "iu":
            result = cast_result(result, array.dtype)
    return result if type(value) is np.ndarray else result[()]


def _traced(function: _derive.Function) -> Callable[..., Any]:
    """Return a function that adds one node to the tape, whatever the number of its traced arrays."""
    name = function.name

    def run(call: _Node, *arrays: Any) -> Any:
        call.results = function.forward(call.arguments(arrays))
        return call.results if call.returns_all else call.results[0]

    run.__name__ = run.__qualname__ = name
    node = primitive(run)

    def vjp_maker(argnums: tuple[int, ...], ans: Any, args: tuple[Any, ...], _: Any) -> Callable[..., Any]:
        call, *arrays = args

        def vjp(g: Any) -> tuple[Any, ...]:
            cotangents = g if isinstance(g, tuple) else (g,)
            _check_first_order(name, g, *cotangents, *arrays)
            # autograd's cotangents of complex numbers are conjugates of ours
            cotangents = tuple(np.conj(part) if np.iscomplexobj(part) else part for part in cotangents)
            gradients = function.backward(call.arguments(arrays), call.results, cotangents)
            return tuple(
                _as_autograd_keeps(arrays[number], function.gradient_at(gradients, call.paths[number]))
                for number in (argument - 1 for argument in argnums)
            )

        return vjp

    defvjp_argnums(node, vjp_maker)

    def traced(*args: Any, **options: Any) -> Any:
        arguments = function.bind(args, options)
        call = _Node(function.returns_lse and arguments.pop("return_lse", False))
        for argument, value in arguments.items():
            call.add(argument, (value,) if isinstance(value, Operator) and argument != "self" else value)
        for array, path in zip(call.arrays, call.paths, strict=True):
            if isbox(array) and not function.has_gradient(path):
                _derive.fail_without_gradient(name, path)
        return node(call, *call.arrays)

    traced.__name__ = traced.__qualname__ = name
    traced.__doc__ = f"`posenc.{name}` for arrays that autograd traces; see there."
    traced.__signature__ = function.signature  # type: ignore[attr-defined]
    return traced


def _make_operator(name: str) -> Callable[..., Operator]:
    """Return the twin of a function that returns a `Bias`."""
    maker = _derive.Maker(name)

    def function(*args: Any, **options: Any) -> Operator:
        return Operator(name, maker.bind(args, options))

    signature = inspect.signature(_derive.OPERATORS[name])
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`posenc.{name}` for arrays that autograd traces; returns an `Operator`."
    function.__signature__ = signature.replace(return_annotation=Operator)  # type: ignore[attr-defined]
    return function


_matrix, _logits = _traced(_derive.MATRIX), _traced(_derive.LOGITS)
__all__ = ["Operator", *_derive.FUNCTIONS, *_derive.OPERATORS]
globals().update({name: _traced(function) for name, function in _derive.FUNCTIONS.items()})
globals().update({name: _make_operator(name) for name in _derive.OPERATORS})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
