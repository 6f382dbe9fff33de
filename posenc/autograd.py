"""HIPS autograd through posenc: functions and operators of posenc, under their names, of traced arrays.

`posenc.autograd` has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take
what those of posenc take, `out` excepted; wherever these have a gradient there may be an array that autograd traces.

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

- A gradient has the dtype of its argument, whatever the dtype of the cotangent: float32 is kept.
- All gradients of a call come from one call of its ``_vjp``, however many of its arguments are traced.
- What posenc has no gradient for (``scale``, a mask, a width) cannot be traced: TypeError.
- First derivatives, backwards. The ``_vjp`` functions have no gradients of their own: NotImplementedError from a second
  derivative and from autograd's forward mode, so `check_grads` wants ``modes=["rev"], order=1``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args, get_type_hints

import numpy as np

import posenc

try:
    from autograd.builtins import SequenceBox  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.extend import defvjp_argnums, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.tracer import getval, isbox  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as error:
    raise ImportError('posenc.autograd needs HIPS autograd: pip install "posenc[autograd]"') from error

Path = tuple[str | int, ...]


class _Hole:
    """Where a traced array was: the one of this number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Call:
    """Arguments with a hole for each traced array, where those were, and what the forward leaves for the backward."""

    __slots__ = ("arguments", "paths", "saved")

    def __init__(self, arguments: dict[str, Any], paths: list[Path]) -> None:
        self.arguments, self.paths = arguments, paths
        self.saved: Any = None

    def filled(self, arrays: tuple[Any, ...]) -> dict[str, Any]:
        return {name: _filled(value, arrays) for name, value in self.arguments.items()}


def _opened(value: Any, path: Path, paths: list[Path], arrays: list[Any]) -> Any:
    """`value` with holes; traced arrays are appended to `arrays`, and where they were to `paths`."""
    if isinstance(value, SequenceBox):
        value = tuple(value[i] for i in range(len(value)))
    if isbox(value):
        paths.append(path)
        arrays.append(value)
        return _Hole(len(arrays) - 1)
    if isinstance(value, Operator):
        inner = {name: _opened(one, (*path, name), paths, arrays) for name, one in value._arguments.items()}
        return Operator(value.bias, value._make, inner)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # what a NamedTuple begins with has the gradient
        first, *rest = value
        opened = (_opened(one, (*path, 1 + i), paths, arrays) for i, one in enumerate(rest))
        return type(value)(_opened(first, path, paths, arrays), *opened)
    if isinstance(value, tuple | list):
        return type(value)([_opened(one, (*path, i), paths, arrays) for i, one in enumerate(value)])
    return value


def _filled(value: Any, arrays: tuple[Any, ...]) -> Any:
    if isinstance(value, _Hole):
        return arrays[value.number]
    if isinstance(value, Operator):
        return value._make(**{name: _filled(one, arrays) for name, one in value._arguments.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_filled(one, arrays) for one in value))
    if isinstance(value, tuple | list):
        return type(value)([_filled(one, arrays) for one in value])
    return value


class Operator:
    """A `posenc.Bias` whose arrays may be traced: for `attention` here, or to be looked at by `matrix` and `logits`.

    Attributes
    ----------
    bias : Bias
        The operator as it is now, for functions that do not trace.
    """

    __slots__ = ("_arguments", "_make", "bias")

    def __init__(self, bias: posenc.Bias, make: Callable[..., posenc.Bias], arguments: dict[str, Any]) -> None:
        self.bias, self._make, self._arguments = bias, make, arguments

    def __repr__(self) -> str:
        return f"<posenc.autograd of {self.bias!r}>"

    def matrix(self, *given: Any, **options: Any) -> Any:
        """`Bias.matrix`: float32 without ``dtype``."""
        return _matrix(self, *given, **options)

    def logits(self, *given: Any, **options: Any) -> Any:
        """`Bias.logits`; q and k may be traced too."""
        return _logits(self, *given, **options)


def _without_gradient(name: str, path: Path) -> NoReturn:
    raise TypeError(f"{name}: {path[0]} has a traced value; expected a plain one: it has no gradient")


def _field(kinds: tuple[Any, ...], parameters: tuple[str, ...], path: Path) -> Path | None:
    """Where a gradient has what belongs to the argument at `path`; None if nowhere.

    What `rope` calls cos and sin belongs to the members of a pair: fields that no parameter is called by do, in order.
    """
    name, *rest = path
    for kind in kinds:
        if name in kind._fields and (not rest or isinstance(rest[-1], str)):
            return path
        members = [field for field in kind._fields if field not in parameters]
        if name not in kind._fields and len(rest) == 1 and isinstance(rest[0], int) and rest[0] < len(members):
            return (members[rest[0]],)
    return None


def _first_order(name: str, *values: Any) -> None:
    if any(map(isbox, values)):
        raise NotImplementedError(f"{name}: its gradient is traced; expected first derivatives only")


def _in_dtype_of(value: Any, gradient: Any) -> Any:
    """A gradient as autograd keeps it for `value`: its shape and dtype, and a scalar for a Python float."""
    given = np.asarray(value)
    if gradient is None:  # the array is there, but nothing reads it
        return np.zeros_like(given)[()] if type(value) is not np.ndarray else np.zeros_like(given)
    real = np.asarray(gradient)
    found = real if given.dtype.kind in "iu" else real.astype(given.dtype, copy=False)
    return found if type(value) is np.ndarray else found[()]


def _traced(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    signature: inspect.Signature,
    kinds: tuple[Any, ...],
) -> Callable[..., Any]:
    """A primitive, and the function that hands it the arrays of its arguments.

    ``forward(call, arguments)`` is the result; ``backward(call, arguments, ans, g)`` all gradients, by name.
    """
    parameters = [p for p in signature.parameters.values() if p.name != "out"]
    signature = signature.replace(parameters=parameters, return_annotation=signature.empty)
    names = tuple(signature.parameters)

    def run(call: _Call, *arrays: Any) -> Any:
        return forward(call, call.filled(arrays))

    run.__name__ = run.__qualname__ = name
    node = primitive(run)

    def of_node(argnums: tuple[int, ...], ans: Any, given: tuple[Any, ...], _: Any) -> Callable[..., Any]:
        call, *arrays = given

        def vjp(g: Any) -> tuple[Any, ...]:
            parts = g if isinstance(g, tuple) else (g,)
            _first_order(name, g, *parts, *arrays)
            # autograd's cotangents of complex numbers are conjugates of ours
            parts = tuple(np.conj(part) if np.iscomplexobj(part) else part for part in parts)
            gradients = backward(call, call.filled(tuple(arrays)), ans, parts)
            found = []
            for argument in argnums:
                path = call.paths[argument - 1]
                field = _field((type(gradients),), names, path)
                if field is None:
                    _without_gradient(name, path)
                at = gradients
                for step in field:
                    at = getattr(at, step) if isinstance(step, str) else at[step]
                found.append(_in_dtype_of(arrays[argument - 1], at))
            return tuple(found)

        return vjp

    defvjp_argnums(node, of_node)

    def function(*given: Any, **options: Any) -> Any:
        try:
            arguments = signature.bind(*given, **options).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        paths: list[Path] = []
        arrays: list[Any] = []
        opened = {}
        for argument, value in arguments.items():
            several = (value,) if isinstance(value, Operator) and argument != "self" else value
            opened[argument] = _opened(several, (argument,), paths, arrays)
        for path in paths:
            if path[0] != "self" and _field(kinds, names, path) is None:
                _without_gradient(name, path)
        return node(_Call(opened, paths), *arrays)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`posenc.{name}` of arrays that may be traced; for what it computes and takes, see there."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _function(name: str) -> Callable[..., Any]:
    """A function and its vjp. Attention's also takes what attention returned, which the forward leaves in the call."""
    plain, vjp = getattr(posenc, name), getattr(posenc, f"{name}_vjp")
    kind = get_type_hints(vjp)["return"]
    signature, taken = inspect.signature(plain), inspect.signature(vjp).parameters
    if "lse" not in taken:
        return _traced(
            name,
            lambda call, arguments: plain(**arguments),
            lambda call, arguments, ans, g: vjp(*g, **{a: v for a, v in arguments.items() if a in taken}),  # no dtype
            signature,
            get_args(kind) or (kind,),
        )

    def forward(call: _Call, arguments: dict[str, Any]) -> Any:
        returns_lse = arguments.pop("return_lse", False)
        call.saved = plain(**arguments, return_lse=True)
        return call.saved if returns_lse else call.saved[0]

    def backward(call: _Call, arguments: dict[str, Any], ans: Any, g: tuple[Any, ...]) -> Any:
        arguments.pop("return_lse", None)
        out, lse = call.saved
        return vjp(g[0], **arguments, out=out, lse=lse, grad_lse=(*g, None)[1])

    return _traced(name, forward, backward, signature, (kind,))


def _operator(name: str) -> Callable[..., Operator]:
    make = getattr(posenc, name)
    signature = inspect.signature(make)

    def function(*given: Any, **options: Any) -> Operator:
        try:
            arguments = dict(signature.bind(*given, **options).arguments)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        plain = {a: one.bias if isinstance(one, Operator) else getval(one) for a, one in arguments.items()}
        bias = make(**plain)
        for argument, one in arguments.items():
            if isbox(one) and argument not in bias.arrays._fields:
                _without_gradient(name, (argument,))
        return Operator(bias, make, arguments)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`posenc.{name}` of arrays that may be traced, an `Operator`; see there."
    function.__signature__ = signature.replace(return_annotation=Operator)  # type: ignore[attr-defined]
    return function


class _OfMatrix(NamedTuple):
    self: Any


class _OfLogits(NamedTuple):
    self: Any
    q: Any
    k: Any


def _back_from_matrix(call: _Call, arguments: dict[str, Any], ans: Any, g: tuple[Any, ...]) -> _OfMatrix:
    bias = arguments.pop("self")
    arguments.pop("dtype", None)
    return _OfMatrix(bias.vjp(*g, **arguments))


def _back_from_logits(call: _Call, arguments: dict[str, Any], ans: Any, g: tuple[Any, ...]) -> _OfLogits:
    gradients = arguments.pop("self").logits_vjp(*g, **arguments)
    return _OfLogits(gradients, gradients.q, gradients.k)


_matrix = _traced(
    "matrix",
    lambda call, arguments: arguments.pop("self").matrix(**arguments),
    _back_from_matrix,
    inspect.signature(posenc.Bias.matrix),
    (_OfMatrix,),
)
_logits = _traced(
    "logits",
    lambda call, arguments: arguments.pop("self").logits(**arguments),
    _back_from_logits,
    inspect.signature(posenc.Bias.logits),
    (_OfLogits,),
)


def _returns_bias(function: Any) -> bool:
    return inspect.isfunction(function) and inspect.signature(function).return_annotation in ("Bias", posenc.Bias)


_FUNCTIONS = [name for name in vars(posenc) if hasattr(posenc, f"{name}_vjp")]
_OPERATORS = [name for name, function in vars(posenc).items() if _returns_bias(function)]
__all__ = ["Operator", *_FUNCTIONS, *_OPERATORS]
globals().update({name: _function(name) for name in _FUNCTIONS})
globals().update({name: _operator(name) for name in _OPERATORS})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
