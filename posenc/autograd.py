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
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

import numpy as np

import posenc
from posenc._core_api.arguments import cast_result

try:
    from autograd.builtins import SequenceBox  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.extend import defvjp_argnums, primitive  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from autograd.tracer import getval, isbox  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as error:
    raise ImportError('posenc.autograd needs HIPS autograd: pip install "posenc[autograd]"') from error

Path = tuple[str | int, ...]
"""Path of an array inside the arguments of a call: the name of an argument, then indices and names inside it."""


class _Placeholder:
    """A traced array of the arguments, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Call:
    """Arguments with placeholders for traced arrays, the paths of these arrays, and what the forward call saved.

    A call is one node of autograd's tape, whatever the number of its traced arrays.
    """

    __slots__ = ("arguments", "paths", "saved")

    def __init__(self, arguments: dict[str, Any], paths: list[Path]) -> None:
        self.arguments, self.paths = arguments, paths
        self.saved: Any = None

    def with_arrays(self, arrays: tuple[Any, ...]) -> dict[str, Any]:
        """Return the arguments with arrays in place of the placeholders."""
        return {name: _fill(value, arrays) for name, value in self.arguments.items()}


def _extract(value: Any, path: Path, paths: list[Path], arrays: list[Any]) -> Any:
    """Return `value` with placeholders; append its traced arrays to `arrays` and their paths to `paths`."""
    if isinstance(value, SequenceBox):
        value = tuple(value[i] for i in range(len(value)))
    if isbox(value):
        paths.append(path)
        arrays.append(value)
        return _Placeholder(len(arrays) - 1)
    if isinstance(value, Operator):
        inner = {name: _extract(one, (*path, name), paths, arrays) for name, one in value._arguments.items()}
        return Operator(value.bias, value._make, inner)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # RopeFrequencies: its first field has the gradient
        first, *rest = value
        others = (_extract(one, (*path, 1 + i), paths, arrays) for i, one in enumerate(rest))
        return type(value)(_extract(first, path, paths, arrays), *others)
    if isinstance(value, tuple | list):
        return type(value)([_extract(one, (*path, i), paths, arrays) for i, one in enumerate(value)])
    return value


def _fill(value: Any, arrays: tuple[Any, ...]) -> Any:
    """Return `value` with arrays in place of the placeholders."""
    if isinstance(value, _Placeholder):
        return arrays[value.number]
    if isinstance(value, Operator):
        return value._make(**{name: _fill(one, arrays) for name, one in value._arguments.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_fill(one, arrays) for one in value))
    if isinstance(value, tuple | list):
        return type(value)([_fill(one, arrays) for one in value])
    return value


class Operator:
    """A `posenc.Bias` whose arrays may be traced, for `attention` of this module.

    Attributes
    ----------
    bias : Bias
        The operator with its current arrays, for functions that do not trace.
    """

    __slots__ = ("_arguments", "_make", "bias")

    def __init__(self, bias: posenc.Bias, make: Callable[..., posenc.Bias], arguments: dict[str, Any]) -> None:
        self.bias, self._make, self._arguments = bias, make, arguments

    def __repr__(self) -> str:
        return f"<posenc.autograd of {self.bias!r}>"

    def matrix(self, *args: Any, **options: Any) -> Any:
        """Return `PositionBias.matrix`, traced; float32 without ``dtype``."""
        return _matrix(self, *args, **options)

    def logits(self, *args: Any, **options: Any) -> Any:
        """Return `ContentBias.logits`, traced; q and k may be traced too."""
        return _logits(self, *args, **options)


def _fail_without_gradient(name: str, path: Path) -> NoReturn:
    raise TypeError(f"{name}: {path[0]} has a traced value; expected a plain one, because it has no gradient")


def _gradient_path(gradient_types: tuple[Any, ...], parameters: tuple[str, ...], path: Path) -> Path | None:
    """Return the path, inside a gradient, of the gradient of the argument at `path`; None if there is none.

    A NamedTuple may have fields that are no parameters: cos and sin of `rope`. They belong to the members of a pair.
    """
    name, *rest = path
    for gradient_type in gradient_types:
        if name in gradient_type._fields and (not rest or isinstance(rest[-1], str)):
            return path
        members = [field for field in gradient_type._fields if field not in parameters]
        if name in gradient_type._fields or len(rest) != 1:
            continue
        if isinstance(rest[0], int) and rest[0] < len(members):
            return (members[rest[0]],)
    return None


def _follow(gradient: Any, path: Path) -> Any:
    """Return the item of a gradient at `path`."""
    item: Any = gradient
    for step in path:
        item = getattr(item, step) if isinstance(step, str) else item[step]
    return item


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


def _traced(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    signature: inspect.Signature,
    gradient_types: tuple[Any, ...],
) -> Callable[..., Any]:
    """Return a function that adds one node to the tape.

    ``forward(call, arguments)`` returns the result, ``backward(call, arguments, result, cotangents)`` all gradients by
    name.
    """
    parameters = [p for p in signature.parameters.values() if p.name != "out"]
    signature = signature.replace(parameters=parameters, return_annotation=signature.empty)
    names = tuple(signature.parameters)

    def run(call: _Call, *arrays: Any) -> Any:
        return forward(call, call.with_arrays(arrays))

    run.__name__ = run.__qualname__ = name
    node = primitive(run)

    def vjp_maker(argnums: tuple[int, ...], ans: Any, args: tuple[Any, ...], _: Any) -> Callable[..., Any]:
        call, *arrays = args

        def vjp(g: Any) -> tuple[Any, ...]:
            cotangents = g if isinstance(g, tuple) else (g,)
            _check_first_order(name, g, *cotangents, *arrays)
            # autograd's cotangents of complex numbers are conjugates of ours
            cotangents = tuple(np.conj(part) if np.iscomplexobj(part) else part for part in cotangents)
            gradients = backward(call, call.with_arrays(tuple(arrays)), ans, cotangents)
            results = []
            for number in (argument - 1 for argument in argnums):
                path = call.paths[number]
                inside = _gradient_path((type(gradients),), names, path)
                if inside is None:
                    _fail_without_gradient(name, path)
                results.append(_as_autograd_keeps(arrays[number], _follow(gradients, inside)))
            return tuple(results)

        return vjp

    defvjp_argnums(node, vjp_maker)

    def function(*args: Any, **options: Any) -> Any:
        arguments = _bind(name, signature, args, options)
        paths: list[Path] = []
        arrays: list[Any] = []
        plain = {}
        for argument, value in arguments.items():
            several = (value,) if isinstance(value, Operator) and argument != "self" else value
            plain[argument] = _extract(several, (argument,), paths, arrays)
        for path in paths:
            if path[0] != "self" and _gradient_path(gradient_types, names, path) is None:
                _fail_without_gradient(name, path)
        return node(_Call(plain, paths), *arrays)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`posenc.{name}` for arrays that autograd traces; see there."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _bind(name: str, signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    try:
        return dict(signature.bind(*args, **options).arguments)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _make_function(name: str) -> Callable[..., Any]:
    """Return the traced twin of a function that has a ``_vjp``."""
    plain, vjp = getattr(posenc, name), getattr(posenc, f"{name}_vjp")
    returned = get_type_hints(vjp)["return"]
    signature, taken = inspect.signature(plain), inspect.signature(vjp).parameters
    if "lse" in taken:
        return _make_attention(name, plain, vjp, signature, returned)
    return _traced(
        name,
        lambda call, arguments: plain(**arguments),
        lambda call, arguments, ans, g: vjp(*g, **{a: v for a, v in arguments.items() if a in taken}),  # no dtype
        signature,
        get_args(returned) or (returned,),
    )


def _make_attention(
    name: str, plain: Callable[..., Any], vjp: Callable[..., Any], signature: inspect.Signature, gradient_type: Any
) -> Callable[..., Any]:
    """Return the traced twin of attention, whose gradient takes the results of the forward call."""

    def forward(call: _Call, arguments: dict[str, Any]) -> Any:
        returns_lse = arguments.pop("return_lse", False)
        call.saved = plain(**arguments, return_lse=True)
        return call.saved if returns_lse else call.saved[0]

    def backward(call: _Call, arguments: dict[str, Any], ans: Any, g: tuple[Any, ...]) -> Any:
        arguments.pop("return_lse", None)
        out, lse = call.saved
        return vjp(g[0], **arguments, out=out, lse=lse, grad_lse=(*g, None)[1])

    return _traced(name, forward, backward, signature, (gradient_type,))


def _make_operator(name: str) -> Callable[..., Operator]:
    """Return the twin of a function that returns a `Bias`."""
    make = getattr(posenc, name)
    signature = inspect.signature(make)

    def function(*args: Any, **options: Any) -> Operator:
        arguments = _bind(name, signature, args, options)
        plain = {a: one.bias if isinstance(one, Operator) else getval(one) for a, one in arguments.items()}
        bias = make(**plain)
        for argument, one in arguments.items():
            if isbox(one) and argument not in bias.arrays._fields:
                _fail_without_gradient(name, (argument,))
        return Operator(bias, make, arguments)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`posenc.{name}` for arrays that autograd traces; returns an `Operator`."
    function.__signature__ = signature.replace(return_annotation=Operator)  # type: ignore[attr-defined]
    return function


class _MatrixGradient(NamedTuple):
    self: Any


class _LogitsGradient(NamedTuple):
    self: Any
    q: Any
    k: Any


def _matrix_vjp(call: _Call, arguments: dict[str, Any], ans: Any, g: tuple[Any, ...]) -> _MatrixGradient:
    bias = arguments.pop("self")
    arguments.pop("dtype", None)
    return _MatrixGradient(bias.vjp(*g, **arguments))


def _logits_vjp(call: _Call, arguments: dict[str, Any], ans: Any, g: tuple[Any, ...]) -> _LogitsGradient:
    gradients = arguments.pop("self").logits_vjp(*g, **arguments)
    return _LogitsGradient(gradients, gradients.q, gradients.k)


_matrix = _traced(
    "matrix",
    lambda call, arguments: arguments.pop("self").matrix(**arguments),
    _matrix_vjp,
    inspect.signature(posenc.PositionBias.matrix),
    (_MatrixGradient,),
)
_logits = _traced(
    "logits",
    lambda call, arguments: arguments.pop("self").logits(**arguments),
    _logits_vjp,
    inspect.signature(posenc.ContentBias.logits),
    (_LogitsGradient,),
)


def _returns_bias(function: Any) -> bool:
    if not inspect.isfunction(function):
        return False
    returned = get_type_hints(function).get("return")
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and issubclass(kind, posenc.Bias)


_FUNCTIONS = [name for name in vars(posenc) if hasattr(posenc, f"{name}_vjp")]
_OPERATORS = [name for name, function in vars(posenc).items() if _returns_bias(function)]
__all__ = ["Operator", *_FUNCTIONS, *_OPERATORS]
globals().update({name: _make_function(name) for name in _FUNCTIONS})
globals().update({name: _make_operator(name) for name in _OPERATORS})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
