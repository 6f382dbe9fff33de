"""What a bridge to another library needs beyond the public functions: gradients in one form, and operators as data.

>>> import numpy as np
>>> import posenc
>>> from posenc import interop
>>> rope = interop.FUNCTIONS["rope"]
>>> arguments = {"x": np.ones((3, 2)), "positions": 3, "frequencies": [1.0], "layout": "half"}
>>> rope.outlines(arguments)  # shapes and dtypes of the results; no kernel runs
[((3, 2), dtype('float64'))]
>>> results = rope.forward(arguments)
>>> rope.backward(arguments, results, [np.ones((3, 2))]).x.shape
(3, 2)
>>> (call,) = interop.calls_of(posenc.alibi([0.5]))
>>> call
OperatorCall(function='alibi', arguments={'slopes': array([0.5])}, positions=(None, None))
>>> interop.operator_of([call]).heads
1
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

import posenc

from . import _core
from ._core_api.convert import result as cast_result
from ._core_api.door import door
from ._core_api.foreign import expected_argument as expected_argument
from .bias import operator
from .runtime import follow_threads

__all__ = [
    "FUNCTIONS", "LOGITS", "MATRIX", "OPERATORS", "Function", "OperatorCall", "axes_of", "calls_of", "cast_result",
    "door", "expected_argument", "follow_threads", "operator_of", "rehearse",
]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
Arguments: TypeAlias = dict[str, Any]
"""Arguments of a function of posenc by name."""
Outline: TypeAlias = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of a result."""


class Function:
    """A differentiable function of posenc.

    Attributes
    ----------
    name : str
        Name of the function.
    signature : Signature
        Its signature, without ``out``.
    gradient_types : tuple of type
        The classes of NamedTuple that `backward` may return.
    returns_lse : bool
        True if `forward` returns an output and its log-sum-exps, as `attention` does.
    """

    def __init__(self, name: str, plain: Callable[..., Any], vjp: Callable[..., Any]) -> None:
        returned = get_type_hints(vjp)["return"]
        signature = inspect.signature(plain)
        self.name = name
        self.signature = signature.replace(parameters=[p for p in signature.parameters.values() if p.name != "out"])
        self.gradient_types: tuple[type[Any], ...] = get_args(returned) or (returned,)
        self._plain, self._vjp, self._taken = plain, vjp, inspect.signature(vjp).parameters
        self.returns_lse = "lse" in self._taken

    def forward(self, arguments: Arguments) -> tuple[Array, ...]:
        """Return all results of a call."""
        if self.returns_lse:
            out, lse = self._plain(**{**arguments, "return_lse": True})
            return out, lse
        if "self" in arguments:  # the method of the operator's own class
            return (getattr(arguments["self"], self.name)(**{k: v for k, v in arguments.items() if k != "self"}),)
        return (self._plain(**arguments),)

    def backward(self, arguments: Arguments, results: Sequence[Array], cotangents: Sequence[Array]) -> Any:
        """Return the gradients of a call by name, for the cotangents of the first results or of all."""
        options = {name: value for name, value in arguments.items() if name in self._taken}  # no dtype
        if self.returns_lse:
            options["grad_lse"] = cotangents[1] if len(cotangents) > 1 else None
            options["out"], options["lse"] = results
        return self._vjp(*cotangents[: 1 if self.returns_lse else None], **options)

    def outlines(self, arguments: Arguments) -> list[Outline]:
        """Return the shapes and dtypes of the results of a call, which checks its arguments and runs no kernel.

        The call does not call functions of the user: these may call posenc themselves, and need the results.
        """
        results = rehearse(lambda **given: self.forward(given), arguments)
        return [(np.shape(result), np.asarray(result).dtype) for result in results]


def rehearse(function: Callable[..., Any], arguments: Arguments) -> Any:
    """Return what a function of posenc returns, in shape and dtype, but run no kernel: the numbers mean nothing.

    The call checks its arguments before it allocates results, so a MemoryError says that they passed.
    """
    arguments = {name: _without_functions(value) for name, value in arguments.items()}
    _core.begin_rehearsal()
    try:
        with np.errstate(all="ignore"):  # results are whatever the memory holds
            return function(**arguments)
    finally:
        _core.end_rehearsal()


def axes_of(bias: posenc.Bias) -> tuple[str, ...]:
    """Return the axes of each array of an operator that is no sum, one letter each, as its row in csrc/ops.def.

    The letters h, n and m are heads, queries and keys; l has a number for each distance, from the first key - the last
    query on. Other axes are whole in every call, and axes before the named ones are batches.

    >>> axes_of(posenc.dense(np.ones((2, 5, 5)))), axes_of(posenc.toeplitz(np.ones((2, 9))))
    (('hnm',), ('hl',))
    """
    letters, fields = operator.read_row(bias.name).axes, bias.arrays._fields
    if len(letters) == len(fields) == 1:  # the operand may be named otherwise than the array
        return tuple(letters.values())
    return tuple(letters.get(name, "") for name in fields)


class OperatorCall(NamedTuple):
    """The call of a function that makes an operator which is no sum."""

    function: str
    arguments: Arguments
    positions: tuple[Array | None, Array | None]
    """Positions of queries and of keys that `Bias.at` gave the operator; None means those of the call."""


def calls_of(bias: posenc.Bias) -> tuple[OperatorCall, ...]:
    """Return an operator as data, one call for each part of a sum."""
    return tuple(
        OperatorCall(part.name, {**part.arrays._asdict(), **part.options}, part.own_positions) for part in bias.parts
    )


def operator_of(calls: Iterable[OperatorCall]) -> posenc.Bias:
    """Return the operator that `calls_of` describes."""
    parts = []
    for function, arguments, (q_positions, k_positions) in calls:
        bias = OPERATORS[function](**arguments)
        placed = q_positions is not None or k_positions is not None
        parts.append(bias.at(q_positions=q_positions, k_positions=k_positions) if placed else bias)
    return _sum(parts)


def _sum(parts: Sequence[posenc.Bias]) -> posenc.Bias:
    return sum(parts[1:], parts[0])


def _without_functions(value: object) -> object:
    """Return an argument without functions of the user: a `distance_function` of zeros."""
    if isinstance(value, Sequence) and any(isinstance(one, posenc.Bias) for one in value):
        return [_without_functions(one) for one in value]
    return _sum([_without_function(part) for part in value.parts]) if isinstance(value, posenc.Bias) else value


def _without_function(part: posenc.Bias) -> posenc.Bias:
    if "function" not in part.options:
        return part
    heads = () if part.options["heads"] is None else (part.options["heads"],)

    def zeros(rel: Array, *arrays: Array) -> Array:
        return np.zeros((*heads, *rel.shape))

    return replace(part, options={**part.options, "function": zeros})


class MatrixGradient(NamedTuple):
    """Gradient of `PositionBias.matrix`."""

    self: Any


class LogitsGradient(NamedTuple):
    """Gradient of `ContentBias.logits`."""

    self: Any
    q: Array
    k: Array


def _matrix_vjp(
    grad: Array,
    self: posenc.PositionBias,
    n: int,
    m: int | None = None,
    align: Any = None,
    q_positions: Any = None,
    k_positions: Any = None,
) -> MatrixGradient:
    return MatrixGradient(self.matrix_vjp(grad, n, m, align=align, q_positions=q_positions, k_positions=k_positions))


def _logits_vjp(
    grad: Array,
    self: posenc.ContentBias,
    q: Array,
    k: Array,
    q_positions: Any = None,
    k_positions: Any = None,
    scale: float | None = None,
) -> LogitsGradient:
    gradients = self.logits_vjp(grad, q, k, q_positions=q_positions, k_positions=k_positions, scale=scale)
    return LogitsGradient(gradients.bias, gradients.q, gradients.k)


FUNCTIONS = {
    name: Function(name, plain, getattr(posenc, f"{name}_vjp"))
    for name, plain in vars(posenc).items()
    if f"{name}_vjp" in posenc.__all__
}
"""Every function that has a ``_vjp``, by name."""
OPERATORS: dict[str, Callable[..., posenc.Bias]] = {
    name: getattr(posenc, name) for name in operator.SCHEMES if name != operator.SUM.name
}
"""Every function that returns a `Bias`, by name."""
MATRIX = Function("matrix", posenc.PositionBias.matrix, _matrix_vjp)
LOGITS = Function("logits", posenc.ContentBias.logits, _logits_vjp)
"""The methods of the operators; their first argument is ``self``."""
