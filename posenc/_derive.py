"""Functions of posenc with their gradients in one form, for the modules that carry them to other libraries.

`posenc.autograd`, `posenc.torch` and `posenc.jax` are derived from here, and nothing is registered by hand. A call is
flattened to arrays, integers, numbers and a text that says what they are arguments of:

>>> call = Call()
>>> call.add("positions", 3)
>>> call.add("layout", "half")
>>> call.text, call.integers
("positions=integer, layout='half'", [3])
>>> arguments(call.text, call.arrays, call.integers, call.numbers)
{'positions': 3, 'layout': 'half'}
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

import posenc

Path = tuple[str | int, ...]
"""Path of an array inside the arguments of a call: the name of an argument, then indices and names inside it."""


# ---- functions and gradients ----


class Binder:
    """The parameters of a function, to which it binds the arguments of a call.

    Attributes
    ----------
    name : str
        Name of the function, for errors.
    """

    def __init__(self, name: str, parameters: Iterable[inspect.Parameter]) -> None:
        parameters = list(parameters)
        self.name = name
        self._names = [p.name for p in parameters]
        self._positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._required = [p.name for p in parameters if p.default is p.empty]

    def bind(self, args: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, in a third of the time of `inspect.Signature.bind`."""
        if len(args) > len(self._positional):
            most = len(self._positional)
            raise TypeError(f"{self.name}: takes {most} positional arguments but {len(args)} were given")
        found = dict(zip(self._positional, args))  # noqa: B905 - torch.compile knows no strict
        for argument, value in options.items():
            if argument not in self._names:
                raise TypeError(f"{self.name}: got an unexpected keyword argument {argument!r}")
            if argument in found:
                raise TypeError(f"{self.name}: multiple values for argument {argument!r}")
            found[argument] = value
        for argument in self._required:
            if argument not in found:
                raise TypeError(f"{self.name}: missing a required argument: {argument!r}")
        return found


class Function(Binder):
    """A differentiable function of posenc.

    Attributes
    ----------
    name : str
        Its name in posenc, for errors.
    signature : Signature
        That of the function, without `out`.
    returns_lse : bool
        True if the results are those of `attention`: an output and its lse.
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        signature: inspect.Signature,
        gradient_types: tuple[Any, ...],
        returns_lse: bool = False,
    ) -> None:
        parameters = [p for p in signature.parameters.values() if p.name != "out"]
        super().__init__(name, parameters)
        self._forward, self._backward = forward, backward
        self.signature = signature.replace(parameters=parameters, return_annotation=signature.empty)
        self.returns_lse = returns_lse
        self._gradient_types = gradient_types

    def forward(self, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """Return all results of a call."""
        results = self._forward(**arguments)
        return results if self.returns_lse else (results,)

    def backward(self, arguments: dict[str, Any], results: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        """Return the gradients of a call by name, for the cotangents of the first results or of all."""
        return self._backward(arguments, results, cotangents)

    def has_gradient(self, path: Path) -> bool:
        """Return whether the array at `path` may have a gradient; of several kinds of gradients, in any of them."""
        return any(self._path_of_gradient(kind, path) is not None for kind in self._gradient_types)

    def gradient_at(self, gradients: Any, path: Path) -> Any:
        """Return the gradient of the array at `path`; None if nothing reads the array.

        Raises
        ------
        TypeError
            If these gradients have none for it.
        """
        inside = self._path_of_gradient(type(gradients), path)
        if inside is None:
            fail_without_gradient(self.name, path)
        item = gradients
        for step in inside:
            item = getattr(item, step) if isinstance(step, str) else item[step]
        return item

    def _path_of_gradient(self, gradient_type: Any, path: Path) -> Path | None:
        """Return the path, inside a gradient, of the gradient of the argument at `path`; None if there is none.

        A NamedTuple may have fields that are no parameters: cos and sin of `rope`. They belong to the members of a
        pair.
        """
        name, *rest = path
        if name in gradient_type._fields:
            is_array = bool(rest) and (isinstance(rest[-1], str) or rest[-2:-1] == ["arrays"])
            return path if not rest or is_array else None
        members = [field for field in gradient_type._fields if field not in self._names]
        if len(rest) == 1 and isinstance(rest[0], int) and rest[0] < len(members):
            return (members[rest[0]],)
        return None


def fail_without_gradient(name: str, path: Path) -> NoReturn:
    """Raise the error of an array that has no gradient but needs one."""
    raise TypeError(f"{name}: {path[0]} has a traced value; expected a plain one, because it has no gradient")


def _function(name: str) -> Function:
    """Return a function that has a ``_vjp``."""
    plain, vjp = getattr(posenc, name), getattr(posenc, f"{name}_vjp")
    returned = get_type_hints(vjp)["return"]
    signature, taken = inspect.signature(plain), inspect.signature(vjp).parameters
    gradient_types = get_args(returned) or (returned,)
    if "lse" not in taken:

        def backward(arguments: dict[str, Any], results: Sequence[Any], cotangents: Sequence[Any]) -> Any:
            return vjp(*cotangents, **{a: v for a, v in arguments.items() if a in taken})  # no dtype

        return Function(name, plain, backward, signature, gradient_types)

    def forward_with_lse(**arguments: Any) -> Any:
        return plain(**{**arguments, "return_lse": True})

    def backward_with_lse(arguments: dict[str, Any], results: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        (out, lse), (grad, grad_lse) = results, (*cotangents, None)[:2]
        options = {a: v for a, v in arguments.items() if a in taken}
        return vjp(grad, **options, out=out, lse=lse, grad_lse=grad_lse)

    return Function(name, forward_with_lse, backward_with_lse, signature, gradient_types, returns_lse=True)


class _MatrixGradient(NamedTuple):
    self: Any


class _LogitsGradient(NamedTuple):
    self: Any
    q: Any
    k: Any


def _matrix_vjp(arguments: dict[str, Any], results: Sequence[Any], cotangents: Sequence[Any]) -> _MatrixGradient:
    options = {a: v for a, v in arguments.items() if a not in ("self", "dtype")}
    return _MatrixGradient(arguments["self"].vjp(*cotangents, **options))


def _logits_vjp(arguments: dict[str, Any], results: Sequence[Any], cotangents: Sequence[Any]) -> _LogitsGradient:
    options = {a: v for a, v in arguments.items() if a != "self"}
    gradients = arguments["self"].logits_vjp(*cotangents, **options)
    return _LogitsGradient(getattr(gradients, "parts", gradients), gradients.q, gradients.k)


def _matrix(self: posenc.PositionBias, **options: Any) -> Any:
    return self.matrix(**options)


def _logits(self: posenc.ContentBias, **options: Any) -> Any:
    return self.logits(**options)


def _returns_bias(function: Any) -> bool:
    if not inspect.isfunction(function):
        return False
    returned = get_type_hints(function).get("return")
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and issubclass(kind, posenc.Bias)


FUNCTIONS = {name: _function(name) for name in vars(posenc) if hasattr(posenc, f"{name}_vjp")}
"""Every function that has a ``_vjp``, by name."""
OPERATORS = {name: function for name, function in vars(posenc).items() if _returns_bias(function)}
"""Every function that returns a `Bias`, by name."""
MATRIX = Function("matrix", _matrix, _matrix_vjp, inspect.signature(posenc.PositionBias.matrix), (_MatrixGradient,))
LOGITS = Function("logits", _logits, _logits_vjp, inspect.signature(posenc.ContentBias.logits), (_LogitsGradient,))


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

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.name, self.arguments = name, arguments

    def at(self, *, q_positions: Any = None, k_positions: Any = None) -> Any:
        """Return `Bias.at`: the operator at positions of its own, which have no gradient."""
        own = {"q_positions": q_positions, "k_positions": k_positions}
        if self.name == "sum":  # so that the parts of a sum are never sums
            parts = tuple(part if _has_own_positions(part) else part.at(**own) for part in self.arguments["parts"])
            return type(self)("sum", {"parts": parts})
        return type(self)("at", {"self": self, **own})

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Operator | posenc.Bias):
            return NotImplemented
        return type(self)("sum", {"parts": (*_parts(self), *_parts(other))})

    def __radd__(self, other: Any) -> Any:
        if type(other) is int and other == 0:  # sum() starts with 0
            return self
        if not isinstance(other, posenc.Bias):
            return NotImplemented
        return type(self)("sum", {"parts": (*_parts(other), *_parts(self))})


def _parts(operator: Any) -> tuple[Any, ...]:
    """Return the operators of a sum; of another operator, itself."""
    if isinstance(operator, Operator):
        return operator.arguments["parts"] if operator.name == "sum" else (operator,)
    return getattr(operator, "parts", (operator,))


def _has_own_positions(operator: Any) -> bool:
    if isinstance(operator, Operator):
        return operator.name == "at"
    return any(own is not None for own in operator.own_positions)


def _call_of(bias: posenc.Bias) -> Operator:
    """Return the call that makes a `Bias`."""
    if len(bias.parts) > 1:
        return Operator("sum", {"parts": bias.parts})
    made = Operator(bias.name, {**bias.arrays._asdict(), **bias.options})
    q_positions, k_positions = bias.own_positions
    if q_positions is None and k_positions is None:
        return made
    return Operator("at", {"self": made, "q_positions": q_positions, "k_positions": k_positions})


def _at(self: Any, **positions: Any) -> Any:
    return self.at(**positions)


def _sum(parts: tuple[Any, ...]) -> Any:
    return sum(parts[1:], parts[0])


def make(name: str, arguments: dict[str, Any]) -> Any:
    """Return the `Bias` that an `Operator` describes, from plain arguments, or a NamedTuple of posenc."""
    return _maker(name)(**arguments)


def _maker(name: str) -> Callable[..., Any]:
    methods: dict[str, Callable[..., Any]] = {"at": _at, "sum": _sum}
    return methods[name] if name in methods else getattr(posenc, name)


def _path_of_argument(name: str, path: Path, argument: str) -> Path:
    """Return the path of an argument of an operator at `path`, which is also that of its gradient."""
    if argument in ("self", "parts"):
        return path
    return (*path, argument, 0) if name == "at" else (*path, argument)


class Maker(Binder):
    """Check of the arguments of a function that returns a `Bias`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, inspect.signature(OPERATORS[name]).parameters.values())


# ---- calls as text, arrays and numbers ----


class Call:
    """Arguments of a call, flattened.

    Attributes
    ----------
    text : str
        The arguments as Python code, in which ``array``, ``integer`` and ``number`` stand for the next item of a list.
    arrays, integers, numbers : list
        These items, in their order.
    paths : list
        The path of each array.
    """

    def __init__(
        self, is_array: Callable[[Any], bool] | None = None, convert: Callable[[Any, Path], Any] | None = None
    ) -> None:
        """Take as arrays what `is_array` accepts, after `convert` has replaced other values by them."""
        self._is_array, self._convert = is_array, convert
        self._text: list[str] = []
        self.arrays: list[Any] = []
        self.integers: list[int] = []
        self.numbers: list[float] = []
        self.paths: list[Path] = []

    @property
    def text(self) -> str:
        return ", ".join(self._text)

    def add(self, name: str, value: Any) -> None:
        """Add an argument."""
        self._text.append(f"{name}={self._describe(value, (name,))}")

    def _describe(self, value: Any, path: Path) -> str:
        if self._convert is not None:
            value = self._convert(value, path)
        if self._is_array is not None and self._is_array(value):
            return self._array(value, path)
        if value is None or isinstance(value, bool | str):
            return repr(value)
        if isinstance(value, int):
            self.integers.append(value)
            return "integer"
        if isinstance(value, float):
            self.numbers.append(value)
            return "number"
        if isinstance(value, Operator):
            inner = [
                f"{name}={self._describe(one, _path_of_argument(value.name, path, name))}"
                for name, one in value.arguments.items()
            ]
            return f"{value.name}({', '.join(inner)})"
        if isinstance(value, posenc.Bias):
            return self._describe(_call_of(value), path)
        if isinstance(value, posenc.RopeFrequencies | posenc.Quantized):
            name = type(value).__name__
            inner = [
                f"{field}={self._describe(getattr(value, field), _path_of_field(name, path, number))}"
                for number, field in enumerate(_FIELDS[name])
            ]
            return f"{name}({', '.join(inner)})"
        if isinstance(value, tuple | list):
            inner = [f"{self._describe(one, (*path, number))}, " for number, one in enumerate(value)]
            return f"({''.join(inner)})" if isinstance(value, tuple) else f"[{''.join(inner)}]"
        if inspect.isroutine(value):
            _FUNCTIONS[id(value)] = value
            return f"function({id(value)})"
        return self._array(value, path)

    def _array(self, value: Any, path: Path) -> str:
        self.arrays.append(value)
        self.paths.append(path)
        return "array"


_FUNCTIONS: dict[int, Callable[..., Any]] = {}
"""Functions of the user that are arguments of a call, by id. They are kept, so no other object takes the id."""


class _Placeholder(NamedTuple):
    """An item of the arrays (0), integers (1) or numbers (2) of a call."""

    kind: int
    number: int


class _Made(NamedTuple):
    """A call of a function of posenc inside the arguments."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]


def arguments(text: str, *items: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of `Call` with these arrays, integers and numbers."""
    return {name: _fill(value, items) for name, value in _parse(text).items()}


@lru_cache(maxsize=1024)
def paths(text: str) -> tuple[Path, ...]:
    """Return `Call.paths` of a text."""
    return tuple(path for name, value in _parse(text).items() for path in _paths_of(value, (name,)))


def _paths_of(value: Any, path: Path) -> Iterator[Path]:
    kind = type(value)
    if kind is _Placeholder and value.kind == 0:
        yield path
    elif kind is _Made:
        for number, (argument, one) in enumerate(value.arguments.items()):
            is_field = value.name in _FIELDS
            of_field = _path_of_field(value.name, path, number)
            yield from _paths_of(one, of_field if is_field else _path_of_argument(value.name, path, argument))
    elif kind is tuple or kind is list:
        for number, one in enumerate(value):
            yield from _paths_of(one, (*path, number))


_FIELDS = {
    kind.__name__: tuple(inspect.signature(kind).parameters) for kind in (posenc.RopeFrequencies, posenc.Quantized)
}
"""Classes of posenc whose values are arguments, and the names of their fields."""


def _path_of_field(name: str, path: Path, number: int) -> Path:
    """Return the path of a field: the first field of RopeFrequencies has the gradient of the argument."""
    return path if name == "RopeFrequencies" and number == 0 else (*path, number)


def _fill(value: Any, items: tuple[Sequence[Any], ...]) -> Any:
    kind = type(value)
    if kind is _Placeholder:
        return items[value.kind][value.number]
    if kind is _Made:
        return value.function(**{name: _fill(one, items) for name, one in value.arguments.items()})
    if kind is tuple or kind is list:
        return kind([_fill(one, items) for one in value])
    return value


@lru_cache(maxsize=1024)
def _parse(text: str) -> dict[str, Any]:
    """Return the arguments of `Call.text`, with placeholders."""
    counters: dict[str, Iterator[int]] = {name: iter(range(len(text))) for name in _PLACEHOLDERS}
    call: Any = ast.parse(f"_({text})", mode="eval").body
    return {keyword.arg: _parse_value(keyword.value, counters) for keyword in call.keywords}


_PLACEHOLDERS = ("array", "integer", "number")


def _parse_value(node: ast.expr, counters: dict[str, Iterator[int]]) -> Any:
    if isinstance(node, ast.Name):
        return _Placeholder(_PLACEHOLDERS.index(node.id), next(counters[node.id]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "function":
        return _FUNCTIONS[ast.literal_eval(node.args[0])]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inner = {str(keyword.arg): _parse_value(keyword.value, counters) for keyword in node.keywords}
        return _Made(node.func.id, _maker(node.func.id), inner)
    if isinstance(node, ast.Tuple | ast.List):
        items = [_parse_value(one, counters) for one in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    return ast.literal_eval(node)
