"""Biases that read both positions of a pair, not only their difference: PAIR rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    I64,
    Array,
    Float64,
    as_data,
    as_index,
    broadcasts_to,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._diagonals import Where
from .operator import Bias, Sums, arrays_of, check_heads, fits_end, keep_arrays

__all__ = ["fire", "fox", "swin"]


class Pair(Bias):
    """A bias of both positions: a PAIR row of the table."""

    __slots__ = ()
    is_relative = False

    @property
    def heads(self) -> int:
        raise NotImplementedError

    @property
    def batch(self) -> tuple[int, ...]:
        """Leading axes of its arrays."""
        return ()

    def pull_back(self, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
        """From gradients of what the kernel takes to those of the arrays."""
        return gradients

    def check_places(self, function: str, q: Array, k: Array) -> None:
        """Refuse positions that it does not have."""

    def _places(self, function: str, n: int, m: int, where: Where, shift: int) -> tuple[Array, Array]:
        """Positions of queries and keys; query i is at i + shift where none are given."""
        q, k = (np.arange(n, dtype=I64) + shift, np.arange(m, dtype=I64)) if where is None else where
        if n and m:
            self.check_places(function, q, k)
        else:  # nothing is looked up
            q, k = np.zeros_like(q), np.zeros_like(k)
        return q, k

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        q, k = self._places(function, n, m, where, m - n)
        batch = self._batch(function, q, k)
        out, buffer = prepare_out(function, out, (*batch, self.heads, n, m), dtype, (q, k))
        getattr(_core, self.name)(function, *self.operands, q, k, buffer)
        return finish_out(out, buffer)

    def _batch(self, function: str, q: Array, k: Array) -> tuple[int, ...]:
        places = np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
        try:
            return np.broadcast_shapes(self.batch, places)
        except ValueError:
            argument = "q_positions" if q.shape[:-1] == places else "k_positions"
            fail(ValueError, function, argument, f"batch axes {places}", f"to broadcast against {self.batch}")

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        q, k = self._places(function, n, m, where, m - n)
        batch = self._batch(function, q, k)
        shape = (*batch, self.heads, n, m)
        weights = unbroadcast(fits_end(function, grad, shape).astype(F64, copy=False), shape, F64)
        axes = [len(letters) for _, letters in arrays_of(self.name)]
        whole = [self._spread(array, count, batch) for array, count in zip(self.operands, axes, strict=False)]
        rest = self.operands[len(axes) :]
        q, k = self._spread(q, 1, batch), self._spread(k, 1, batch)
        sums = [np.zeros(array.shape) for array in whole]
        for row in np.ndindex(batch):
            parts = [np.zeros(total.shape[len(batch) :]) for total in sums]
            arrays = [np.asarray(array[row]) for array in whole]
            getattr(_core, f"{self.name}_vjp")(function, weights[row], *arrays, *rest, q[row], k[row], *parts)
            for total, part in zip(sums, parts, strict=True):
                total[row] = part
        reduced = (unbroadcast(total, a.shape, F64) for total, a in zip(sums, self.operands, strict=False))
        return self.pull_back(tuple(reduced))

    @staticmethod
    def _spread(array: Array, axes: int, batch: tuple[int, ...]) -> Array:
        return np.broadcast_to(array, (*batch, *array.shape[array.ndim - axes :]))

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        check_heads(function, self.name, self.heads, shape)
        if not broadcasts_to(self.batch, shape[:-3]):
            fail(
                ValueError, function, "bias", f"batch axes {self.batch} ({self.name})", f"to broadcast to {shape[:-3]}"
            )
        n, m = shape[-2:]
        # diagonal 0 is key 0 and the last query, i = n - 1 + shift
        shift = 0 if distances is None or not distances.size else -int(distances[0]) - (n - 1)
        self._places(function, n, m, where, shift)
        return (self.name, *self.operands)

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("own",)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        return self.pull_back(sums.own)


def check_integers(function: str, q: Array, k: Array, length: int) -> None:
    """Positions that are integers from 0 to length - 1."""
    for argument, positions in (("q_positions", q), ("k_positions", k)):
        if positions.dtype.kind != "i":
            fail(TypeError, function, argument, f"dtype {positions.dtype}", "integers")
        bad = (positions < 0) | (positions >= length)
        if bad.any():
            fail(IndexError, function, argument, positions[bad][0], f"0 to {length - 1}")


class Fire(Pair):
    """A small network of the normalised distance."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        return int(self.arrays.w2.shape[0])


def fire(
    w1: npt.ArrayLike,
    b1: npt.ArrayLike,
    w2: npt.ArrayLike,
    b2: npt.ArrayLike,
    c: npt.ArrayLike,
    threshold: npt.ArrayLike,
) -> Bias:
    """FIRE: ``f[h](log(1 + |c rel|) / (log(1 + |c| max(i, |threshold|)) + 1e-6))``, ``f = w2 relu(w1 z + b1) + b2``.

    Parameters
    ----------
    w1 : array (W, 1)
    b1 : array (W,)
    w2 : array (H, W)
    b2 : array (H,)
        The network f, one input and H outputs, as PyTorch keeps its layers. Finite; all six are differentiable.
    c : float
        How soon the logarithm bends; 0.1 at the start in the authors' code.
    threshold : float
        Position of the query below which distances are measured by a fixed length; L times its factor, 512 at first.

    Returns
    -------
    Bias
        Depends on the position i of the query too: `matrix` is dense.

    Raises
    ------
    TypeError, ValueError
        Arrays whose shapes do not fit, or that are not finite.

    Notes
    -----
    Li et al. 2024 (Functional Interpolation for Relative positions), equations 2 and 3, with psi(x) = log(1 + c x) and
    the threshold of section 3.3; there for a causal model, where rel <= 0 and i >= 0. Some code has log(c x + eps) and
    adds the eps of the quotient elsewhere. Where ``|threshold| = i``, the gradient of the threshold is the mean of both
    sides.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> bias = posenc.fire([[1.0]], [0.0], [[-1.0]], [0.0], 1.0, 1.0)
    >>> bias.matrix(3).round(3)
    array([[[ 0.   , -1.   , -1.585],
            [-1.   ,  0.   , -1.   ],
            [-1.   , -0.631,  0.   ]]], dtype=float32)
    """
    kept, dtypes = keep_arrays("fire", w1, b1, w2, b2, c, threshold)
    if kept[0].shape[1] != 1:
        fail(ValueError, "fire", "w1", f"shape {kept[0].shape}", f"({kept[0].shape[0]}, 1)")
    return Fire("fire", kept, dtypes)


class Swin(Pair):
    """A table by row and column difference of two tokens of a grid."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        return int(self.arrays.table.shape[1])

    @property
    def _grid(self) -> tuple[int, int]:
        return self.options["height"], self.options["width"]

    @property
    def operands(self) -> tuple[Array, ...]:
        return self.arrays.table, np.array(self._grid, I64)

    def check_places(self, function: str, q: Array, k: Array) -> None:
        height, width = self._grid
        check_integers(function, q, k, height * width)


def swin(table: npt.ArrayLike, height: int, width: int) -> Bias:
    """Swin: ``b[h] = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]``.

    Parameters
    ----------
    table : array ((2 height - 1) (2 width - 1), H)
        Finite; as the authors keep it (``relative_position_bias_table``). Differentiable.
    height, width : int
        The grid. A position is a token in row-major order, ``y width + x``.

    Returns
    -------
    Bias
        Takes integer positions from 0 to height width - 1 only: TypeError, IndexError. `matrix` is dense.

    Raises
    ------
    TypeError, ValueError
        A grid of less than one token, a table of another size or with NaN or infinity.

    Notes
    -----
    Liu et al. 2021 (Swin Transformer), equation 4 and the authors' ``relative_position_index``. Differences are query
    minus key there, which is kept. BEiT's table has three more rows for its class token.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.swin(np.arange(9.0)[:, None], 2, 2).matrix(4)
    array([[[4., 3., 1., 0.],
            [5., 4., 2., 1.],
            [7., 6., 4., 3.],
            [8., 7., 5., 4.]]], dtype=float32)
    """
    height, width = as_index("swin", "height", height, 1), as_index("swin", "width", width, 1)
    (kept,), dtypes = keep_arrays("swin", table)
    rows = (2 * height - 1) * (2 * width - 1)
    if len(kept) != rows:
        fail(ValueError, "swin", "table", f"{len(kept)} rows", f"(2 height - 1) (2 width - 1) = {rows}")
    columns = np.ascontiguousarray(kept.T).T  # the rows of a head beside each other
    return Swin("swin", (columns,), dtypes, (("height", height), ("width", width)))


class Fox(Pair):
    """Sums of logarithms of forget gates between two positions. The kernel takes their cumulative sums."""

    __slots__ = ()
    fields = ("log_forget",)

    @property
    def heads(self) -> int:
        return int(self.arrays.log_forget.shape[-2])

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.arrays.log_forget.shape[:-2])

    @property
    def operands(self) -> tuple[Array, ...]:
        return (np.cumsum(self.arrays.log_forget, axis=-1),)

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("rows", "columns")

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        """From   b_ij = C[query i] - C[key j]:   d C[query i] += sum_j dS_ij,   d C[key j] -= sum_i dS_ij"""
        n, m = sums.rows.shape[-1], sums.columns.shape[-1]
        shift = 0 if distances is None or not distances.size else -int(distances[0]) - (n - 1)
        places = (np.arange(n) + shift, np.arange(m)) if where is None else where
        total = np.zeros((*sums.rows.shape[:-1], self.arrays.log_forget.shape[-1]))
        flat = total.reshape(-1, total.shape[-1])
        for at, part in zip(places, (sums.rows, -sums.columns), strict=True):
            index = np.broadcast_to(np.expand_dims(at, -2), part.shape)  # the same for all heads
            row = np.arange(len(flat))[:, None]
            np.add.at(flat, (row, index.reshape(len(flat), -1)), part.reshape(len(flat), -1))
        return self.pull_back((unbroadcast(total, self.arrays.log_forget.shape, F64),))

    def pull_back(self, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
        """C[t] = sum of log_forget[s] over s <= t, so d log_forget[s] = sum of d C[t] over t >= s."""
        (sums,) = gradients
        return (np.cumsum(sums[..., ::-1], axis=-1)[..., ::-1],)

    def check_places(self, function: str, q: Array, k: Array) -> None:
        check_integers(function, q, k, self.arrays.log_forget.shape[-1])


def fox(log_forget: npt.ArrayLike) -> Bias:
    """Forgetting Transformer: ``b[h] = C[i] - C[j]``, ``C = cumsum(log_forget)``, the gates between key and query.

    Parameters
    ----------
    log_forget : array (..., H, T)
        Logarithms of the forget gates of T positions, from 0 on. Finite. Leading axes broadcast as the batch axes of q.
        Differentiable.

    Returns
    -------
    Bias
        Meant for ``causal=True``. Takes integer positions from 0 to T - 1 only: TypeError, IndexError.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or not finite.

    Notes
    -----
    Lin et al. 2025 (Forgetting Transformer), equation 5. Sums are in float64: they grow with the length, and their
    differences would lose as many digits. The gate of position t counts for keys before t, so the diagonal is 0. It is
    CABLE, and x-transformers' data-dependent ALiBi. A constant gate f is ALiBi with slope -log f.

    Examples
    --------
    >>> import posenc
    >>> posenc.fox([[-0.5, -1.0, -2.0]]).matrix(3)
    array([[[ 0.,  1.,  3.],
            [-1.,  0.,  2.],
            [-3., -2.,  0.]]], dtype=float32)
    """
    given = as_data("fox", "log_forget", log_forget)
    if given.ndim < 2:
        fail(ValueError, "fox", "log_forget", f"{given.ndim} axes", "at least 2, heads and positions")
    gates = np.array(given, F64, order="C")
    with np.errstate(all="ignore"):
        finite = np.isfinite(gates).all() and np.isfinite(np.cumsum(gates, axis=-1)).all()
    if not finite:
        fail(ValueError, "fox", "log_forget", "NaN or infinity, or a sum beyond float64", "finite numbers")
    return Fox("fox", (gates,), (given.dtype,))
