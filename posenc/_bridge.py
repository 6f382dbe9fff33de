"""Functions of posenc with their gradients in one form, for the modules that carry them to other libraries.

`posenc.autograd`, `posenc.torch` and `posenc.jax` are derived from here, and nothing is registered by hand. A `Call`
flattens the arguments of a call to arrays, integers and numbers, and keeps the rest as a hashable spec:

>>> call = Call({"positions": 3, "layout": "half"})
>>> call.spec, call.integers
(('call', ('positions', 'layout'), (1, 'half')), [3])
>>> call.arguments()
{'positions': 3, 'layout': 'half'}

A call takes one of these routes:

===================  ==================================  ===========================================================
module               call                                route
===================  ==================================  ===========================================================
`posenc.autograd`    every call                          a primitive of autograd, which gets the `Call`
`posenc.jax`         no array is traced                  the function of posenc
`posenc.jax`         `jit`, `grad`, `vmap`               a `jax.custom_vjp`, which gets the `Call` as a constant
`posenc.torch`       no gradient, nothing records        the function of posenc
`posenc.torch`       eager, with a gradient              a `torch.autograd.Function`, which gets the `Call`
`posenc.torch`       compile, export, modes, torch.func  a custom operator, which gets the spec as text
===================  ==================================  ===========================================================

A function that the user passes, as to `distance_function`, is part of the spec. So a tape, a graph or a cache of JAX
keeps the function as long as it keeps the call, and this module keeps nothing. The text of a custom operator has a
number in place of the function; `posenc.torch` maps the number to a weak reference.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

import posenc
from posenc import _core
from posenc._core_api.arguments import Array, Dtype, as_bool
from posenc._neighbours import ARGUMENTS

if TYPE_CHECKING:
    from typing_extensions import Self

Path = tuple[str | int, ...]
"""Path of an array inside the arguments of a call: the name of an argument, then indices and names inside it."""
Arguments: TypeAlias = dict[str, Any]
"""Arguments of a function of posenc by name."""
Outline = tuple[tuple[int, ...], Dtype]
"""Shape and dtype of a result."""
T = TypeVar("T")


# ---- functions and gradients ----


class Binder:
    """The parameters of a function, to which it binds the arguments of a call.

    Attributes
    ----------
    name : str
        Name of the function, for errors.
    signature : Signature
        That of the function, without `out`.
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
        True if the results are those of `attention`: an output and its lse.
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
        return _sum(tuple(map(_without_function, value.parts)))
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


# ---- descriptions of operators ----


class Operator:
    """Call of a function that returns a `Bias`, with arguments that another library traces.

    Attributes
    ----------
    name : str
        Name of the function, ``"at"`` for positions of its own, or ``"sum"``.
    arguments : dict
        Its arguments by name.
    """

    __slots__ = ("arguments", "name")
    _matrix: Callable[..., object]
    _logits: Callable[..., object]
    """The twins of `MATRIX` and `LOGITS` in the module of a derived class."""

    def __init__(self, name: str, arguments: Arguments) -> None:
        self.name, self.arguments = name, arguments

    def matrix(self, *args: object, **options: object) -> Any:
        """Return `PositionBias.matrix` as the functions of the module return arrays; float32 without ``dtype``."""
        return self._matrix(*args, **options)

    def logits(self, *args: object, **options: object) -> Any:
        """Return `ContentBias.logits` as the other functions of the module return arrays."""
        return self._logits(*args, **options)

    def at(self, *, q_positions: object = None, k_positions: object = None) -> Self:
        """Return `Bias.at`: the operator at positions of its own, which have no gradient."""
        own = {"q_positions": q_positions, "k_positions": k_positions}
        if self.name == "sum":  # so that the parts of a sum are never sums
            parts = tuple(part if _has_own_positions(part) else part.at(**own) for part in self.arguments["parts"])
            return type(self)("sum", {"parts": parts})
        return type(self)("at", {"self": self, **own})

    def __add__(self, other: object) -> Self:
        if not isinstance(other, Operator | posenc.Bias):
            return NotImplemented
        return type(self)("sum", {"parts": (*_parts(self), *_parts(other))})

    def __radd__(self, other: object) -> Self:
        if type(other) is int and other == 0:  # sum() starts with 0
            return self
        if not isinstance(other, posenc.Bias):
            return NotImplemented
        return type(self)("sum", {"parts": (*_parts(other), *_parts(self))})

    def _described(self) -> str:
        shapes = (f"{name} {getattr(one, 'shape', one)}" for name, one in self.arguments.items())
        return f"{self.name}: {', '.join(shapes)}"


def _parts(operator: Operator | posenc.Bias) -> tuple[Operator | posenc.Bias, ...]:
    """Return the operators of a sum; of another operator, itself."""
    if not isinstance(operator, Operator):
        return operator.parts
    parts: tuple[Operator | posenc.Bias, ...] = operator.arguments.get("parts", (operator,))
    return parts


def _has_own_positions(operator: Operator | posenc.Bias) -> bool:
    if isinstance(operator, Operator):
        return operator.name == "at"
    return any(own is not None for own in operator.own_positions)


def call_of(bias: posenc.Bias) -> Operator:
    """Return the call that makes a `Bias`."""
    if len(bias.parts) > 1:
        return Operator("sum", {"parts": bias.parts})
    made = Operator(bias.name, {**bias.arrays._asdict(), **bias.options})
    q_positions, k_positions = bias.own_positions
    if q_positions is None and k_positions is None:
        return made
    return Operator("at", {"self": made, "q_positions": q_positions, "k_positions": k_positions})


def _at(self: posenc.Bias, **positions: npt.ArrayLike | None) -> posenc.Bias:
    return self.at(**positions)


def _sum(parts: tuple[posenc.Bias, ...]) -> posenc.Bias:
    return sum(parts[1:], parts[0])


def make(name: str, arguments: Arguments) -> Any:
    """Return the `Bias` that an `Operator` describes, from plain arguments, or another object of posenc."""
    maker = _METHODS[name] if name in _METHODS else getattr(posenc, name)
    return maker(**arguments)


_METHODS: dict[str, Callable[..., posenc.Bias]] = {"at": _at, "sum": _sum}


# ---- calls as arrays, numbers and a spec ----


ARRAY, INTEGER, NUMBER = range(3)
"""Leaves: they stand in a spec for the next item of one of the lists of a `Call`."""
Spec: TypeAlias = "Node | int | str | Callable[..., object] | None"
"""A node, a leaf, or a constant: None, a flag, a text or a function of the user."""
Node: TypeAlias = tuple[str, tuple[str, ...], tuple[Spec, ...]]
"""(kind, names of the arguments, arguments) of a call inside the arguments of a call, or of all arguments together.

The kind is the name of a function or class of posenc, or "call". That of a tuple or list is "tuple" or "list", and
there are no names.
"""
_FIELDS = {
    kind.__name__: tuple(inspect.signature(kind).parameters) for kind in (posenc.RopeFrequencies, posenc.Quantized)
}
"""Classes of posenc whose values are arguments, and the names of their fields."""
_WITH_FIELDS = (posenc.RopeFrequencies, posenc.Quantized)


def walk(value: object, leaf: Callable[[object], T], node: Callable[[str, Sequence[str], list[T]], T]) -> T:
    """Return ``leaf(value)``, or ``node(kind, names, values)`` of a value that contains others, from the inside out."""
    if isinstance(value, Operator):
        given = value.arguments
        return node(value.name, tuple(given), [walk(one, leaf, node) for one in given.values()])
    if isinstance(value, (tuple, list)) and not isinstance(value, _WITH_FIELDS):
        kind = "list" if isinstance(value, list) else "tuple"
        return node(kind, (), [walk(one, leaf, node) for one in value])
    return leaf(value)


def make_node(kind: str, names: Sequence[str], values: list[object]) -> object:
    """Return the object that a node describes."""
    if names:
        return make(kind, dict(zip(names, values, strict=True)))
    return values if kind == "list" else tuple(values)


def _keep_node(kind: str, names: Sequence[str], values: list[Spec]) -> Node:
    return kind, tuple(names), tuple(values)


class Call:
    """Arguments of a call, flattened.

    Attributes
    ----------
    spec : Node
        The arguments, with a leaf in place of each array, integer and number.
    arrays, integers, numbers : list
        These items, in their order. An array is anything that no other list and no spec can hold.
    """

    def __init__(
        self,
        arguments: Arguments,
        convert: Callable[[object], object] | None = None,
        types: tuple[type, ...] = (),
        symbols: tuple[type, ...] = (),
    ) -> None:
        """Flatten the arguments, after `convert` has replaced values.

        An instance of `types` is an array then, and one of `symbols` an integer.
        """
        self.arrays: list[Any] = []
        self.integers: list[int] = []
        self.numbers: list[float] = []
        self._convert, self._types, self._integers = convert, types, (int, *symbols)
        values: list[Spec] = []
        for one in arguments.values():
            if isinstance(one, types) and getattr(one, "ndim", False):  # most arguments, in less time
                self.arrays.append(one)
                values.append(ARRAY)
            else:
                values.append(walk(one, self._flatten, _keep_node))
        self.spec: Node = "call", tuple(arguments), tuple(values)

    def _flatten(self, value: object) -> Spec:
        if self._convert is not None:
            value = self._convert(value)
        if isinstance(value, self._types):
            self.arrays.append(value)
            return ARRAY
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, self._integers):
            self.integers.append(cast("int", value))
            return INTEGER
        if isinstance(value, float):
            self.numbers.append(value)
            return NUMBER
        if isinstance(value, _WITH_FIELDS):
            name = type(value).__name__
            value = Operator(name, {field: getattr(value, field) for field in _FIELDS[name]})
        if isinstance(value, (Operator, tuple)):  # of `convert`
            return walk(value, self._flatten, _keep_node)
        if callable(value) and not isinstance(value, type):
            return value
        self.arrays.append(value)
        return ARRAY

    def paths(self) -> Iterator[Path]:
        """Yield the path of each array."""
        return paths(self.spec)

    def arguments(self, arrays: Iterable[object] | None = None) -> Arguments:
        """Return the arguments, with other arrays."""
        return arguments(self.spec, self.arrays if arrays is None else arrays, self.integers, self.numbers)


def paths(node: Node, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each array of a spec, which is also the path of its gradient."""
    kind, names, values = node
    for number, value in enumerate(values):
        if isinstance(value, tuple):
            yield from paths(value, _path_inside(kind, names, path, number))
        elif type(value) is int and value == ARRAY:
            yield (names[number],) if kind == "call" else _path_inside(kind, names, path, number)


def _path_inside(kind: str, names: tuple[str, ...], path: Path, number: int) -> Path:
    if not names:
        return (*path, number)
    if kind == "sum" or (kind, names[number]) == ("at", "self"):
        return path
    if kind in _FIELDS:  # the first field of RopeFrequencies has the gradient of the argument
        return path if kind == "RopeFrequencies" and number == 0 else (*path, number)
    return (*path, names[number], 0) if kind == "at" else (*path, names[number])


def arguments(
    spec: Node,
    arrays: Iterable[object],
    integers: Iterable[int],
    numbers: Iterable[float],
    node: Callable[[str, Sequence[str], list[object]], object] = make_node,
) -> Arguments:
    """Return the arguments of a spec with these items; `node` returns the objects that nodes describe."""
    items = iter(arrays), iter(integers), iter(numbers)

    def build(value: object) -> object:
        if type(value) is int:
            return next(items[value])
        if type(value) is not tuple:
            return value
        kind, names, values = value
        return node(kind, names, [build(one) for one in values])

    _, names, values = spec
    return {  # most arguments are leaves
        name: next(items[value]) if type(value) is int else build(value)
        for name, value in zip(names, values, strict=True)
    }


# ---- twins ----


def export(
    namespace: dict[str, object],
    operator: type[Operator],
    make_twin: Callable[[Function], Callable[[Arguments, bool], object]],
    arrays: str,
    prepare: Callable[[str, Arguments], Arguments] = lambda name, arguments: arguments,
) -> None:
    """Add the twins of all functions and operators to the namespace of a module.

    `make_twin` returns a function of (arguments of a call, whether all results are wanted). `prepare` may replace
    arguments of the function that makes an operator.
    """

    def function_twin(function: Function) -> Callable[..., object]:
        run = make_twin(function)

        def twin(*args: object, **options: object) -> object:
            arguments = function.bind(args, options)
            returns_all = function.returns_lse and as_bool(
                function.name, "return_lse", arguments.pop("return_lse", False)
            )
            if isinstance(arguments.get("bias"), Operator):
                arguments["bias"] = (arguments["bias"],)  # as the gradient of one bias is a tuple of one
            return run(arguments, returns_all)

        return function.document(twin, describe(function.name, f"`posenc.{function.name}` for {arrays}."))

    def operator_twin(name: str) -> Callable[..., object]:
        binder = Binder(name, inspect.signature(OPERATORS[name]), operator)

        def twin(*args: object, **options: object) -> Operator:
            return operator(name, prepare(name, binder.bind(args, options)))

        return binder.document(twin, describe(name, f"`posenc.{name}` for {arrays}; returns an `Operator`."))

    def describe(name: str, summary: str) -> str:
        """Return the docstring of a function of posenc below a summary, without `out` and examples of NumPy."""
        doc = inspect.getdoc(getattr(posenc, name, None)) or ""  # matrix and logits are documented by `Operator`
        doc = re.sub(r"^out : array.*\n(?: .*\n)*", "", doc.partition("\n\nExamples\n--")[0], count=1, flags=re.M)
        return f"{summary}\n\n{doc}"

    namespace.update({name: function_twin(function) for name, function in FUNCTIONS.items()})
    namespace.update({name: operator_twin(name) for name in OPERATORS})
    operator._matrix, operator._logits = function_twin(MATRIX), function_twin(LOGITS)
    namespace["__all__"] = ["Operator", *FUNCTIONS, *OPERATORS]
