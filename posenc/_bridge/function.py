"""Functions of posenc with their gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, cast, get_args, get_origin, get_type_hints

import numpy as np

import posenc
from posenc import _core
from posenc._core_api.arguments import Array, Dtype
from posenc._neighbours import ARGUMENTS

from .call import Path
from .operator import Arguments, sum_of

Outline = tuple[tuple[int, ...], Dtype]
"""Shape and dtype of a result."""


class Binder:
    """The parameters of a function, to which it binds the arguments of a call.

    Attributes
    ----------
    name : str
        Name of the function, for errors.
    signature : Signature
        Signature of the function, without `out`.
    """

    def __init__(self, name: str, signature: inspect.Signature, returned: object = inspect.Signature.empty) -> None:
        parameters = [p for p in signature.parameters.values() if p.name != "out"]
        self.name = name
        self.signature = signature.replace(parameters=parameters, return_annotation=returned)
        self._names = [p.name for p in parameters]
        self._positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._required = [p.name for p in parameters if p.default is p.empty]

    def bind(self, args: Sequence[object], options: Arguments) -> Arguments:
        """Return the arguments of a call by name, in a third of the time of `inspect.Signature.bind`."""
        if len(args) > len(self._positional):
            most = len(self._positional)
            raise TypeError(f"{self.name}: takes {most} positional arguments but {len(args)} were given")
        found = dict(zip(self._positional, args))  # noqa: B905 - torch.compile knows no strict
        for argument, value in options.items():
            if argument not in self._names:
                expected = f"; expected {ARGUMENTS[argument]}" if argument in ARGUMENTS else ""
                raise TypeError(f"{self.name}: got an unexpected keyword argument {argument!r}{expected}")
            if argument in found:
                raise TypeError(f"{self.name}: multiple values for argument {argument!r}")
            found[argument] = value
        for argument in self._required:
            if argument not in found:
                raise TypeError(f"{self.name}: missing a required argument: {argument!r}")
        return found

    def document(self, twin: Callable[..., object], doc: str) -> Callable[..., object]:
        """Return a twin of the function, with the name and the signature of the function."""
        twin.__name__ = twin.__qualname__ = self.name
        twin.__doc__ = doc
        twin.__signature__ = self.signature  # type: ignore[attr-defined]
        return twin


Backward = Callable[[Arguments, Sequence[Array], Sequence[Array]], NamedTuple]
"""A function of the arguments of a call, its results and their cotangents, which returns the gradients."""


class Function(Binder):
    """A differentiable function of posenc.

    Attributes
    ----------
    returns_lse : bool
        True if `forward` returns an output and its lse, as `attention` does.
    backward : callable
        The gradients of a call by name, for the cotangents of the first results or of all.
    """

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        forward: Callable[..., Any],
        backward: Backward,
        gradient_types: tuple[type[NamedTuple], ...],
        returns_lse: bool = False,
    ) -> None:
        super().__init__(name, signature)
        self._forward, self.backward = forward, backward
        self._gradient_types, self.returns_lse = gradient_types, returns_lse

    def forward(self, arguments: Arguments) -> tuple[Array, ...]:
        """Return all results of a call."""
        results = self._forward(**arguments)
        return results if self.returns_lse else (results,)

    def outlines(self, arguments: Arguments) -> list[Outline]:
        """Return the shapes and dtypes of the results of a call, which checks its arguments and runs no kernel.

        The call does not call functions of the user: these may call posenc themselves, and need the results.
        """
        arguments = {name: _without_functions(value) for name, value in arguments.items()}
        _core.hold_kernels()
        try:
            with np.errstate(all="ignore"):  # results are whatever the memory holds
                return [(np.shape(result), np.asarray(result).dtype) for result in self.forward(arguments)]
        finally:
            _core.release_kernels()

    def has_gradient(self, path: Path) -> bool:
        """Return whether the array at `path` may have a gradient; of several kinds of gradients, in any of them."""
        if len(path) == 1 and path[0] in self._gradient_types[0]._fields:
            return True
        return any(self._path_of_gradient(kind._fields, path) is not None for kind in self._gradient_types)

    def gradient_at(self, gradients: NamedTuple, path: Path) -> Array | None:
        """Return the gradient of the array at `path`; None if nothing reads the array.

        Raises
        ------
        TypeError
            If these gradients have none for it.
        """
        inside = self._path_of_gradient(gradients._fields, path)
        if inside is None:
            fail_without_gradient(self.name, path)
        item: Any = gradients
        for step in inside:
            item = getattr(item, step) if isinstance(step, str) else item[step]
        if item is None and path == ("scale",):  # a number, beside operators on queries and keys
            fail_without_gradient(self.name, path)
        return cast("Array | None", item)

    def _path_of_gradient(self, fields: tuple[str, ...], path: Path) -> Path | None:
        """Return the path, inside a gradient, of the gradient of the argument at `path`; None if there is none.

        A NamedTuple may have fields that are no parameters: cos and sin of `rope`. They belong to the members of a
        pair.
        """
        name, *rest = path
        if name in fields:
            is_array = bool(rest) and (isinstance(rest[-1], str) or rest[-2:-1] == ["arrays"])
            return path if not rest or is_array else None
        members = [field for field in fields if field not in self._names]
        if len(rest) == 1 and isinstance(rest[0], int) and rest[0] < len(members):
            return (members[rest[0]],)
        return None


def fail_without_gradient(name: str, path: Path) -> NoReturn:
    """Raise the error of an array that has no gradient but needs one."""
    raise TypeError(f"{name}: {path[0]} has a traced value; expected one that is not, because it has no gradient")


def _without_functions(value: object) -> object:
    """Return an argument without functions of the user: `distance_function` of zeros, `pair_function` of None."""
    if isinstance(value, Sequence) and any(isinstance(one, posenc.Bias) for one in value):
        return [_without_functions(one) for one in value]
    if isinstance(value, posenc.Bias):
        return sum_of(tuple(map(_without_function, value.parts)))
    return value


def _without_function(part: posenc.Bias) -> posenc.Bias:
    """Do this for an operator that is no sum, and for the operators inside it."""
    if part.nested:
        return replace(part, arrays=part.arrays._make(map(_without_functions, part.arrays)))
    if "function" in part.options:
        zeros = _zeros_of(part.options["heads"]) if part.name == "distance_function" else None
        return replace(part, options={**part.options, "function": zeros})
    return part


def _zeros_of(heads: int | None) -> Callable[..., Array]:
    return lambda rel, *arrays: np.zeros(rel.shape if heads is None else (heads, *rel.shape))


def stand_in(shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Return an array of ones, or of zeros for row numbers, for `Function.outlines`.

    It occupies the memory of its last axis only. The numbers of that axis are contiguous, or `_core` would copy the
    array before it checks q, k and v: 20 ms for each with 10^5 tokens of 8 heads with D = 64.
    """
    return np.broadcast_to(np.full(shape[-1:], dtype.kind not in "biu").astype(dtype), shape)


def _function(name: str) -> Function:
    """Return a function that has a ``_vjp``."""
    plain, vjp = getattr(posenc, name), getattr(posenc, f"{name}_vjp")
    returned = get_type_hints(vjp)["return"]
    signature, taken = inspect.signature(plain), inspect.signature(vjp).parameters
    gradient_types = get_args(returned) or (returned,)

    def options_of(arguments: Arguments) -> Arguments:
        return {a: v for a, v in arguments.items() if a in taken}  # no dtype

    def backward(arguments: Arguments, _: Sequence[Array], cotangents: Sequence[Array]) -> NamedTuple:
        gradients: NamedTuple = vjp(*cotangents, **options_of(arguments))
        return gradients

    def forward_with_lse(**arguments: object) -> tuple[Array, Array]:
        results: tuple[Array, Array] = plain(**{**arguments, "return_lse": True})
        return results

    def backward_with_lse(arguments: Arguments, results: Sequence[Array], cotangents: Sequence[Array]) -> NamedTuple:
        (out, lse), (grad, grad_lse) = results, (*cotangents, None)[:2]
        gradients: NamedTuple = vjp(grad, **options_of(arguments), out=out, lse=lse, grad_lse=grad_lse)
        return gradients

    if "lse" in taken:
        return Function(name, signature, forward_with_lse, backward_with_lse, gradient_types, returns_lse=True)
    return Function(name, signature, plain, backward, gradient_types)


class _MatrixGradient(NamedTuple):
    self: NamedTuple


class _LogitsGradient(NamedTuple):
    self: object
    q: Array
    k: Array


def _matrix_vjp(arguments: Arguments, _: Sequence[Array], cotangents: Sequence[Array]) -> NamedTuple:
    options = {a: v for a, v in arguments.items() if a not in ("self", "dtype")}
    return _MatrixGradient(arguments["self"].vjp(*cotangents, **options))


def _logits_vjp(arguments: Arguments, _: Sequence[Array], cotangents: Sequence[Array]) -> NamedTuple:
    options = {a: v for a, v in arguments.items() if a != "self"}
    gradients = arguments["self"].logits_vjp(*cotangents, **options)
    return _LogitsGradient(getattr(gradients, "parts", gradients), gradients.q, gradients.k)


def _matrix(self: posenc.PositionBias, **options: Any) -> Array:
    return self.matrix(**options)


def _logits(self: posenc.ContentBias, **options: Any) -> Array:
    return self.logits(**options)


def _returns_bias(function: object) -> bool:
    if not inspect.isfunction(function):
        return False
    returned = get_type_hints(function).get("return")
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and issubclass(kind, posenc.Bias)


FUNCTIONS = {name: _function(name) for name in vars(posenc) if hasattr(posenc, f"{name}_vjp")}
"""Every function that has a ``_vjp``, by name."""
OPERATORS = {name: function for name, function in vars(posenc).items() if _returns_bias(function)}
"""Every function that returns a `Bias`, by name."""
MATRIX = Function("matrix", inspect.signature(posenc.PositionBias.matrix), _matrix, _matrix_vjp, (_MatrixGradient,))
LOGITS = Function("logits", inspect.signature(posenc.ContentBias.logits), _logits, _logits_vjp, (_LogitsGradient,))
