"""Functions and operators of posenc for JAX, under their own names.

This module has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take the
arguments of their namesakes, except `out`, and return JAX arrays. `jax.jit`, `jax.grad` and `jax.vmap` apply to them.

>>> import jax, jax.numpy as jnp
>>> import posenc, posenc_bridges.jax as pj
>>> q, k, v = jax.random.normal(jax.random.key(0), (3, 8, 100, 64))  # 8 heads, 100 positions
>>> slopes = jnp.asarray(posenc.alibi_slopes(8))
>>> @jax.jit
... def loss(q, slopes):
...     return pj.attention(q, k, v, bias=pj.alibi(slopes), causal=True).sum()
>>> d_q, d_slopes = jax.grad(loss, (0, 1))(q, slopes)  # one backward call for both
>>> d_q.shape, d_slopes.shape
((8, 100, 64), (8,))

- JAX arrays are float16, bfloat16, float32 or, under ``jax_enable_x64``, float64. Without this option, a result or
  a gradient that would be float64 is float32. NumPy arrays keep their dtype as arguments: frequencies and positions
  that are float64 NumPy arrays are read as float64 with or without the option. A gradient has the dtype of its
  argument.
- Lengths and options must be static under `jax.jit`. Positions may be traced if they are an array with an axis.
- An operator such as ``pj.alibi(slopes)`` is a pytree of its arrays. It may be an argument of a traced function. An
  operator of posenc is a pytree without leaves: a constant, equal to itself only.
- Under `jax.jit` and `jax.vmap`, a call is a `jax.pure_callback` to the host, which raises the errors of wrong values.
  `jax.vmap` computes one call after another; batch axes of the arrays are faster.
- ``seed`` of dropout is an integer, which may be traced, or a key of `jax.random`.
- Differentiating an argument without a gradient (``softcap``, positions of attention) is a TypeError.
- Only reverse mode and first derivatives exist. A second derivative is a NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

import posenc
from posenc_bridges import _common
from posenc_bridges._common import Arguments, Array, Call, Function, Path, cast_result

try:
    import jax  # type: ignore[import-not-found, unused-ignore]
    import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]
    from jax.custom_derivatives import SymbolicZero  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise ImportError('posenc_bridges.jax needs JAX: pip install "jax>=0.5"') from error

# ---- calls ----


class _Call:
    """A call of a function, split into its operands, which are its JAX arrays, and the rest."""

    def __init__(self, function: Function, arguments: Arguments) -> None:
        self.function, self._flat = function, Call(arguments, _convert)
        self._places = [place for place, one in enumerate(self._flat.arrays) if isinstance(one, jax.Array)]
        self.operands = [self._flat.arrays[place] for place in self._places]

    @property
    def paths(self) -> list[Path]:
        """The path of each operand."""
        paths = list(self._flat.paths())
        return [paths[place] for place in self._places]

    def keep(self) -> None:
        """Copy constant arrays, which the caller may change before `jax.jit` runs the call, and drop the operands."""
        self._flat.keep()
        self._put([None] * len(self._places), self._flat.arrays)
        self.operands = []

    def _put(self, operands: Iterable[object], arrays: list[Any]) -> list[Any]:
        for place, one in zip(self._places, operands, strict=True):
            arrays[place] = one
        return arrays

    def arguments(self, operands: Iterable[object]) -> Arguments:
        """Return the arguments of the function for these operands, with a number in place of an array `seed`."""
        arguments = self._flat.arguments(self._put(operands, [*self._flat.arrays]))
        seed = arguments.get("seed")
        if isinstance(seed, np.ndarray) and seed.dtype.kind in "iu" and seed.shape in ((1,), (2,)):
            arguments["seed"] = int(seed[0]) if seed.shape == (1,) else int(seed[0]) << 32 | int(seed[1])
        return arguments


class _Forward:
    """The computation of all results of a call, on the host."""

    def __init__(self, call: _Call) -> None:
        self.call = call

    def __call__(self, *operands: jax.Array) -> tuple[Array, ...]:
        return self.call.function.forward(self.call.arguments([np.asarray(one) for one in operands]))

    def shapes(self, operands: Sequence[jax.Array]) -> list[jax.ShapeDtypeStruct]:
        """Return the shapes and dtypes of the results; posenc checks operands of these shapes, but runs no kernel."""
        outlines = self.call.function.outlines(self.call.arguments(map(_stand_in, operands)))
        return [jax.ShapeDtypeStruct(shape, _kept_dtype(dtype)) for shape, dtype in outlines]


class _Backward:
    """The computation of the gradients of some operands of a call, on the host.

    It takes the operands of the call, then the results that the gradient reads, then the cotangents.
    """

    def __init__(self, call: _Call, wanted: Sequence[int], results: int) -> None:
        self.call, self._wanted, self._results = call, wanted, results

    def __call__(self, *operands: jax.Array) -> tuple[Array, ...]:
        function, paths = self.call.function, self.call.paths
        count = len(paths)
        arrays = [np.asarray(one) for one in operands]
        results, cotangents = arrays[count : count + self._results], arrays[count + self._results :]
        cotangents = [np.conj(one) if one.dtype.kind == "c" else one for one in cotangents]  # JAX passes conjugates
        wanted = [(paths[number], arrays[number]) for number in self._wanted]
        return tuple(function.gradients_of(self.call.arguments(arrays[:count]), results, cotangents, wanted))

    def shapes(self, operands: Sequence[jax.Array]) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(operands[number].shape, operands[number].dtype) for number in self._wanted]


def _convert(value: object) -> object:
    """Replace integer JAX scalars and NumPy scalars by Python numbers, and the scalar types of JAX by dtypes."""
    if isinstance(value, jax.Array):
        return int(value) if value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.integer) else value
    if isinstance(value, np.generic) and not isinstance(value, (np.longdouble, np.clongdouble)):
        return value.item()
    dtype = getattr(value, "dtype", None) if isinstance(value, type) else None
    return dtype if isinstance(dtype, np.dtype) else value  # jnp.float32 is no dtype


def _draw_seed(seed: object) -> object:
    """Return the seed of dropout: two numbers that a key of `jax.random` draws, or one integer, which may be traced."""
    if not isinstance(seed, jax.Array):
        return seed
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) or (seed.shape == (2,) and seed.dtype == jnp.uint32):
        return jax.random.bits(seed, (2,), jnp.uint32)
    return seed[None] if seed.ndim == 0 and _is_traced([seed]) else seed


def _stand_in(array: jax.Array | Array) -> Array:
    return _common.stand_in(array.shape, array.dtype)


def _kept_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the dtype that JAX keeps: float32 for float64 unless ``jax_enable_x64`` is on, on this thread."""
    return jax.dtypes.canonicalize_dtype(dtype)


# ---- rules of JAX ----


def _is_traced(operands: Sequence[object]) -> bool:
    return any(isinstance(one, jax.core.Tracer) for one in operands)


def _run(task: _Forward | _Backward, *operands: jax.Array) -> Any:
    """Return the results of a task: at once, or by a callback if JAX traces an operand."""
    if _is_traced(operands):
        return _run_traced(task, *operands)
    results = [np.asarray(one) for one in task(*operands)]
    results = [cast_result(one, _kept_dtype(one.dtype)) for one in results]
    return [jnp.array(one, copy=not one.flags.owndata) for one in results]


_UNDOCUMENTED = ("aval", "manual_axis_type", "varying")
"""Attributes that JAX does not document: of an array, of its type, of the state of its axes.

Without one of them, as before JAX 0.10, JAX refuses gradients inside `jax.shard_map`, whose "manual axis types do not
match". Nothing else reads them.
"""


def _axes_of(arrays: Iterable[jax.Array]) -> frozenset[str]:
    """Return the axes of `jax.shard_map` along which one of these arrays varies."""
    found = [reduce(lambda one, name: getattr(one, name, None), _UNDOCUMENTED, array) for array in arrays]
    return frozenset().union(*(axes or () for axes in found))


def _vary(arrays: Sequence[jax.Array], axes: frozenset[str]) -> list[jax.Array]:
    """Return arrays that vary along these axes of `jax.shard_map`; JAX sums the gradient of one that did not."""
    missing = [tuple(axes - _axes_of([one])) for one in arrays]
    return [jax.lax.pcast(x, new, to="varying") if new else x for x, new in zip(arrays, missing, strict=True)]


def _call_back(task: _Forward | _Backward, *operands: jax.Array) -> Sequence[jax.Array]:
    shapes = task.shapes(operands)

    def callback(*arrays: jax.Array) -> list[Array]:
        """Cast the results to the dtypes that JAX expects: another thread may have another x64 option."""
        return [cast_result(np.asarray(one), like.dtype) for one, like in zip(task(*arrays), shapes, strict=True)]

    results: Sequence[jax.Array] = jax.pure_callback(callback, shapes, *operands, vmap_method="sequential")
    return _vary(results, _axes_of(operands))


def _refuse(task: _Forward | _Backward, primals: object, tangents: object) -> NoReturn:
    name = task.call.function.name
    raise NotImplementedError(f"{name}: its gradient is differentiated; expected first derivatives, in reverse mode")


class _Numbers(tuple[int, ...]):
    """Numbers of the operands that are differentiated, saved for the backward call; JAX does not trace them."""


def _forward(call: _Call, *operands: jax.Array) -> Any:
    return _run(_Forward(call), *operands)


def _forward_and_save(call: _Call, *primals: Any) -> tuple[Sequence[jax.Array], tuple[Any, ...]]:
    """Return the results, and numbers of the differentiated operands, all operands, and results for `_backward`."""
    wanted = _Numbers(number for number, primal in enumerate(primals) if primal.perturbed)
    for number in wanted:
        if not call.function.has_gradient(call.paths[number]):
            argument = call.paths[number][0]
            expected = "a constant, because it has no gradient"
            raise TypeError(f"{call.function.name}: {argument} is differentiated; expected {expected}")
    operands = tuple(primal.value for primal in primals)
    results = _forward(call, *operands)
    return results, (wanted, operands, results if call.function.returns_lse else ())


def _backward(
    call: _Call, saved: tuple[Any, ...], cotangents: Sequence[jax.Array | SymbolicZero]
) -> tuple[jax.Array | None, ...]:
    wanted, operands, results = saved
    out, *others = cotangents
    if isinstance(out, SymbolicZero):
        out = jnp.zeros(out.shape, out.dtype)
    given = (out, *(one for one in others if not isinstance(one, SymbolicZero)))
    found = _run(_Backward(call, wanted, len(results)), *operands, *results, *given)
    gradients = dict(zip(wanted, found, strict=True))
    return tuple(map(gradients.get, range(len(operands))))


_run_traced = jax.custom_jvp(_call_back, nondiff_argnums=(0,))
_run_traced.defjvp(_refuse)
_apply_traced = jax.custom_vjp(_forward, nondiff_argnums=(0,))
_apply_traced.defvjp(_forward_and_save, _backward, symbolic_zeros=True)
jax.tree_util.register_static(_Numbers)


# ---- functions and operators ----


def _make_twin(function: Function) -> Callable[[Arguments, bool], jax.Array | tuple[jax.Array, ...]]:
    def run(arguments: Arguments, returns_all: bool) -> jax.Array | tuple[jax.Array, ...]:
        if "seed" in arguments:
            arguments["seed"] = _draw_seed(arguments["seed"])
        call = _Call(function, arguments)
        operands = call.operands
        if _is_traced(operands):
            call.keep()
            results = _apply_traced(call, *_vary(operands, _axes_of(operands)))
        else:  # a call of a custom_vjp takes a millisecond
            results = _forward(call, *operands)
        return tuple(results) if returns_all else results[0]

    return run


class Operator(_common.Operator):
    """A `posenc.Bias` that holds JAX arrays, for `attention` of this module; a pytree of its arrays.

    Attributes
    ----------
    name : str
        Name of the function that made it.
    arguments : dict
        The arguments of that function by name.
    """

    __slots__ = ()

    def __init__(self, name: str, arguments: Arguments) -> None:
        super().__init__(name, {argument: _as_leaf_or_option(one) for argument, one in arguments.items()})
        checked = self._bias_of(lambda one: _stand_in(one) if isinstance(one, jax.core.Tracer) else np.asarray(one))
        for argument, one in self.arguments.items():
            if isinstance(one, jax.core.Tracer) and argument not in (*checked.arrays._fields, *_POSITIONS):
                raise TypeError(f"{name}: {argument} is traced; expected one that is not, because it has no gradient")

    def __repr__(self) -> str:
        return f"<posenc_bridges.jax.{self._described()}>"

    @property
    def bias(self) -> posenc.Bias:
        """The operator with its arrays as NumPy arrays, for functions of posenc itself."""
        return self._bias_of(np.asarray)

    def _bias_of(self, convert: Callable[[jax.Array | Array], Array]) -> posenc.Bias:
        """Return the `Bias` with its arrays converted."""
        made: posenc.Bias = _common.make(self.name, Call(jax.tree.map(convert, self).arguments).arguments())
        return made


_POSITIONS = ("q_positions", "k_positions")
"""Arguments of `Operator.at`, which may be traced but have no gradient."""


def _as_leaf_or_option(value: object) -> object:
    """Return an argument of an operator as an array, or as something hashable."""
    value = _convert(value)
    if not isinstance(value, list | tuple):
        return value
    is_array = all(isinstance(one, int | float | list | tuple) for one in value)
    return np.asarray(value) if value and is_array else tuple(value)


def _flatten(operator: Operator) -> tuple[list[object], tuple[Hashable, ...]]:
    """Return the arguments of an operator that hold arrays or operators, and everything else of it."""
    children = {name: one for name, one in operator.arguments.items() if _is_child(one)}
    others = ((name, None if name in children else one) for name, one in operator.arguments.items())
    return [*children.values()], (operator.name, tuple(children), *others)


def _unflatten(structure: tuple[Any, ...], children: Iterable[object]) -> Operator:
    """Return an operator with these children, unchecked: JAX passes objects that are no arrays, too."""
    name, names, *others = structure
    operator = Operator.__new__(Operator)
    _common.Operator.__init__(operator, name, {**dict(others), **dict(zip(names, children, strict=True))})
    return operator


def _is_child(value: object) -> bool:
    """Return whether an argument of an operator holds only arrays and operators; those of posenc have no leaves."""
    if isinstance(value, tuple):
        return all(map(_is_child, value))
    return isinstance(value, (jax.Array, np.ndarray, Operator, posenc.Bias))


for _kind in (posenc.Bias, posenc.PositionBias, posenc.ContentBias):
    jax.tree_util.register_static(_kind)
jax.tree_util.register_pytree_node(Operator, _flatten, _unflatten)
jax.tree_util.register_dataclass(
    posenc.RopeFrequencies,
    data_fields=["inv_freq"],
    meta_fields=["attention_factor", "softmax_factor", "layout", "rotary_dim", "description"],
)
_common.export(globals(), Operator, _make_twin, "JAX arrays")

if TYPE_CHECKING:
    __all__: list[str]

    def __getattr__(name: str) -> Any: ...
