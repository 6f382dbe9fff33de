"""Matrices of biases, of which each task computes a chunk."""

from __future__ import annotations

from functools import reduce
from typing import Literal, cast

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

import posenc
from posenc import PositionBias
from posenc.interop import door

from ._arrays import Arguments, Array, Dtype, check, fail, read_places, shape_of
from ._blocks import Grid, Tasks, cut, name_axes
from ._operators import Operator, Part
from ._tasks import take

__all__ = ["matrix"]


@door
def matrix(
    bias: PositionBias,
    n: int,
    m: int | None = None,
    *,
    chunks: int | str | tuple[object, ...],
    align: Literal["start", "end"] | None = None,
    q_positions: npt.ArrayLike | da.Array | None = None,
    k_positions: npt.ArrayLike | da.Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> da.Array:
    """Return the matrix of a bias, as its method ``matrix`` does.

    Parameters
    ----------
    bias : PositionBias
        An operator of posenc. For `dense`, `tupe` and `gated_distance`, a task receives only the part of the arrays
        that its chunk reads.
    n, m : int
        Numbers of queries and keys; m is n if None.
    chunks : int, str or tuple
        Chunks of the result (H, n, m), as dask.array takes them. The heads of `sandwich` and
        `distance_function` are one chunk, whatever `chunks` says.
    align, q_positions, k_positions : {"start", "end"}; array or dask array (n,) and (m,), optional
        As in ``bias.matrix``.
    dtype : dtype, optional
        Dtype of the result; float32 by default.

    Returns
    -------
    dask array (H, n, m)
        Equal to ``bias.matrix(n, m, ...)``, bit for bit, except that `tupe` and `gated_distance` may differ by
        rounding. A chunk may be a read-only view that stores each diagonal once. `dense`, `fox` and `gated_distance`
        may have batch axes before H; then each batch axis is one chunk, and H is one chunk.

    Raises
    ------
    TypeError, ValueError
        As ``bias.matrix``. Also for an operator that reads queries and keys, and for chunks that do not fit the shape.

    Notes
    -----
    For attention, pass the operator itself to `attention`. The operator takes less time and memory than its matrix.

    Examples
    --------
    A matrix of 800 GB, of which a corner of one chunk is computed:

    >>> import posenc, posenc_bridges.dask
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> whole = posenc_bridges.dask.matrix(bias, 160_000, chunks=(8, 4096, 4096))
    >>> whole.shape, whole.blocks[0, 2, 1][0, :2, :2].compute()
    ((8, 160000, 160000), array([[-2048. , -2047.5],
           [-2048.5, -2048. ]], dtype=float32))
    """
    if not isinstance(bias, PositionBias):
        is_operator = isinstance(bias, posenc.Bias)
        has = f"operator {bias.name}, which reads q and k" if is_operator else f"type {type(bias).__name__}"
        fail(TypeError, f"bias has {has}", "a PositionBias, as alibi(slopes) returns")
    m = n if m is None else m
    for name, length in (("n", n), ("m", m)):
        if not isinstance(length, int | np.integer):
            fail(TypeError, f"{name} has type {type(length).__name__}", "an integer")
        if length < 0:
            fail(ValueError, f"{name} is {length}", "at least 0")
    leading = np.broadcast_shapes(*(Operator(part, {}).leading for part in bias.parts))
    places, given = {}, (("q_positions", q_positions, n), ("k_positions", k_positions, m))
    for side, (name, value, length) in enumerate(given):
        if value is not None:
            if all(part.own_positions[side] is not None for part in bias.parts):
                fail(ValueError, f"{name} has a value", f"None, because {bias.name} has positions of its own")
            places[name] = read_places(name, value)
            if shape_of(places[name]) != (length,):
                fail(ValueError, f"{name} has shape {shape_of(places[name])}", str((length,)))
    options = {"align": align, **{name: value for name, value, _ in given}}
    matrix_dtype = _check(bias, leading or (1,), n, m, options, dtype)
    axes = name_axes("*hnm", len(leading) + 2)
    wanted = da.core.normalize_chunks(chunks, (*leading, n, m), dtype=matrix_dtype)
    has_whole_heads = len(leading) != 1 or any("heads" in part.options for part in bias.parts)
    is_cut = {axis: axis in "nm" or not has_whole_heads for axis in axes}
    grid = Grid({axis: own if is_cut[axis] else (sum(own),) for axis, own in zip(axes, wanted, strict=True)})
    operators = [Operator(part, grid.chunks) for part in bias.parts]

    sides = (("n", "q_positions"), ("m", "k_positions"))
    sources = {axis: cut(places[name], (axis,), grid.chunks) for axis, name in sides if name in places}
    shift = m - n if align == "end" else 0

    token = tokenize(bias, n, m, align, grid.chunks, q_positions, k_positions, matrix_dtype)
    name, tasks = f"matrix-{token}", Tasks()
    for at in grid.cells(axes):
        place = grid.place(at)
        queries, keys = place["n"], place["m"]
        parts = [operator.task(f"matrix-bias-{token}", i, at, grid, tasks) for i, operator in enumerate(operators)]
        of_queries = sources["n"].key(at) if "n" in sources else range(queries[0] + shift, queries[1] + shift)
        of_keys = sources["m"].key(at) if "m" in sources else range(*keys)
        tasks[(name, *at.values())] = (_matrix_of_chunk, parts, of_queries, of_keys, matrix_dtype)
    read = [*sources.values(), *(source for operator in operators for source in operator.sources if source)]
    graph = HighLevelGraph.from_collections(name, tasks, [source.array for source in read])
    return da.Array(graph, name, tuple(grid.chunks.values()), dtype=matrix_dtype)


def _check(
    bias: PositionBias, leading: tuple[int, ...], n: int, m: int, options: Arguments, dtype: npt.DTypeLike | None
) -> Dtype:
    """Return the dtype of a matrix; raise the errors of positions and arrays, as attention without channels does."""
    q, k = np.zeros((*leading, n, 0)), np.zeros((1, m, 0))
    try:
        check(posenc.attention, {"q": q, "k": k, "v": k, "bias": bias, "scale": 1.0, **options})
        return posenc.alibi([1.0]).matrix(0, 0, dtype=dtype).dtype
    except (TypeError, ValueError) as error:
        raise type(error)(":" + str(error).partition(":")[2]) from None  # without the name of the function


def _matrix_of_chunk(parts: list[Part], q_positions: Array | range, k_positions: Array | range, dtype: Dtype) -> Array:
    """Return one chunk of the matrix: the sum of the matrices of `parts`, each of which is a part of one operator."""
    sides = np.asarray(q_positions), np.asarray(k_positions)
    work = dtype if len(parts) == 1 else np.dtype(np.float64)
    matrices: list[Array] = []
    for make, pieces, distances in parts:
        bias = cast("PositionBias", make(pieces, distances))
        q, k = (one if own is None else None for one, own in zip(sides, bias.own_positions, strict=True))
        matrices.append(bias.matrix(*map(len, sides), q_positions=q, k_positions=k, dtype=work))
    return take(reduce(np.add, matrices), dtype)
