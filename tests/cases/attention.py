"""Attention with operators of every kind, and the stages of its computation, of which bounds are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import posenc
from posenc import reference
from posenc.reference.attention import visible
from posenc.reference.bias import positions

from . import BF16, F16, F32, F64, Case, array_paths, at, bias, terms, ulp
from .bias import operator_of
from .rounding import attention_bounds


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCase(Case):
    """A case in whose arguments `bias` is a tuple of (function, its arguments)."""

    function: str = "attention"
    tolerance: Callable[..., Any] = field(default_factory=lambda: rounding_bounds)
    data: tuple[str, ...] = ("q", "k", "v")

    def with_operators(self, arguments, module=posenc):
        """The same arguments with operators of posenc in `bias`, or of another module with these functions."""
        if "bias" not in arguments:
            return arguments
        return {**arguments, "bias": tuple(operator_of(one, module) for one in arguments["bias"])}

    def call(self, arguments, **options):
        return super().call(self.with_operators(arguments), **options)

    def bounds(self, expected, dtype, arguments):
        has_float16 = F16 in {dtype, *(getattr(arguments.get(name), "dtype", dtype) for name in "qkv")}
        is_low = arguments.get("precision") == "low" and dtype == BF16
        multiplies = {"avx512bf16": is_low and not has_float16, "amx": True, "amx-emulated": True}
        if dtype in (F16, BF16) and multiplies.get(posenc.runtime.isa()):
            arguments = {**arguments, "sixteen": (is_low, has_float16)}
        return super().bounds(expected, dtype, arguments)

    def truth(self, arguments):
        return self.twin(arguments)

    def precisely(self, arguments):
        """The operators know the precise arguments that are theirs."""
        if not terms(arguments):
            return arguments
        return {**arguments, "bias": tuple((name, operators()[name].precisely(x)) for name, x in terms(arguments))}

    def twin(self, arguments):
        return getattr(reference, self.function)(**self.with_operators(arguments, reference))

    def gradient(self, grads, arguments):
        """Gradients from the out and lse of posenc."""
        arguments = {**self.with_operators(arguments), "return_lse": True}
        out, lse = posenc.attention(**arguments)
        del arguments["return_lse"]
        return posenc.attention_vjp(*grads[:1], **arguments, out=out, lse=lse, grad_lse=(*grads, None)[1])

    def vjp(self, grads, arguments):
        """Gradients by name; those of operators have names like "bias 0 slopes"."""
        found = self.gradient(grads, arguments)._asdict()
        biases = found.pop("bias")
        if found["sink"] is None:
            del found["sink"]
        nested = {f"bias {i} {name}": g for i, one in enumerate(biases) for name, g in one._asdict().items()}
        nested = {name: g[0] if type(g) is tuple and len(g) == 1 else g for name, g in nested.items()}
        return {**found, **nested}

    def result_dtypes(self, dtype, count):
        return (dtype, F64 if dtype == F64 else F32)[:count]


@cache
def operators():
    """One case of each operator on the logits, by name, for its bounds."""
    from . import CASES

    return {case.function: case for case in CASES if isinstance(case, bias.BiasCase)}


@dataclass(frozen=True)
class Pairs:
    """The operands of the softmax, (..., H, N, M). Keys and values are repeated for each head of their kv head."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    share: int
    """Number of heads per kv head."""
    scale: float
    softcap: float | None
    seen: np.ndarray
    products: np.ndarray
    """The logits before the cap: q.k and the operators that read q and k, times the scale."""
    capped: np.ndarray
    logits: np.ndarray
    """The logits with the biases."""
    numbers: list[np.ndarray]
    """The biases that do not read queries and keys."""
    rows: list[np.ndarray]
    """Shaw's rows that are added to the values, (..., H, N, M, E)."""
    content: list
    """(case, arguments, positions of queries and of keys) of the operators that read queries and keys."""
    after: list
    """(case, arguments) of the biases."""
    sink: np.ndarray
    """A logit without a value of each head, (..., H, 1, 1), or -inf."""
    kept: np.ndarray
    """The factors of dropout, (..., H, N, M)."""

    @property
    def slope(self):
        """The derivative of the cap."""
        return 1 if self.softcap is None else 1 - (self.capped / self.softcap) ** 2

    def weights(self, lse):
        """exp(logits - lse), and 0 for pairs that are not visible."""
        shift = np.where(np.isfinite(lse), lse, 0)[..., None]
        return np.where(self.seen, np.exp(np.where(self.seen, self.logits - shift, 0)), 0)

    def value_rows(self, j):
        """The rows that operators add to the value of key j, (..., H, N, E) each."""
        return [rows[..., j, :] for rows in self.rows]

    def of_content(self, method):
        """The sum of `size` or `error` over the operators that read queries and keys, before the scale."""
        rest = self.seen, self.scale
        terms = (getattr(c, method)(self.q, self.k, *at_, *rest, **given) for c, given, at_ in self.content)
        return sum(terms, np.zeros(()))

    def number_errors(self, work):
        """Bounds on the errors of the biases: the tolerances of their own cases."""
        numbers = [np.where(np.isfinite(b), b, 0) for b in self.numbers]
        return [case.tolerance((b,), work, given)[0] for b, (case, given) in zip(numbers, self.after, strict=True)]


def pairs_of(
    q,
    k,
    v,
    *,
    bias=(),
    scale=None,
    softcap=None,
    align=None,
    q_positions=None,
    k_positions=None,
    sink=None,
    dropout=0.0,
    seed=None,
    invariant=False,
    precision="high",
    **mask,
):
    """The stages of `posenc.reference.attention` up to the softmax, of which bounds are made."""
    q, k, v = (np.asarray(x, F64) for x in (q, k, v))
    heads, n, m, width = *q.shape[-3:-1], k.shape[-2], q.shape[-1] or 1
    share = heads // k.shape[-3] if k.shape[-3] else 1
    k, v = np.repeat(k, share, -3), np.repeat(v, share, -3)
    batch = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    i, j = positions(n, m, q_positions, k_positions, align)
    made = [(operators()[name], given, operator_of((name, given), reference)) for name, given in bias]
    made = [(case, {a: x for a, x in given.items() if a != "at"}, one, one.reads(i, j)) for case, given, one in made]
    content, after = ([one for one in made if one[0].method == method] for method in ("logits", "matrix"))
    numbers = [one.equation(*where) for _, _, one, where in after]
    seen = np.broadcast_to(visible(i, j, **mask), (*batch, heads, n, m))
    for number in numbers:
        seen = seen & (number != -np.inf)
    if scale is None:
        scale = next((one.default_scale(width) for *_, one, _ in made if one.default_scale), width**-0.5)
    elif np.ndim(scale):
        scale = np.asarray(scale, F64)[:, None, None]  # one for each head
    products = q @ k.swapaxes(-1, -2)
    for _, _, one, where in content:
        products = products + one.equation(q, k, *where, seen, scale)
    products = products * scale
    capped = products if softcap is None else softcap * np.tanh(products / softcap)
    logits = np.broadcast_to(sum(numbers, start=capped), seen.shape)
    rows = [one.added_to_values(*where) for _, _, one, where in content if one.added_to_values]
    sink = np.full(heads, -np.inf) if sink is None else np.asarray(sink, F64)
    kept = reference.dropout_factors(seen.shape, dropout, seed) if dropout else np.ones(seen.shape)
    return Pairs(
        q,
        k,
        v,
        share,
        scale,
        softcap,
        seen,
        products,
        capped,
        logits,
        numbers,
        rows,
        [(case, given, where) for case, given, _, where in content],
        [(case, given) for case, given, *_ in after],
        sink[..., None, None],
        kept,
    )


def rounding_bounds(expected, work, arguments):
    """The a-priori bounds of cases/rounding.py; doubled in float64, because the oracle computes in float64 too."""
    options = {name: value for name, value in arguments.items() if name not in ("return_lse", "sixteen")}
    pairs, (out, lse) = pairs_of(**options), ANY.truth({**options, "return_lse": True})
    bounds = [(2 if work == F64 else 1) * bound for bound in attention_bounds(pairs, out, lse, work)]
    if "sixteen" in arguments:
        errors = sixteen_errors(pairs, lse, *arguments["sixteen"])
        bounds = [bound + error for bound, error in zip(bounds, errors, strict=True)]
    return tuple(bounds[: len(expected)])


def sixteen_errors(pairs, lse, is_low, has_float16):
    """Bounds on the errors of out and lse by products of 16-bit operands, which docs/explanations/speed.md derives."""
    left_out = 2.0**-16 if has_float16 else 0.0
    of_weight = (2.0**-8 if is_low else 2.0**-17) + left_out
    largest = np.max(np.abs(pairs.q) @ np.abs(pairs.k).swapaxes(-1, -2), -1, keepdims=True, initial=0)
    of_score = np.abs(pairs.scale) * largest * (pairs.q.shape[-1] * 2.0**-24 + left_out)
    size = (pairs.weights(lse) * pairs.kept) @ np.abs(pairs.v)
    return size * (2 * np.expm1(2 * of_score) + of_weight), np.broadcast_to(of_score[..., 0], lse.shape)


def make_plain(rng, n):
    return {
        "q": rng.standard_normal((4, n, 8)),
        "k": rng.standard_normal((2, n + 3, 8)),
        "v": rng.standard_normal((2, n + 3, 5)),
        "return_lse": True,
    }


def make_full(rng, n):
    """Broadcast batch axes, a cap, three biases, every mask, and queries for which no key is visible."""
    m = n + 3
    return {
        "q": rng.standard_normal((2, 4, n, 16)),
        "k": rng.standard_normal((2, m, 16)),
        "v": rng.standard_normal((2, 2, m, 16)),
        "softcap": 5.0,
        "return_lse": True,
        "causal": True,
        "window": (40, None),
        "q_positions": np.sort(rng.integers(0, 2 * m, n)),
        "k_positions": np.arange(m) * 2,
        "keep": rng.random((2, 1, n, m)) > 0.3,
        "q_segments": rng.integers(0, 2, n),
        "k_segments": rng.integers(0, 2, m),
        "bias": (
            ("alibi", {"slopes": rng.uniform(0, 1, 4)}),
            ("toeplitz", {"diagonals": rng.standard_normal((4, n + m - 1))}),
            ("dense", {"array": rng.standard_normal((4, n, m))}),
        ),
    }


def make_sink(rng, n):
    """A sink for each head and row of the batch, queries that see no key, and -inf for one head."""
    m = n + 3
    sink = rng.standard_normal((2, 4))
    sink[0, 1] = -np.inf
    keep = rng.random((2, 1, n, m)) > 0.3
    keep[1, :, ::3] = False
    return {
        "q": rng.standard_normal((2, 4, n, 3)),
        "k": rng.standard_normal((2, m, 3)),
        "v": rng.standard_normal((2, 2, m, 2)),
        "softcap": 2.0,
        "causal": True,
        "align": "end",
        "keep": keep,
        "sink": sink,
        "bias": (("alibi", {"slopes": rng.uniform(0, 1, 4)}),),
    }


def make_dropout(rng, n):
    """Heads that share keys, with values that an operator adds to, a sink, a cap, and queries that see no key."""
    shaw = ("shaw", {"rel_k": rng.standard_normal((5, 3)), "rel_v": rng.standard_normal((4, 5, 2))})
    given = make_sink(rng, n)
    return {**given, "bias": (*given["bias"], shaw), "return_lse": True, "dropout": 0.3, "seed": 2**64 - 3}


def make_relative(rng, n):
    """Small tables, so that there are few central differences; causal, capped, grouped, irregular positions, and
    queries for which no key is visible."""
    m, normal = n + 2, rng.standard_normal
    return {
        "q": normal((2, 2, n, 3)),
        "k": normal((1, m, 3)),
        "v": normal((2, 1, m, 2)),
        "softcap": 2.0,
        "scale": 0.4,
        "causal": True,
        "window": (2 * n, None),
        "q_positions": np.sort(rng.integers(0, 2 * m, n)),
        "k_positions": np.sort(rng.uniform(0, 2 * m, (2, m))),
        "keep": rng.random((2, 1, n, m)) > 0.2,
        "bias": (
            ("shaw", {"rel_k": normal((5, 3)), "rel_v": normal((2, 5, 2))}),
            ("transformer_xl", {"r": normal((2, 5, 3)), "u": normal((2, 3)), "v": normal((2, 3))}),
            ("deberta", {"rel_q": normal((2, 4, 3)), "rel_k": normal((2, 4, 3)), "p2c_index": "paper"}),
            ("cope", {"table": normal((3, 3))}),
            (
                "tupe",
                {
                    "pos_q": normal((2, n, 2)),
                    "pos_k": normal((2, m, 2)),
                    "cls_to_any": normal(2),
                    "any_to_cls": normal(2),
                },
            ),
            ("gated_distance", {"gates": normal((2, n, 2)), "table": normal((2, 4, 2)), "rows": "past"}),
            ("gated_distance", {"gates": normal((2, n, 1)), "table": normal((3, 1))}),
        ),
    }


def make_gradient(rng, n):
    """Causal, windowed, capped, grouped; irregular positions, a key mask, batch axes that broadcast. Without lse, which
    is -inf for a query without a visible key and so has no central differences."""
    m = n + 3
    return {
        "q": rng.standard_normal((2, 4, n, 3)),
        "k": rng.standard_normal((2, m, 3)),
        "v": rng.standard_normal((2, 2, m, 2)),
        "softcap": 2.0,
        "causal": True,
        "window": (2 * n, None),
        "q_positions": np.sort(rng.uniform(0, 2 * m, n)),
        "k_positions": np.arange(m) * 2,
        "keep": rng.random((2, 1, n, m)) > 0.2,
        "q_segments": rng.integers(0, 2, n),
        "k_segments": rng.integers(0, 2, m),
        "bias": (
            ("alibi", {"slopes": rng.uniform(0, 1, 4)}),
            ("kerple_log", {"r1": rng.uniform(0.1, 2, 4), "r2": rng.uniform(0, 1, 4)}),
            ("dense", {"array": rng.standard_normal((n, m))}),
            ("dense", {"array": rng.standard_normal((4, n, m))}),
        ),
    }


def make_gradient_of_rows(rng, n):
    """Consecutive positions: the gradients of the biases are sums along diagonals, rows and columns."""
    m = n + 3
    return {
        "q": rng.standard_normal((2, 1, 4, n, 3)),
        "k": rng.standard_normal((3, 2, m, 3)),
        "v": rng.standard_normal((2, m, 2)),
        "softcap": 2.0,
        "causal": True,
        "window": (2 + n // 2, 5),
        "align": "end",
        "return_lse": True,
        "scale": -0.7,
        "bias": (
            ("alibi", {"slopes": rng.uniform(0, 1, 4)}),
            ("toeplitz", {"diagonals": rng.standard_normal((4, n + m - 1))}),
            ("kerple_log", {"r1": rng.uniform(0.1, 2, 4), "r2": rng.uniform(0, 1, 4)}),
            ("dense", {"array": rng.standard_normal((2, 1, 1, 1, m))}),
            ("dense", {"array": rng.standard_normal((n, 1))}),
            ("dense", {"array": rng.standard_normal((3, 4, n, m))}),
        ),
    }


def make_placed(rng, n):
    """Operators at positions of their own, on one side or both, irregular and consecutive, in one call."""
    m, normal = n + 2, rng.standard_normal

    def rows_and_columns(least=-9, most=9):
        return {"q_positions": rng.integers(least, most, n), "k_positions": rng.integers(least, most, m)}

    return {
        "q": normal((2, 2, n, 3)),
        "k": normal((1, m, 3)),
        "v": normal((2, 1, m, 2)),
        "scale": 0.4,
        "softcap": 2.0,
        "causal": True,
        "align": "end",
        "window": (2 * n, None),
        "return_lse": True,
        "bias": (
            ("alibi", {"slopes": rng.uniform(0, 1, 2), "at": rows_and_columns()}),
            (
                "alibi",
                {"slopes": rng.uniform(0, 1, 2), "at": {"q_positions": np.arange(n) + 3, "k_positions": np.arange(m)}},
            ),
            (
                "kerple_log",
                {"r1": rng.uniform(0.1, 2, 2), "r2": rng.uniform(0, 1, 2), "at": {"k_positions": rng.uniform(0, 9, m)}},
            ),
            (
                "fire",
                {
                    "w1": normal((2, 1)),
                    "b1": normal(2),
                    "w2": normal((2, 2)),
                    "b2": normal(2),
                    "c": np.array(0.5),
                    "threshold": np.array(4.0),
                    "at": rows_and_columns(0),
                },
            ),
            ("fox", {"log_forget": -rng.uniform(0, 1, (2, 9)), "at": rows_and_columns(0)}),
            ("shaw", {"rel_k": normal((5, 3)), "rel_v": normal((2, 5, 2)), "at": rows_and_columns()}),
            (
                "transformer_xl",
                {"r": normal((2, 5, 3)), "u": normal((2, 3)), "v": normal((2, 3)), "at": rows_and_columns()},
            ),
            (
                "deberta",
                {
                    "rel_q": normal((2, 4, 3)),
                    "rel_k": normal((2, 4, 3)),
                    "at": {"q_positions": np.arange(n) - 2, "k_positions": np.arange(m)},
                },
            ),
            ("cope", {"table": normal((3, 3))}),
            (
                "tupe",
                {
                    "pos_q": normal((2, n, 2)),
                    "pos_k": normal((2, m, 2)),
                    "cls_to_any": normal(2),
                    "any_to_cls": normal(2),
                },
            ),
            ("sandwich", {"heads": 2, "dim": 6, "at": rows_and_columns()}),
            (
                "gated_distance",
                {
                    "gates": normal((2, n, 2)),
                    "table": normal((2, 6, 2)),
                    "rows": "buckets",
                    "max_distance": 7,
                    "at": rows_and_columns(),
                },
            ),
        ),
    }


def with_gradients(make, *names):
    """Gradients of q, k, v, the named arguments, and all arrays of the operators, by names like "bias 0 slopes"."""
    return {"make": make, "gradients": at("q", "k", "v", *names) | arrays_of_bias(make(np.random.default_rng(0), 3))}


def arrays_of_bias(arguments):
    """Gradients of all arrays of the operators, with their paths in the arguments."""
    paths = [("bias", *path) for path in array_paths(arguments.get("bias", ())) if "at" not in path]
    return {" ".join(["bias", str(path[1]), *(x for x in path[2:] if isinstance(x, str))]): path for path in paths}


def real_attention(rng):
    q, k, v = rng.standard_normal((3, 8, 1024, 64))
    return {"q": q, "k": k, "v": v, "causal": True}


def inside(case):
    """The operator of a case inside attention, with the queries, keys and positions that the case makes."""

    def make(rng, n):
        given = case.make(rng, n)
        operator = {name: value for name, value in given.items() if name not in bias.OF_METHOD}
        positions = {name: given[name] for name in ("q_positions", "k_positions") if name in given}
        heads, n, m = np.shape(case.truth(given))[-3:]
        q = given["q"] if "q" in given else rng.standard_normal((heads, n, 3))
        k = given["k"] if "k" in given else rng.standard_normal((1, m, 3))
        v = rng.standard_normal((*k.shape[:-1], 2))
        where = positions or {"align": "end"}
        return {"q": q, "k": k, "v": v, **where, "return_lse": True, "bias": ((case.function, operator),)}

    arrays = {f"bias 0 {a}": ("bias", 0, 1, *path) for a, path in case.gradients.items() if a not in bias.OF_METHOD}
    return AttentionCase(label=f"with {case.name}", make=make, gradients=at("q", "k", "v") | arrays)


def with_unit_values(arguments):
    """The values with which attention returns its weights."""
    k = arguments["k"]
    return {**arguments, "v": np.broadcast_to(np.eye(k.shape[-2], dtype=k.dtype), (*k.shape[:-1], k.shape[-2]))}


def make_weights(rng, n):
    given = {name: value for name, value in make_full(rng, n).items() if name not in ("v", "return_lse")}
    shaw = ("shaw", {"rel_k": rng.standard_normal((7, 16))})
    return {**given, "bias": (*given["bias"], shaw), "sink": rng.standard_normal(4)}


def make_merge(rng, n):
    lses = rng.standard_normal((3, 2, n))
    lses[0, :, ::3] = -np.inf
    lses[:, :, ::5] = -np.inf
    outs = rng.standard_normal((3, 2, n, 7))
    return {"outs": np.where(np.isneginf(lses)[..., None], 0.0, outs), "lses": lses}


def merge_tolerance(expected, work, arguments):
    """The weights add up to 1, and each is off by an ulp of a difference of lses and of exp. So the error is at most as
    many ulps of the largest part as there are parts, and two more for the sum; for lse, of the largest lse."""
    sizes = [np.abs(x[np.isfinite(x)]).max(initial=1.0) for x in (arguments["outs"], arguments["lses"])]
    return tuple((2 * len(arguments["outs"]) + 2) * ulp(size, work) for size in sizes)


MASKED = {"q": "b h! n d", "k": "g m d", "v": "b g m e", "keep": "b 1 n? m?"}
CASES = [
    AttentionCase(
        **with_gradients(make_plain), real=real_attention, axes={"q": "h! n d", "k": "g m d", "v": "g m e"},
    ),
    AttentionCase(label="gradient", **with_gradients(make_gradient), axes=MASKED),
    AttentionCase(label="rows", **with_gradients(make_gradient_of_rows)),
    AttentionCase(
        label="full", make=make_full,
        axes={**MASKED, "q_positions": "n", "k_positions": "m", "q_segments": "n", "k_segments": "m"},
    ),
    AttentionCase(
        label="sink", **with_gradients(make_sink, "sink"), axes={**MASKED, "sink": "b h!"},
    ),
    AttentionCase(
        label="dropout", **with_gradients(make_dropout, "sink"), axes={**MASKED, "sink": "b h!"},
    ),
    AttentionCase(
        label="relative", **with_gradients(make_relative),
        axes={**MASKED, "q": "b h! n d!", "v": "b g m e!", "q_positions": "n", "k_positions": "b m"},
    ),
    AttentionCase(
        label="placed", **with_gradients(make_placed), axes={"q": "b h! n! d!", "k": "g m! d", "v": "b g m e!"},
    ),
    AttentionCase(
        function="attention_weights", make=make_weights, data=("q", "k"),
        tolerance=lambda expected, work, arguments: rounding_bounds(expected, work, with_unit_values(arguments)),
        axes={
            "q": "b h! n d", "k": "g m! d", "q_positions": "n", "k_positions": "m", "q_segments": "n",
            "k_segments": "m", "keep": "b 1 n? m?", "sink": "h",
        },
    ),
    AttentionCase(
        function="merge_attention", tolerance=merge_tolerance, make=make_merge,
        axes={"outs": "p b n e", "lses": "p b n"}, data=("outs", "lses"),
    ),
]  # fmt: skip

TWO_SLOPES = (("alibi", {"slopes": np.array([0.3, 0.05])}),)
ANY = CASES[0]
"""The case for arguments of a test's own."""
DEAD = {
    "keep": {"keep": np.zeros((5, 7), bool)},
    "keep_rows": {"keep": np.array([0, 1, 0, 1, 0], bool)[:, None]},
    "window": {"window": (None, -50)},
    "empty_window": {"window": (-3, -3), "causal": True},
    "segments": {"q_segments": np.array([0, 9, 0, 9, 9]), "k_segments": np.zeros(7, int)},
    "bias": {"bias": (("dense", {"array": np.full((5, 7), -np.inf)}),)},
    "bias_rows": {"bias": (("dense", {"array": np.where(np.arange(5) % 2, 0.0, -np.inf)[:, None]}),)},
    "causal": {"causal": True, "q_positions": np.array([-1, 0, -2, 3, -9]), "k_positions": np.arange(7)},
    "both": {"causal": True, "keep": np.triu(np.ones((5, 7), bool), 1)},
}
"""Options of 5 queries and 7 keys by which queries see no key."""
WALLS = {
    "keep": lambda n, m, bad: {"keep": ~bad},
    "keep_rows": lambda n, m, bad: {"keep": np.broadcast_to(~bad, (n, m)).copy()},
    "causal": lambda n, m, bad: {"causal": True, "q_positions": np.zeros(n), "k_positions": np.where(bad, 1, -1)},
    "window": lambda n, m, bad: {"window": (5, 5), "q_positions": np.zeros(n), "k_positions": np.where(bad, 77, 3)},
    "segments": lambda n, m, bad: {"q_segments": np.zeros(n, int), "k_segments": bad.astype(int)},
    "bias": lambda n, m, bad: {"bias": (("dense", {"array": np.where(bad, -np.inf, 0.0)[None]}),)},
    "bias_rows": lambda n, m, bad: {
        "bias": (("dense", {"array": np.tile(np.where(bad, -np.inf, 0.0), (2, n, 1))}), *TWO_SLOPES), "align": "start",
    },
    "cap": lambda n, m, bad: {"keep": ~bad, "softcap": 3.0},
}  # fmt: skip
"""Options that mask the keys `bad` of m keys, in every way."""


def qkv(rng, n, m, heads=2, groups=2, width=8, value_width=8, batch=()):
    """Random q, k and v."""
    return {
        "q": rng.standard_normal((*batch, heads, n, width)),
        "k": rng.standard_normal((*batch, groups, m, width)),
        "v": rng.standard_normal((*batch, groups, m, value_width)),
    }


def check(arguments, dtypes=(F64, F32), **options):
    """Assert that out and lse are within their bounds in every dtype; return those of the first dtype."""
    first = None
    for dtype in dtypes:
        given = ANY.cast({**arguments, **options, "return_lse": True}, dtype)
        results, expected = ANY.call(given), ANY.expect(given)
        for result, e, bound in zip(results, expected, ANY.bounds(expected, dtype, given), strict=True):
            finite = np.isfinite(e)
            assert result.shape == e.shape
            assert np.array_equal(result[~finite], e[~finite])
            assert np.all(np.abs(result[finite].astype(F64) - e[finite]) <= bound[finite])
        first = results if first is None else first
    return first


def derived(cases):
    """Each operator on its own inside attention: the first case of each."""
    operators = {case.function: case for case in reversed(cases) if isinstance(case, bias.BiasCase)}
    return [inside(case) for case in operators.values()]
