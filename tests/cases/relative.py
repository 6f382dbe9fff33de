"""Operators that read q and k, and TUPE. Each oracle gathers the row of every pair: N x M x D numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from . import Case, at
from .bias import BiasCase, standing
from .rounding import LAMBDA, TANH

K = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class ContentCase(BiasCase):
    """The oracle is (q, k, rel, seen, scale, arrays) -> what the operator adds before the scale; k has H heads."""

    method: str = "logits"

    def expect(self, arguments):
        return (self.truth(arguments),)

    def truth(self, arguments):
        names = ("q", "k", "q_positions", "k_positions", "scale")
        q, k, q_positions, k_positions, scale = (arguments.get(name) for name in names)
        q, k = (np.asarray(x, np.float64) for x in (q, k))
        k = np.repeat(k, q.shape[-3] // k.shape[-3], -3)
        q_at, k_at = standing(q.shape[-2], k.shape[-2], q_positions, k_positions)
        rest = {name: value for name, value in arguments.items() if name not in names}
        scale = (q.shape[-1] or 1) ** -0.5 if scale is None else scale
        return self.adds(q, k, q_at, k_at, np.bool_(True), scale, **rest)

    def adds(self, q, k, q_at, k_at, seen, scale, **arrays):
        rel = np.expand_dims(k_at[..., None, :] - q_at[..., :, None], -3)
        arrays = {n: np.asarray(a, q.dtype) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        return self.oracle(q, k, rel, seen, scale, **arrays)

    def size(self, q, k, q_at, k_at, seen, scale, **arrays):
        """The sum of the absolute values of the products of which `adds` is the sum."""
        sizes = {n: np.abs(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        return self.adds(np.abs(q), np.abs(k), q_at, k_at, seen, scale, **sizes)

    def error(self, q, k, q_at, k_at, seen, scale, **arrays):
        """The error of `adds` in units of u: a product with a row of a table is computed once for all its pairs."""
        return LAMBDA * np.sqrt(q.shape[-1] + 2) * self.size(q, k, q_at, k_at, seen, scale, **arrays)


@dataclass(frozen=True, kw_only=True, eq=False)
class CopeCase(ContentCase):
    """A number between two products, at the sum of gates."""

    def size(self, q, k, q_at, k_at, seen, scale, table):
        return (np.abs(q) @ np.abs(table).swapaxes(-1, -2)).max(-1, keepdims=True)

    def error(self, q, k, q_at, k_at, seen, scale, table):
        """The error of the products, and that of the sum of gates times their steepest slope.

        A gate (1 + tanh(x / 2)) / 2 has a slope of at most 1/4, and three roundings and tanh's of its own."""
        root = LAMBDA * np.sqrt(q.shape[-1] + 2)
        products = root * np.abs(scale) * (np.abs(q) @ np.abs(k).swapaxes(-1, -2))
        counts = seen & (np.expand_dims(k_at[..., None, :] - q_at[..., :, None], -3) <= 0)
        gates = np.where(counts, products / 4 + TANH / 2 + 2, 0)
        sums = np.cumsum(gates[..., ::-1], -1)[..., ::-1] + 1
        slope = np.abs(np.diff(q @ table.swapaxes(-1, -2))).max(-1, keepdims=True, initial=0)
        return root * self.size(q, k, q_at, k_at, seen, scale, table) + slope * sums


def rows_of(table, index):
    """table (T, D) or (H, T, D), index (..., 1, N, M) -> the row of each pair, (..., H, N, M, D)."""
    if table.ndim == 2:
        return table[index]
    heads = np.arange(len(table))[:, None, None]
    return table[np.broadcast_to(heads, np.broadcast_shapes(heads.shape, index.shape)), index]


def clipped(rel, last):
    return np.clip(np.trunc(rel), -last, last).astype(int) + last


def shaw(q, k, rel, seen, scale, rel_k, rel_v=None):
    """Shaw et al. 2018, equation 4, the second term: q_i . a_clip(j - i)."""
    return np.einsum("...hid,...hijd->...hij", q, rows_of(rel_k, clipped(rel, rel_k.shape[-2] // 2)))


def transformer_xl(q, k, rel, seen, scale, r, u, v):
    """Dai et al. 2019, section 3.3, terms (b), (c) and (d): q.r + u.k + v.r."""
    of_key = np.einsum("hd,...hjd->...hj", u, k)[..., None, :]
    return of_key + shaw(q + v[:, None], k, rel, seen, scale, r)


@cache
def bucket(distance, buckets, max_position):
    """He et al. 2021: identity up to mid, then mid + ceil of a logarithm, its ratio compared as exact fractions."""
    mid, size = buckets // 2, abs(distance)
    if size <= mid:
        return distance
    s, power = 0, Fraction(size, mid) ** (mid - 1)
    while Fraction(max_position - 1, mid) ** s < power:
        s += 1
    return (mid + s) if distance > 0 else -(mid + s)


def deberta(q, k, rel, seen, scale, rel_q=None, rel_k=None, buckets=None, max_position=None, terms=("c2p", "p2c"),
            p2c_index="code"):  # fmt: skip
    """Equation 4 without its first term: q_i . Kr_d(i,j) + k_j . Qr_d(i,j) (or d(j,i), as it is printed)."""

    def index(distance, table):
        if buckets is not None:
            distance = np.vectorize(lambda d: bucket(int(d), buckets, max_position), otypes=[int])(distance)
        half = table.shape[-2] // 2
        return np.clip(np.trunc(distance) + half, 0, 2 * half - 1).astype(int)

    total = np.zeros((), q.dtype)
    if "c2p" in terms:
        total = total + np.einsum("...hid,...hijd->...hij", q, rows_of(rel_k, index(-rel, rel_k)))
    if "p2c" in terms:
        sign = -1 if p2c_index == "code" else 1
        total = total + np.einsum("...hjd,...hijd->...hij", k, rows_of(rel_q, index(sign * rel, rel_q)))
    return total


def cope(q, k, rel, seen, scale, table):
    """Golovneva et al. 2024, equations 3 to 5."""
    last = table.shape[-2] - 1
    counts = seen & (rel <= 0)
    product = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    gates = np.where(counts, 1 / (1 + np.exp(-np.where(counts, product, 0))), 0)
    p = np.minimum(np.cumsum(gates[..., ::-1], -1)[..., ::-1], last).astype(q.dtype)
    whole = np.floor(p).astype(int)
    z = q @ table.swapaxes(-1, -2)
    low, high = (np.take_along_axis(z, i, -1) for i in (whole, np.minimum(whole + 1, last)))
    return low + (p - whole) * (high - low)


def tupe(n=None, m=None, q_positions=None, k_positions=None, *, pos_q, pos_k, cls_to_any=None, any_to_cls=None,
         relative=None):  # fmt: skip
    """Ke et al. 2021, equations 7, 8 and 10: U_Q p_i . U_K p_j / sqrt(2 D), reset in column 0, then in row 0."""
    product = pos_q @ pos_k.swapaxes(-1, -2) / np.sqrt(2 * pos_q.shape[-1])
    if any_to_cls is not None:
        product[:, :, :1] = any_to_cls[:, None, None]
    if cls_to_any is not None:
        product[:, :1] = cls_to_any[:, None, None]
    if relative is None:
        return product
    from .attention import operators

    where = standing(pos_q.shape[1], pos_k.shape[1], q_positions, k_positions)
    return product + operators()[relative[0]].values(*where, **relative[1])


def nezha(dim, K=64):
    """Wei et al. 2019, equation 8: row t has sin and cos of t / 10000**(2 i / d)."""
    return sinusoids(np.arange(2 * K + 1), dim)


def xl_table(K, dim):
    """Dai et al. 2019: [sin | cos] of the distance i - j = -rel."""
    table = sinusoids(K - np.arange(2 * K + 1), dim)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], -1)


def sinusoids(positions, dim):
    w = np.longdouble(10000) ** -(np.arange(0, dim, 2, dtype=np.longdouble) / dim)
    angle = positions[:, None] * w
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(positions), -1)[:, :dim]


def make(**tables):
    """Queries and keys of three heads over one kv head, and the tables that `tables` make of a generator."""

    def arguments(rng, n):
        given = {name: made(rng) if callable(made) else made for name, made in tables.items()}
        return {"q": rng.standard_normal((2, 3, n, 4)), "k": rng.standard_normal((2, 1, n + 2, 4)), **given}

    return arguments


def placed(inner):
    def arguments(rng, n):
        return {
            **inner(rng, n), "q_positions": np.sort(rng.integers(-40, 40, n)),
            "k_positions": rng.uniform(-50, 50, (2, n + 2)),
        }  # fmt: skip

    return arguments


def real(**tables):
    def arguments(rng):
        q, k = rng.standard_normal((2, 8, 1024, 64))
        return {"q": q, "k": k, **{name: made(rng) for name, made in tables.items()}}

    return arguments


def normal(*shape):
    return lambda rng: rng.standard_normal(shape)


def sum_of_products(count):
    """`count` sums of 4 products of numbers below 5: half an ulp for every product and sum, at the size of the sums."""

    def tolerance(expected, work, arguments):
        return tuple(count * 8 * np.spacing(np.abs(e).max(initial=1).astype(work)) for e in expected)

    return tolerance


def make_tupe(rng, n):
    return {
        "pos_q": rng.standard_normal((3, n, 7)), "pos_k": rng.standard_normal((3, n + 2, 7)), "n": n, "m": n + 2,
        "cls_to_any": rng.standard_normal(3), "any_to_cls": rng.standard_normal(3),
    }  # fmt: skip


SHAW = {"rel_k": normal(3, 2 * K + 1, 4)}
XL = {"r": normal(3, 2 * K + 1, 4), "u": normal(3, 4), "v": normal(3, 4)}
DEBERTA = {"rel_q": normal(3, 2 * K, 4), "rel_k": normal(3, 2 * K, 4)}
QK = {"q": "b h n d", "k": "b g m d"}
# cope: a gate is off by an ulp, a sum of n of them by n ulps, and z changes by at most 10 from row to row
CASES = [
    ContentCase(
        function="shaw", oracle=shaw, tolerance=sum_of_products(1), make=make(rel_k=normal(2 * K + 1, 4)),
        axes={**QK, "rel_k": "t! d"}, data=("q", "k"), real=real(rel_k=normal(129, 64)),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="shaw", label="placed", oracle=shaw, tolerance=sum_of_products(1), make=placed(make(**SHAW)),
        axes={**QK, "rel_k": "h? t! d", "q_positions": "n", "k_positions": "b m"}, data=("q", "k"),
        real=real(rel_k=normal(8, 129, 64)),
        gradients=at("q", "k", "rel_k"),
    ),
    ContentCase(
        function="transformer_xl", oracle=transformer_xl, tolerance=sum_of_products(3), make=make(**XL),
        axes={**QK, "r": "h t! d", "u": "h d", "v": "h d"}, data=("q", "k"),
        real=real(r=normal(8, 2047, 64), u=normal(8, 64), v=normal(8, 64)),
        gradients=at("q", "k", "r", "u", "v"),
    ),
    ContentCase(
        function="transformer_xl", label="placed", oracle=transformer_xl, tolerance=sum_of_products(3),
        make=placed(make(**XL)), axes={"r": "h t! d", "u": "h d", "v": "h d"}, data=("q", "k"),
        real=real(r=normal(8, 2047, 64), u=normal(8, 64), v=normal(8, 64)),
        gradients=at("q", "k", "r", "u", "v"),
    ),
    ContentCase(
        function="deberta", oracle=deberta, tolerance=sum_of_products(2), make=make(**DEBERTA),
        axes={**QK, "rel_q": "h t d", "rel_k": "h t d"}, data=("q", "k"),
        real=real(rel_q=normal(8, 512, 64), rel_k=normal(8, 512, 64)),
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta", label="buckets", oracle=deberta, tolerance=sum_of_products(2), data=("q", "k"),
        make=placed(make(**DEBERTA, buckets=6, max_position=12, p2c_index="paper")), axes={"rel_q": "h t d"},
        real=real(rel_q=normal(8, 512, 64), rel_k=normal(8, 512, 64)),
        gradients=at("q", "k", "rel_q", "rel_k"),
    ),
    ContentCase(
        function="deberta", label="c2p", oracle=deberta, tolerance=sum_of_products(2), data=("q", "k"),
        make=make(rel_q=None, rel_k=normal(3, 2 * K, 4), terms=("c2p",), buckets=6, max_position=12),
        axes={"rel_k": "h t! d"},
        real=real(rel_q=lambda rng: None, rel_k=normal(8, 512, 64), terms=lambda rng: ("c2p",)),
        gradients=at("q", "k", "rel_k"),
    ),
    CopeCase(
        function="cope", oracle=cope, tolerance=sum_of_products(40), make=make(table=normal(7, 4)),
        axes={**QK, "table": "p d"}, data=("q", "k"), real=real(table=normal(64, 64)),
        gradients=at("q", "k", "table"),
    ),
    CopeCase(
        function="cope", label="placed", oracle=cope, tolerance=sum_of_products(40), data=("q", "k"),
        make=placed(make(table=normal(3, 7, 4), scale=1.5)), axes={"table": "h? p d"},
        real=real(table=normal(8, 64, 64)),
        gradients=at("q", "k", "table"),
    ),
    BiasCase(
        function="tupe", oracle=tupe, tolerance=sum_of_products(2), make=make_tupe, gradients=at(
            "pos_q", "pos_k", "cls_to_any", "any_to_cls"
        ), axes={"pos_q": "h n! d", "pos_k": "h m! d", "cls_to_any": "h", "any_to_cls": "h"},
        real=lambda rng: {"pos_q": rng.standard_normal((8, 1024, 64)), "pos_k": rng.standard_normal((8, 1024, 64)),
                          "n": 1024},
    ),
    Case(
        function="nezha", oracle=nezha, tolerance=lambda expected, work, arguments: (4e-16,), least=1,
        make=lambda rng, n: {"dim": n, "K": 1 + n // 2}, real=lambda rng: {"dim": 64},
    ),
    Case(
        function="xl_table", oracle=xl_table, tolerance=lambda expected, work, arguments: (4e-16,), least=1,
        make=lambda rng, n: {"K": n, "dim": 2 * n}, real=lambda rng: {"K": 1023, "dim": 512},
    ),
]  # fmt: skip
