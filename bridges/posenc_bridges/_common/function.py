"""Functions of posenc with their gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

import posenc
from posenc import interop
from posenc.interop import Arguments, Array, cast_result

from .call import Path


class Binder:
    """The parameters of a function, to which it binds the arguments of a call.

    Attributes
    ----------
    name : str
        Name of the function, for errors.
    signature : Signature
        Signature of the function.
    """

    def __init__(self, name: str, signature: inspect.Signature, returned: object = inspect.Signature.empty) -> None:
        parameters = signature.parameters.values()
        self.name, self.signature = name, signature.replace(return_annotation=returned)
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
                expected = interop.expected_argument(self.name, argument, self._names)
                raise TypeError(f"{self.name}: {argument} is unknown; expected {expected}")
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


class Function(Binder):
    """A differentiable function of posenc, with the places of its gradients.

    Attributes
    ----------
    forward, backward, outlines : callable
        The methods of `posenc.interop.Function`.
    plain : callable
        The function of posenc itself, which returns no lse unless it is told so.
    returns_lse : bool
        True if `forward` returns an output and its lse, as `attention` does.
    """

    def __init__(self, function: interop.Function) -> None:
        super().__init__(function.name, function.signature)
        self.forward, self.backward, self.outlines = function.forward, function.backward, function.outlines
        self.returns_lse = function.returns_lse
        self.plain: Callable[..., Any] = getattr(posenc, function.name, function.forward)
        self._fields = [kind._fields for kind in function.gradient_types]

    def has_gradient(self, path: Path) -> bool:
        """Return whether the array at `path` may have a gradient; of several kinds of gradients, in any of them."""
        return any(self._path_of_gradient(fields, path) is not None for fields in self._fields)

    def gradients_of(
        self,
        arguments: Arguments,
        results: Sequence[Array],
        cotangents: Sequence[Array],
        arrays: Iterable[tuple[Path, Array]],
    ) -> list[Array]:
        """Return the gradients of these arrays, each in the dtype of its array, by one call of `backward`."""
        gradients, found = self.backward(arguments, results, cotangents), []
        for path, array in arrays:
            one = self.gradient_at(gradients, path)
            found.append(np.zeros_like(array) if one is None else cast_result(np.asarray(one), array.dtype))
        return found

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
        """Return the path, inside a gradient, of the gradient of the argument at `path`; None if there is none."""
        name, *rest = path
        is_array = bool(rest) and (isinstance(rest[-1], str) or rest[-2:-1] == ["arrays"])
        return path if name in fields and (not rest or is_array) else None


def fail_without_gradient(name: str, path: Path) -> NoReturn:
    """Raise the error of an array that has no gradient but needs one."""
    raise TypeError(f"{name}: {path[0]} has a traced value; expected one that is not, because it has no gradient")


def stand_in(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of ones, or of zeros for row numbers, for `Function.outlines`.

    It occupies the memory of its last axis only. The numbers of that axis are contiguous, or `_core` would copy the
    array before it checks q, k and v: 20 ms for each with 10^5 tokens of 8 heads with D = 64.
    """
    return np.broadcast_to(np.full(shape[-1:], dtype.kind not in "biu").astype(dtype), shape)


FUNCTIONS = {name: Function(function) for name, function in interop.FUNCTIONS.items()}
"""Every function that has a ``_vjp``, by name."""
MATRIX, LOGITS = Function(interop.MATRIX), Function(interop.LOGITS)
