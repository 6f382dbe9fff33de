"""A-priori bounds on the rounding errors of attention.

No bound comes from a computation in the precision under test, so none depends on the machine: a bound is a function of
the arguments, evaluated in float64.

Model. Every operation returns its exact result times 1 + d, |d| <= u (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 2.2); u = 2**-24 in float32, 2**-53 in float64. To first order the error of a result is
sum_k c_k d_k, with a coefficient c_k for every rounding d_k. Worst-case analysis takes u sum_k |c_k|, which for a sum
of n terms grows like n. Roundings of different operations are close to independent and to mean zero; then
|sum_k c_k d_k| <= LAMBDA u sqrt(sum_k c_k**2) holds with probability at least 1 - 2 exp(-LAMBDA**2 / 2)
(Hoeffding's inequality: Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput.
41, 2019, A2815-A2835), and grows like sqrt(n). The bounds here are of the second kind, because observed errors grow
like sqrt(n) too, so that a bound of the first kind would hide the loss of several bits. Hoeffding's inequality allows
every |d| to be u; a rounding error has a standard deviation of at most u / sqrt(3), for which LAMBDA = 4 is seven
standard deviations.

An error with an unknown sign that is the same for several terms (a rounded parameter, a polynomial in place of exp) is
not averaged away. So each quantity carries two errors, in units of u: `own`, the square root of the sum of squares
over roundings of its own, and `shared`, a bound on everything else.

Second-order terms are covered by a factor exp(2 max |error of a logit|).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LAMBDA = 4.0
SMALLEST_ROOT = 2.0**-511
"""The squares of smaller numbers underflow."""
EXP2 = 2.4  # exp2_ in csrc/kernels/base/elementary.h: 1.2 ulp, and an ulp is at most 2 u
TANH = 7.4  # tanh_, the same file: 3.7 ulp
LOG2_E = 0.25  # relative error of the constant log2(e), in either precision


def unit_roundoff(work: np.dtype) -> float:
    return float(np.finfo(work).eps) / 2


@dataclass(frozen=True)
class Error:
    """The error of each entry of an array, in units of u."""

    own: Array
    shared: Array

    def times(self, factor: Any) -> Error:
        """The error of the exact product with `factor`."""
        return Error(self.own * np.abs(factor), self.shared * np.abs(factor))

    def plus(self, own: Any = 0.0, shared: Any = 0.0) -> Error:
        """With further roundings: `own` is the root of the sum of the squares of their coefficients."""
        return Error(np.hypot(self.own, own), self.shared + shared)

    @property
    def bound(self) -> Array:
        return LAMBDA * self.own + self.shared


class BlockedSum:
    """A sum as the kernels form it: terms in order within blocks of 64, each block from 0, then one block after the
    other in any order. Every rounding is relative to a partial sum.

    A sum of consecutive terms is a difference of two cumulative sums, so it is at most their maximum less their
    minimum. A sum of blocks is at most the sum of their absolute values.
    """

    BLOCK = 64

    def __init__(self) -> None:
        self._count = 0
        self._blocks = 0
        self._sum: Any = 0.0
        self._high: Any = 0.0
        self._low: Any = 0.0
        self._squares: Any = 0.0
        self._totals: Any = 0.0

    def add(self, term: Array) -> None:
        """The next term: its product and its addition are rounded."""
        self._sum = self._sum + term
        self._high, self._low = np.maximum(self._high, self._sum), np.minimum(self._low, self._sum)
        self._squares = self._squares + term**2
        self._count += 1
        if self._count == self.BLOCK:
            self.end_block()

    def end_block(self) -> None:
        self._squares = self._squares + self._count * (self._high - self._low) ** 2
        self._totals = self._totals + np.abs(self._sum)
        self._blocks += self._count > 0
        self._count, self._sum, self._high, self._low = 0, 0.0, 0.0, 0.0

    @property
    def squares(self) -> Any:
        """The sum of the squares of the coefficients of all roundings. Each half of a block may be added by itself,
        which rescales what is there, and adds."""
        self.end_block()
        return self._squares + 4 * self._blocks * self._totals**2


def capped_error(pairs: Any) -> Error:
    """The error of the logits of attention before the biases, for the `pairs` of cases.attention.

    Roundings: the scale (float32 only, as of every parameter), its product with the queries, D products and D - 1
    additions in any order, two additions for each operator that reads q and k, the cap. The case of an operator knows
    the error of the operator itself.
    """
    size = np.abs(pairs.scale)
    q, k = np.abs(pairs.q), np.abs(pairs.k).swapaxes(-1, -2)
    product = size * (q @ k)
    whole = product + size * pairs.of_content("size")
    packed = LAMBDA * size * np.sqrt(q**2 @ k**2)
    error = Error(
        np.hypot(np.sqrt(q.shape[-1] + 1) * product, np.sqrt(2 * len(pairs.content)) * whole),
        np.abs(pairs.products) + packed + size * pairs.of_content("error"),
    )
    if pairs.softcap is None:
        return error
    slope, x, y = pairs.slope, np.abs(pairs.products), np.abs(pairs.capped)
    return error.times(slope).plus(np.hypot(slope * x, y), 2 * slope * x + (TANH + 1) * y)


def logit_error(pairs: Any, work: np.dtype) -> Error:
    """The error of the logits of attention: the error before the biases, an addition for each bias, and the errors of
    the biases."""
    biases = sum((np.abs(np.where(np.isfinite(b), b, 0)) for b in pairs.numbers), start=np.zeros(()))
    last = np.abs(pairs.capped) + np.abs(pairs.scale) * pairs.of_content("size")
    own = np.sqrt(2 * len(pairs.numbers)) * (last + biases)
    return capped_error(pairs).plus(own, sum(pairs.number_errors(work), start=np.zeros(())) / unit_roundoff(work))


def weight_error(logits: Error, distance: Array) -> Error:
    """The relative error of exp2(-distance log2(e)), where `distance` is the maximum (or lse) minus the logit."""
    return logits.plus(np.sqrt(2) * np.abs(distance), LOG2_E * np.abs(distance) + EXP2)


def attention_bounds(pairs: Any, out: Array, lse: Array, work: np.dtype) -> tuple[Array, Array]:
    """Bounds on |out - exact| and |lse - exact|, entry by entry.

    With weights w_j (1 + e_j), out = sum_j w_j v_j / sum_j w_j is off by sum_j p_j e_j (v_j - out) to first order, and
    lse by sum_j p_j e_j: an error that all weights share cancels in out. The roundings of both sums and of the
    division are added. A weight below the smallest normal number is flushed to 0, and so are its product with a value,
    the sum of a block that is rescaled, and the result, the last three before dropout's factor. A sink is one more key,
    whose logit is exact and whose value is 0; it is a block of its own. Dropout multiplies the values of a pair by an
    exact factor; two roundings of 1 - dropout and its product with the sum are added.
    """
    u, m = unit_roundoff(work), pairs.k.shape[-2]
    p = pairs.weights(lse)
    top = np.max(np.where(pairs.seen, pairs.logits, -np.inf), -1, keepdims=True, initial=-np.inf)
    top = np.maximum(top, pairs.sink)
    distance = np.where(p > 0, top - np.where(p > 0, pairs.logits, 0), 0)
    has_sink = bool(np.isfinite(pairs.sink).any())
    blocks = -(-m // BlockedSum.BLOCK) + has_sink
    errors = weight_error(logit_error(pairs, work), distance).plus(0.0, (EXP2 + 1) * max(blocks - 1, 0))
    own, shared = (np.broadcast_to(np.where(p > 0, x, 0), p.shape) for x in (errors.own, errors.shared))
    growth = np.exp(2 * u * np.max(LAMBDA * own + shared, -1, keepdims=True, initial=0))
    sums, totals, of_rows = BlockedSum(), BlockedSum(), [BlockedSum() for _ in pairs.rows]
    squares, systematic, largest = (np.zeros(out.shape) for _ in range(3))
    own_of_sink, shared_of_sink = np.zeros(()), np.zeros(())
    if has_sink:
        to_sink = np.where(np.isfinite(pairs.sink), top - np.where(np.isfinite(pairs.sink), pairs.sink, 0), 0)
        weight = np.where(
            np.isfinite(pairs.sink), np.exp(pairs.sink - np.where(np.isfinite(lse), lse, 0)[..., None]), 0
        )
        of_sink = weight_error(Error(np.zeros(()), np.zeros(())), to_sink).plus(0.0, (EXP2 + 1) * (blocks - 1))
        own_of_sink, shared_of_sink = weight * of_sink.own, weight * of_sink.shared
        totals.add(weight)
        totals.end_block()
        squares += (own_of_sink * out) ** 2
        systematic += np.abs(shared_of_sink * out)
    for j in range(m):
        weight, kept = p[..., j, None], pairs.kept[..., j, None]
        value, rows = kept * pairs.v[..., j, None, :], [kept * row for row in pairs.value_rows(j)]
        whole = sum(rows, start=value)
        sums.add(weight * value)
        totals.add(weight)
        for of_operator, row in zip(of_rows, rows, strict=True):
            of_operator.add(weight * np.abs(row))
        deviation = weight * np.abs(whole - out)
        squares += (own[..., j, None] * deviation) ** 2
        systematic += shared[..., j, None] * deviation
        largest = np.maximum(largest, np.where(pairs.seen[..., j, None], np.abs(whole), 0))
    squares = squares + sums.squares + sum(s.squares for s in of_rows) + totals.squares * out**2
    tiny, last = float(np.finfo(work).tiny), 1 if np.all(pairs.kept == 1) else 3
    root = np.sqrt(squares) + m * SMALLEST_ROOT
    of_out = u * (LAMBDA * root + systematic + last * np.abs(out)) * growth
    of_out = of_out + tiny * (m * largest + (m + blocks + 1) * pairs.kept.max(initial=1))
    own_of_lse = ((p * own) ** 2).sum(-1, keepdims=True) + own_of_sink**2 + totals.squares
    own_of_lse = np.sqrt(np.broadcast_to(own_of_lse, out.shape[:-1] + (1,))[..., 0])
    shared_of_lse = np.broadcast_to((p * shared).sum(-1, keepdims=True) + shared_of_sink, out.shape[:-1] + (1,))[..., 0]
    seen = np.where(np.isfinite(lse), np.abs(lse), 0)
    of_lse = u * (LAMBDA * own_of_lse + shared_of_lse + seen) * growth[..., 0] + m * tiny
    return of_out, of_lse


def gradient_bounds(
    pairs: Any, grad: Array, out: Array, lse: Array, grad_lse: Array | None, work: np.dtype
) -> tuple[Array, Array, Array]:
    """Bounds on the errors of dq, dk and dv, entry by entry, for the same out and lse.

    Operators that read q and k, and dropout, are left out. dS = p (dp - delta), dX = dS slope, dq = scale sum_j dX k_j,
    dk = scale sum_i dX q_i, dv = sum_i p g_i. The weight p has the error of exp(logit - lse), dp = g.v that of a
    product of rows, and delta, which is summed in double, that of its rounding, which all pairs of a query share. The
    slope 1 - t**2 of a cap has the error of t. Each sum over keys or queries rounds its products and partial sums.
    Terms and results below the smallest normal number may be flushed.
    """
    u, tiny = unit_roundoff(work), float(np.finfo(work).tiny)
    p, v, g = pairs.weights(lse), np.abs(pairs.v), np.abs(grad)
    seen = np.isfinite(lse)[..., None] & (p > 0)
    distance = np.where(seen, np.where(np.isfinite(lse), lse, 0)[..., None] - np.where(seen, pairs.logits, 0), 0)
    weight = weight_error(logit_error(pairs, work), distance)
    weight = Error(*(np.broadcast_to(np.where(seen, x, 0), p.shape) for x in (weight.own, weight.shared)))
    delta = (grad * out).sum(-1) - (0 if grad_lse is None else grad_lse)
    ds = np.where(p == 0, 0, p * (grad @ pairs.v.swapaxes(-1, -2) - delta[..., None]))
    products = np.sqrt(v.shape[-1] + 1) * p * (g @ v.swapaxes(-1, -2))
    error = weight.times(ds).plus(np.hypot(products, np.sqrt(3) * ds), p * np.abs(delta)[..., None])
    if pairs.softcap is not None:
        cap = capped_error(pairs).times(2 * np.abs(pairs.capped) / pairs.softcap**2 * np.abs(ds))
        error = error.times(pairs.slope).plus(np.hypot(cap.own, np.sqrt(2) * ds), cap.shared)
    dx, size = ds * pairs.slope, np.abs(pairs.scale)
    growth = np.exp(2 * u * float(np.max(LAMBDA * weight.own + weight.shared, initial=0)))

    def of_sum(terms: Array, error: Error, rows: Array, kv_heads: bool) -> Array:
        """The bound of sum_j terms[.., i, j] rows[.., j, c]; of the heads that share a kv head if `kv_heads`."""
        sums, own, shared = BlockedSum(), np.zeros(()), np.zeros(())
        for j in range(terms.shape[-1]):
            row = rows[..., j, None, :]
            sums.add(terms[..., j, None] * row)
            own = own + (error.own[..., j, None] * row) ** 2
            shared = shared + error.shared[..., j, None] * np.abs(row)
        squares, whole = own + sums.squares, terms @ rows
        largest = np.abs(rows).max(axis=-2, keepdims=True, initial=1)
        flushed = (terms.shape[-1] + 2) * tiny * np.broadcast_to(largest, whole.shape)
        if kv_heads:
            by_head = [
                np.broadcast_to(x, whole.shape).reshape(
                    *whole.shape[:-3], whole.shape[-3] // pairs.share, pairs.share, *whole.shape[-2:]
                )
                for x in (squares, shared, whole, flushed)
            ]
            squares, shared, whole, flushed = (x.sum(-3) for x in by_head)
            squares = squares + pairs.share * (np.abs(by_head[2]).sum(-3)) ** 2
        return u * (LAMBDA * np.sqrt(squares) + shared + 3 * np.abs(whole)) * growth + flushed

    def turned(error: Error) -> Error:
        return Error(error.own.swapaxes(-1, -2), error.shared.swapaxes(-1, -2))

    of_weights = weight.times(p)
    # the heads of dk have the same scale, or each its own
    scaled_q = size * pairs.q
    of_q = size * of_sum(dx, error, pairs.k, kv_heads=False)
    of_k = of_sum(dx.swapaxes(-1, -2), turned(error), scaled_q, kv_heads=True)
    return of_q, of_k, of_sum(p.swapaxes(-1, -2), turned(of_weights), grad, kv_heads=True)
