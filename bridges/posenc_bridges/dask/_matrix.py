"""Matrices of biases, of which each task computes a chunk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import dask.array as da
import numpy as np
import numpy.typing as npt

import posenc
from posenc import PositionBias
from posenc.interop import door

from . import _tasks
from ._arrays import Arguments, check, fail, read_places
from ._blocks import Operand, map_blocks, name_axes, shape_of
from ._operators import Operator, Span, arrays_of, leading_shape

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
    leading, m = leading_shape(bias), n if m is None else m
    options: Arguments = {"align": align, "q_positions": q_positions, "k_positions": k_positions}
    try:  # positions and arrays are checked by attention without channels
        check(posenc.alibi([1.0]).matrix, {"n": n, "m": m, "dtype": dtype, **options})
        q, k = np.zeros((*(leading or (1,)), n, 0)), np.zeros((1, m, 0))
        check(posenc.attention, {"q": q, "k": k, "v": k, "bias": bias, "scale": 1.0, **options})
    except (TypeError, ValueError) as error:
        raise type(error)(":" + str(error).partition(":")[2]) from None  # without the name of the function
    result_dtype = posenc.alibi([1.0]).matrix(0, 0, dtype=dtype).dtype
    places = []
    for side, (name, length) in enumerate((("q_positions", n), ("k_positions", m))):
        value, start = options[name], m - length if align == "end" else 0
        places.append(read_places(name, length if value is None else value, start))
        if value is not None and all(part.own_positions[side] is not None for part in bias.parts):
            fail(ValueError, f"{name} has a value", f"None, because {bias.name} has positions of its own")
        if shape_of(places[side]) != (length,):
            fail(ValueError, f"{name} has shape {shape_of(places[side])}", str((length,)))
    axes = name_axes("*hnm", len(leading) + 2)
    *before, of_queries, of_keys = da.empty((*leading, n, m), chunks=chunks, dtype=result_dtype).chunks
    if len(leading) != 1 or any("heads" in part.options for part in bias.parts):
        before = [(length,) for length in leading]
    spans = da.map_blocks(_spans, chunks=(*before, of_queries, of_keys), meta=np.empty((0,) * len(axes), object))
    given = [arrays_of(part) for part in bias.parts]
    operators = [(Operator(part), [*map(bool, one)]) for part, one in zip(bias.parts, given, strict=True)]
    arrays: list[Operand] = [(spans, axes)]
    arrays += [(one, (axis,)) for one, axis in zip(places, "nm", strict=True) if not isinstance(one, range)]
    arrays += [one for own in given for one in own if one]
    ranges = [one if isinstance(one, range) else None for one in places]
    return map_blocks(partial(_tasks.matrix, operators, n, ranges, result_dtype), axes, arrays, result_dtype)


def _spans(block_info: Mapping[Any, Any]) -> list[Span]:
    """Return the ranges of queries and of keys of a chunk. Dask fuses this task with the one that reads it."""
    return [(first, last) for first, last in block_info[None]["array-location"][-2:]]
