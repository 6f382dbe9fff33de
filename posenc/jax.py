"""Functions and operators of posenc for JAX, under their own names.

`posenc.jax` has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take the
arguments of their namesakes, except `out`, and return JAX arrays. `jax.jit`, `jax.grad` and `jax.vmap` apply to them.

>>> import jax, jax.numpy as jnp
>>> import posenc, posenc.jax as pj
>>> q, k, v = jax.random.normal(jax.random.key(0), (3, 8, 100, 64))  # 8 heads, 100 positions
>>> slopes = jnp.asarray(posenc.alibi_slopes(8))
>>> @jax.jit
... def loss(q, slopes):
...     return pj.attention(q, k, v, bias=pj.alibi(slopes), causal=True).sum()
>>> d_q, d_slopes = jax.grad(loss, (0, 1))(q, slopes)  # one backward call for both
>>> d_q.shape, d_slopes.shape
((8, 100, 64), (8,))

- JAX arrays are float16, bfloat16, float32 or, under ``jax_enable_x64``, float64. Without it, a result that would be
  float64 is float32, and so is the gradient of a position. NumPy arrays keep their dtype as arguments: frequencies and
  positions passed as NumPy arrays are float64 in any case. A gradient has the dtype of its argument.
- `jax.jit` must know lengths and options when it traces. Traced positions are arrays with an axis.
- An operator such as ``pj.alibi(slopes)`` is a pytree of its arrays. It may be an argument of a traced function.
- Under `jax.jit` and `jax.vmap`, a call is a `jax.pure_callback` to the host, which raises the errors of wrong values.
  `jax.vmap` computes one call after another; batch axes of the arrays are faster.
- Differentiating an argument without a gradient (``scale``, positions of attention) is a TypeError.
- Only reverse mode and first derivatives exist. A second derivative is a NotImplementedError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import posenc
from posenc import _core, _derive
from posenc._core_api.arguments import Array, cast_result

try:
    import jax  # type: ignore[import-not-found, unused-ignore]
    import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]
    from jax.custom_derivatives import SymbolicZero  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise ImportError('posenc.jax needs JAX: pip install "posenc[jax]"') from error


# ---- calls ----


class _Call:
    """A call of a function without its JAX arrays, which are the operands."""

    def __init__(self, function: _derive.Function, flat: _derive.Call) -> None:
        self.function = function
        pairs = list(zip(flat.arrays, flat.paths, strict=True))
        self.paths = [path for array, path in pairs if isinstance(array, jax.Array)]
        self._arrays = [_OPERAND if isinstance(array, jax.Array) else array for array in flat.arrays]
        self._rest = flat.text, flat.integers, flat.numbers

    def keep(self) -> None:
        """Copy the arrays of NumPy, which the caller may change before `jax.jit` runs the call."""
        self._arrays = [array.copy() if isinstance(array, np.ndarray) else array for array in self._arrays]

    def arguments(self, operands: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments of the function for these operands."""
        given = iter(operands)
        text, integers, numbers = self._rest
        arrays = [next(given) if one is _OPERAND else one for one in self._arrays]
        return _derive.arguments(text, arrays, integers, numbers)


_OPERAND = object()


class _Forward:
    """The computation of all results of a call, on the host."""

    def __init__(self, call: _Call) -> None:
        self.call = call

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        return self.call.function.forward(self.call.arguments([np.asarray(one) for one in operands]))

    def shapes(self, operands: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        """Return the shapes and dtypes of the results; posenc checks operands of these shapes, but runs no kernel."""
        dummies = [_dummy(one) for one in operands]
        _core.hold_kernels()
        try:
            with np.errstate(all="ignore"):  # results are whatever the memory holds
                results = [np.asarray(one) for one in self(*dummies)]
        finally:
            _core.release_kernels()
        return [jax.ShapeDtypeStruct(one.shape, _dtype_of(one)) for one in results]


class _Backward:
    """The computation of the gradients of some operands of a call, on the host.

    Its operands are those of the call, then the results that the gradient reads, then cotangents.
    """

    def __init__(self, call: _Call, wanted: Sequence[int], results: int) -> None:
        self.call, self._wanted, self._results = call, wanted, results

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        function, count = self.call.function, len(self.call.paths)
        arrays = [np.asarray(one) for one in operands]
        results, cotangents = arrays[count : count + self._results], arrays[count + self._results :]
        cotangents = [np.conj(one) if one.dtype.kind == "c" else one for one in cotangents]  # JAX's are conjugates
        gradients = function.backward(self.call.arguments(arrays[:count]), results, cotangents)
        found = []
        for number in self._wanted:
            gradient, like = function.gradient_at(gradients, self.call.paths[number]), arrays[number]
            found.append(np.zeros_like(like) if gradient is None else cast_result(np.asarray(gradient), like.dtype))
        return tuple(found)

    def shapes(self, operands: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(operands[number].shape, operands[number].dtype) for number in self._wanted]


class _Callback:
    """A task whose results have the dtypes that JAX expects, on whatever thread."""

    def __init__(self, task: _Forward | _Backward, dtypes: Sequence[np.dtype[Any]]) -> None:
        self._task, self._dtypes = task, dtypes

    def __call__(self, *operands: Any) -> list[Array]:
        results = self._task(*operands)
        return [cast_result(np.asarray(one), dtype) for one, dtype in zip(results, self._dtypes, strict=True)]


def _convert(value: Any, path: _derive.Path) -> Any:
    """Replace lengths by integers and the scalar types of JAX by dtypes."""
    if isinstance(value, jax.Array):
        return int(value) if value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.integer) else value
    if isinstance(value, np.generic):
        return value.item()
    dtype = getattr(value, "dtype", None) if path == ("dtype",) else None
    return dtype if isinstance(dtype, np.dtype) else value  # jnp.float32 is no dtype


def _dummy(array: jax.Array) -> Array:
    """Return an array of the same shape and dtype that occupies no memory: of ones, or of zeros for row numbers."""
    return np.broadcast_to(np.asarray(not jnp.issubdtype(array.dtype, jnp.integer), array.dtype), array.shape)


def _dtype_of(array: Array) -> np.dtype[Any]:
    """Return the dtype that JAX keeps: float32 for float64 unless ``jax_enable_x64`` is on, on this thread."""
    dtype: np.dtype[Any] = jax.dtypes.canonicalize_dtype(array.dtype)
    return dtype


# ---- rules of JAX ----


def _is_traced(operands: Sequence[Any]) -> bool:
    return any(isinstance(one, jax.core.Tracer) for one in operands)


def _run(task: _Forward | _Backward, *operands: Any) -> Any:
    """Return the results of a task: at once, or by a callback if JAX traces an operand."""
    if _is_traced(operands):
        return _run_traced(task, *operands)
    results = [np.asarray(one) for one in task(*operands)]
    results = [cast_result(one, _dtype_of(one)) for one in results]
    return [jnp.array(one, copy=not one.flags.owndata) for one in results]


def _call_back(task: _Forward | _Backward, *operands: Any) -> Any:
    shapes = task.shapes(operands)
    callback = _Callback(task, [one.dtype for one in shapes])
    return jax.pure_callback(callback, shapes, *operands, vmap_method="sequential")


def _refuse(task: _Forward | _Backward, primals: Any, tangents: Any) -> Any:
    name = task.call.function.name
    raise NotImplementedError(f"{name}: its gradient is differentiated; expected first derivatives, in reverse mode")


class _Numbers(tuple[int, ...]):
    """Numbers of the operands that are differentiated, saved for the backward call; JAX does not trace them."""


def _forward(call: _Call, *operands: Any) -> Any:
    return _run(_Forward(call), *operands)


def _forward_and_save(call: _Call, *primals: Any) -> Any:
    wanted = _Numbers(number for number, primal in enumerate(primals) if primal.perturbed)
    for number in wanted:
        if not call.function.has_gradient(call.paths[number]):
            argument = call.paths[number][0]
            expected = "a constant, because it has no gradient"
            raise TypeError(f"{call.function.name}: {argument} is differentiated; expected {expected}")
    operands = tuple(primal.value for primal in primals)
    results = _forward(call, *operands)
    return results, (wanted, operands, results if call.function.returns_lse else ())


def _backward(call: _Call, saved: Any, cotangents: Any) -> tuple[Any, ...]:
    wanted, operands, results = saved
    out, *others = cotangents
    if isinstance(out, SymbolicZero):
        out = jnp.zeros(out.shape, out.dtype)
    given = (out, *(one for one in others if not isinstance(one, SymbolicZero)))
    found = _run(_Backward(call, wanted, len(results)), *operands, *results, *given)
    gradients: list[Any] = [None] * len(operands)
    for number, gradient in zip(wanted, found, strict=True):
        gradients[number] = gradient
    return tuple(gradients)


_run_traced = jax.custom_jvp(_call_back, nondiff_argnums=(0,))
_run_traced.defjvp(_refuse)
_apply_traced = jax.custom_vjp(_forward, nondiff_argnums=(0,))
_apply_traced.defvjp(_forward_and_save, _backward, symbolic_zeros=True)
jax.tree_util.register_static(_Numbers)


# ---- functions ----


def _twin(function: _derive.Function) -> Callable[..., Any]:
    """Return the function for JAX arrays."""

    def twin(*args: Any, **options: Any) -> Any:
        arguments = function.bind(args, options)
        returns_all = function.returns_lse and arguments.pop("return_lse", False)
        flat = _derive.Call(convert=_convert)
        for name, value in arguments.items():
            flat.add(name, (value,) if isinstance(value, Operator) and name != "self" else value)
        operands = [array for array in flat.arrays if isinstance(array, jax.Array)]
        call = _Call(function, flat)
        if _is_traced(operands):
            call.keep()
            results = _apply_traced(call, *operands)
        else:  # a call of a custom_vjp takes a millisecond
            results = _forward(call, *operands)
        return tuple(results) if returns_all else results[0]

    twin.__name__ = twin.__qualname__ = function.name
    twin.__doc__ = f"`posenc.{function.name}` for JAX arrays; see there."
    twin.__signature__ = function.signature  # type: ignore[attr-defined]
    return twin


# ---- operators ----


class Operator(_derive.Operator):
    """A `posenc.Bias` that holds JAX arrays, for `attention` of this module; a pytree of its arrays.

    Attributes
    ----------
    name : str
        Name of the function that made it.
    arguments : dict
        The arguments of that function by name.
    """

    __slots__ = ()

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        super().__init__(name, {argument: _as_leaf_or_option(one, (argument,)) for argument, one in arguments.items()})
        checked = self._make(lambda one: _dummy(one) if isinstance(one, jax.core.Tracer) else np.asarray(one))
        for argument, one in self.arguments.items():
            if isinstance(one, jax.core.Tracer) and argument not in (*checked.arrays._fields, *_POSITIONS):
                raise TypeError(f"{name}: {argument} is traced; expected a plain value, because it has no gradient")

    def __repr__(self) -> str:
        described = (f"{name} {getattr(one, 'shape', one)}" for name, one in self.arguments.items())
        return f"<posenc.jax.{self.name}: {', '.join(described)}>"

    @property
    def bias(self) -> posenc.Bias:
        """The operator with its arrays as NumPy arrays, for functions of posenc itself."""
        made: posenc.Bias = self._make(np.asarray)
        return made

    def _make(self, convert: Callable[[Any], Any]) -> Any:
        """Return the `Bias` with its JAX arrays converted."""

        def plain(value: Any) -> Any:
            if isinstance(value, Operator):
                return value._make(convert)
            if isinstance(value, tuple):
                return tuple(map(plain, value))
            return convert(value) if isinstance(value, jax.Array) else value

        return _derive.make(self.name, {argument: plain(one) for argument, one in self.arguments.items()})

    def matrix(self, *args: Any, **options: Any) -> Any:
        """Return `PositionBias.matrix` as a JAX array; float32 without ``dtype``."""
        return _matrix(self, *args, **options)

    def logits(self, *args: Any, **options: Any) -> Any:
        """Return `ContentBias.logits` as a JAX array."""
        return _logits(self, *args, **options)


_POSITIONS = ("q_positions", "k_positions")
"""Arguments of `Operator.at`, which may be traced but have no gradient."""


def _as_leaf_or_option(value: Any, path: _derive.Path) -> Any:
    """Return an argument of an operator as an array, or as something hashable."""
    value = _convert(value, path)
    if not isinstance(value, list | tuple):
        return value
    is_array = all(isinstance(one, int | float | list | tuple) for one in value)
    return np.asarray(value) if value and is_array else tuple(value)


_LEAF = object()
"""Stands for a leaf in the structure of an operator."""


def _flatten(operator: Operator) -> tuple[list[Any], Any]:
    """Return the arrays and operators in the arguments of an operator, and its structure."""
    leaves, structure = [], []
    for name, value in operator.arguments.items():
        several = isinstance(value, tuple)
        kept = []
        for one in value if several else (value,):
            is_leaf = isinstance(one, jax.Array | np.ndarray | Operator)
            kept.append(_LEAF if is_leaf else one)
            leaves += [one] if is_leaf else []
        structure.append((name, several, tuple(kept)))
    return leaves, (operator.name, tuple(structure))


def _unflatten(structure: Any, leaves: Sequence[Any]) -> Operator:
    """Return an operator whose leaves may be anything; JAX puts objects of its own there."""
    name, arguments = structure
    given = iter(leaves)
    operator = Operator.__new__(Operator)
    operator.name, operator.arguments = name, {}
    for argument, several, kept in arguments:
        values = tuple(next(given) if one is _LEAF else one for one in kept)
        operator.arguments[argument] = values if several else values[0]
    return operator


jax.tree_util.register_pytree_node(Operator, _flatten, _unflatten)
jax.tree_util.register_dataclass(
    posenc.RopeFrequencies,
    data_fields=["inv_freq"],
    meta_fields=["attention_factor", "softmax_factor", "layout", "rotary_dim", "description"],
)


def _operator(name: str) -> Callable[..., Operator]:
    """Return the function that makes an operator of JAX arrays."""
    maker = _derive.Maker(name)

    def function(*args: Any, **options: Any) -> Operator:
        return Operator(name, maker.bind(args, options))

    signature = inspect.signature(_derive.OPERATORS[name])
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`posenc.{name}` for JAX arrays; returns an `Operator`."
    function.__signature__ = signature.replace(return_annotation=Operator)  # type: ignore[attr-defined]
    return function


_matrix, _logits = _twin(_derive.MATRIX), _twin(_derive.LOGITS)
__all__ = ["Operator", *_derive.FUNCTIONS, *_derive.OPERATORS]
globals().update({name: _twin(function) for name, function in _derive.FUNCTIONS.items()})
globals().update({name: _operator(name) for name in _derive.OPERATORS})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
