"""Bias matrices, chunk by chunk."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from posenc._core_api.arguments import Array, as_reals, cast_result, check_positions, compute_dtype, fail, result_dtype
from posenc.bias.operator import Bias, PositionBias, check_unread, single_terms
from posenc.bias.positions import as_lengths
from posenc.bias.terms import Call

from ._arrays import DaskArray, Source, bounds_of, check_known, cut, is_dask, read_array
from ._operators import Operator

__all__ = ["matrix"]


def matrix(
    bias: PositionBias,
    n: int,
    m: int | None = None,
    *,
    chunks: Any,
    q_positions: npt.ArrayLike | DaskArray | None = None,
    k_positions: npt.ArrayLike | DaskArray | None = None,
    dtype: npt.DTypeLike | None = None,
) -> DaskArray:
    """Return the matrix of a bias, as its method ``matrix`` does.

    Parameters
    ----------
    bias : PositionBias
        An operator of posenc. A task of `toeplitz`, `dense`, `tupe` or `gated_distance` receives only the part of the
        arrays that its chunk reads.
    n, m : int
        Numbers of queries and keys; m is n if None.
    chunks : int or tuple
        Chunks of the result (H, n, m), as dask.array takes them.
    q_positions, k_positions : array or dask array (n,) and (m,), optional
        As in ``bias.matrix``: by default the queries are at the last n of m positions.
    dtype : dtype, optional
        Dtype of the result; float32 by default.

    Returns
    -------
    dask array (H, n, m)
        Equal to ``bias.matrix(n, m, ...)``, bit for bit. A chunk may be a read-only view that stores each diagonal
        once. `dense`, `fox` and `gated_distance` may have leading axes; each leading axis is one chunk.

    Raises
    ------
    TypeError, ValueError
        As ``bias.matrix``; an operator that reads queries and keys; chunks that do not fit the shape.

    Notes
    -----
    For attention, pass the operator itself to `attention`. The operator takes less time and memory than its matrix.

    Examples
    --------
    A matrix of 800 GB, of which one chunk is computed:

    >>> import posenc, posenc.dask
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> whole = posenc.dask.matrix(bias, 160_000, chunks=(8, 4096, 4096))
    >>> whole.shape, whole.blocks[0, 2, 1][0, :2, :2].compute()
    ((8, 160000, 160000), array([[-2048. , -2047.5],
           [-2048.5, -2048. ]], dtype=float32))
    """
    function = "matrix"
    if not isinstance(bias, Bias):
        fail(TypeError, function, "bias", f"type {type(bias).__name__}", "a PositionBias, as alibi(slopes) returns")
    if not isinstance(bias, PositionBias):
        fail(TypeError, function, "bias", f"operator {bias.name}, which reads q and k", "a PositionBias")
    n, m = as_lengths(function, n, m)
    given = {"n": ("q_positions", q_positions, n), "m": ("k_positions", k_positions, m)}
    check_unread(function, bias, q_positions, k_positions)
    number = result_dtype(function, dtype, None)
    operators = [Operator(part, n, m) for part in single_terms(bias)]
    nothing = {"n": (0, 0), "m": (0, 0)}
    leading = np.broadcast_shapes(*(_leading(operator.part(nothing)) for operator in operators))
    for operator in operators:
        operator.check_own_positions(function, leading[:-1])
        operator.term(Call(function, number, (*leading, n, m) if leading else (1, n, m), 1, None))
    wanted = da.core.normalize_chunks(chunks, (*leading, n, m), dtype=number)
    heads = any(operator.needs_all_heads for operator in operators)
    pieces = [wanted[-3]] if len(leading) == 1 and not heads else [(length,) for length in leading[-1:]]
    shape_of_chunks = (*((length,) for length in leading[:-1]), *pieces, *wanted[-2:])
    bounds = [bounds_of(axis) for axis in shape_of_chunks]
    chunk_lengths = {"n": shape_of_chunks[-2], "m": shape_of_chunks[-1]}

    places: dict[str, Source | None] = {}
    dependencies = []
    for axis, (argument, value, length) in given.items():
        places[axis] = None
        if value is not None:
            array, places[axis] = cut(_read_positions(function, argument, value, length), (axis,), chunk_lengths)
            places[axis] = Source(array.name, (axis,))
            dependencies.append(array)
    shift = m - n if q_positions is None and k_positions is None else 0

    token = tokenize(bias, n, m, shape_of_chunks, q_positions, k_positions, number)
    name = f"matrix-{token}"
    layer: dict[Any, Any] = {}
    for at in np.ndindex(*(len(axis) - 1 for axis in bounds)):
        edges = [(axis[i], axis[i + 1]) for axis, i in zip(bounds, at, strict=True)]
        place = dict(zip(("n", "m", "h"), reversed([*edges[-3:-2], edges[-1], edges[-2]]), strict=False))
        queries, keys = place["n"], place["m"]
        numbers = {"n": at[-2], "m": at[-1]}
        of_queries, of_keys = (source and source.key(numbers) for source in (places["n"], places["m"]))
        parts = [operator.task(f"matrix-bias-{token}", i, place, layer) for i, operator in enumerate(operators)]
        layer[(name, *at)] = (
            _matrix_of_chunk, parts,
            of_queries or range(queries[0] + shift, queries[1] + shift), of_keys or range(*keys), number,
        )  # fmt: skip
    graph = HighLevelGraph.from_collections(name, layer, dependencies=dependencies)
    return da.Array(graph, name, shape_of_chunks, dtype=number)


def _leading(part: Any) -> tuple[int, ...]:
    """Return the lengths of the axes before queries and keys: batch axes and heads."""
    shape: tuple[int, ...] = part.bias.matrix(0, 0).shape
    return shape[:-2]


def _read_positions(function: str, argument: str, value: Any, length: int) -> DaskArray:
    if is_dask(value):
        check_known(function, argument, value)
        if value.dtype.kind not in "iuf":
            fail(TypeError, function, argument, f"dtype {value.dtype}", "integers or reals")
        array = value
    else:
        if hasattr(value, "dims"):
            read_array(function, argument, value)
        in_memory = (
            np.arange(length) if isinstance(value, int) and value == length else as_reals(function, argument, value)
        )
        check_positions(function, argument, in_memory)
        array = da.from_array(in_memory, chunks=in_memory.shape)
    if array.shape != (length,):
        fail(ValueError, function, argument, f"shape {array.shape}", f"({length},)")
    return array


def _matrix_of_chunk(parts: list[Any], q_positions: Any, k_positions: Any, dtype: np.dtype[Any]) -> Array:
    """Return one chunk of the matrix: the sum of the matrices of all parts, one per operator."""
    q, k = np.asarray(q_positions), np.asarray(k_positions)

    def matrix_of(part: Any, number: np.dtype[Any]) -> Array:
        sides = zip(("q_positions", "k_positions"), (q, k), part.bias.own_positions, strict=True)
        given = {side: positions for side, positions, own in sides if own is None}
        matrix: Array = part.bias.matrix(len(q), len(k), dtype=number, **given)
        return matrix

    if len(parts) == 1:
        return matrix_of(parts[0], dtype)
    work = compute_dtype(np.empty(0, dtype))
    total, *others = (matrix_of(part, work) for part in parts)
    for other in others:
        total = total + other
    return cast_result(total, dtype)
