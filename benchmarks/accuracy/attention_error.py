"""Print the float32 error of attention and of its gradient as a share of the a-priori bound, over random calls.

The reference is the same expression in float64 on the same float32 numbers. Gradients begin from the same out and lse.
The bound is that of the tests (tests/cases/rounding.py), a function of the arguments. The errors of NumPy's float32
expression are printed as shares of the same bound, for comparison.

Half precision affects storage only: a result must be the float32 result of the same numbers, rounded once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from cases import BF16, F16, F32, F64, ulp
from cases.attention import ANY, pairs_of
from cases.gradient import call, formula
from cases.rounding import attention_bounds, gradient_bounds
from tools.measure import Report, main

import posenc

CALLS = 300
NAMES = ("out", "lse", "dq", "dk", "dv")
Numbers = dict[str, Any]
Results = tuple[Any, ...]


def run(report: Report) -> None:
    shares: dict[str, list[Any]] = {who: [] for who in (*posenc.isas(), "NumPy")}
    for seed in range(CALLS):
        arrays, options = draw(seed)
        truth, given = reference(arrays, options)
        bounds = bounds_of(arrays, options, truth, given)
        for isa in posenc.isas():
            with posenc.use_isa(isa):
                shares[isa].append(shares_of(everything(arrays, options, given), truth, bounds))
        shares["NumPy"].append(shares_of(in_float32(arrays, options, given), truth, bounds))
    for who, of_calls in shares.items():
        for name, column in zip(NAMES, np.array(of_calls).T, strict=True):
            most = None if who == "NumPy" else 1.0
            report.figure(
                f"{who}: float32 {name}, worst of {CALLS} calls", float(column.max()), "of the bound", most=most
            )
            report.figure(f"{who}: float32 {name}, median", float(np.median(column)), "of the bound")
    for dtype in (d for d in (F16, BF16) if d is not None):
        storage(report, dtype)


def bounds_of(arrays: Numbers, options: Numbers, truth: Results, start: Numbers) -> Results:
    wide = {name: array.astype(F64) for name, array in arrays.items()}
    pairs = pairs_of(wide["q"], wide["k"], wide["v"], **options)
    begin = (start[name].astype(F64) for name in ("out", "lse"))
    return *attention_bounds(pairs, *truth[:2], F32), *gradient_bounds(pairs, wide["grad"], *begin, F32)


def shares_of(found: Results, truth: Results, bounds: Results) -> list[float]:
    """The largest |error| / bound of each result, infinite if an entry without a bound is inexact (lse = -inf)."""
    worst = []
    for has, exact, bound in zip(found, truth, bounds, strict=True):
        finite = np.isfinite(exact) & (bound > 0)
        same = np.array_equal(has[~finite], exact[~finite])
        share = np.nan_to_num(np.abs(has[finite] - exact[finite]) / bound[finite], nan=np.inf).max(initial=0)
        worst.append(float(share) if same else np.inf)
    return worst


def draw(seed: int) -> tuple[Numbers, Numbers]:
    """Draw arrays in float32 and options; a bias is (function, its arguments), as the oracle takes it."""
    rng = np.random.default_rng(seed)

    def size(most: int) -> int:
        return int(np.exp(rng.uniform(0, np.log(most + 1))))

    groups, n, m, width, value_width = size(3), size(300), size(300), size(130), size(130)
    heads = groups * size(3)
    shapes = {
        "q": (heads, n, width), "k": (groups, m, width), "v": (groups, m, value_width), "grad": (heads, n, value_width),
    }  # fmt: skip
    arrays = {name: rng.standard_normal(shape).astype(F32) for name, shape in shapes.items()}
    arrays["q"] *= F32.type(np.exp(rng.uniform(np.log(0.1), np.log(30))))
    depth = np.exp(rng.uniform(0, np.log(1e4)))  # the lowest bias is about -depth
    biases: list[Results] = [
        (),
        (("alibi", {"slopes": rng.uniform(0, depth / max(n, m), heads)}),),
        (("t5", {"table": rng.uniform(-depth, 0, (32, heads)).astype(F32)}),),
        (("dense", {"array": rng.uniform(-depth, 0, (heads, n, m)).astype(F32)}),),
    ]
    options: Numbers = {"bias": biases[rng.integers(4)], "align": ("start", "end")[rng.integers(2)]}
    options["causal"] = bool(rng.random() < 0.4)
    if rng.random() < 0.3:
        options["window"] = (size(m), size(m))
    if rng.random() < 0.25:
        options["softcap"] = float(rng.uniform(1, 50))
    return arrays, options


def everything(arrays: Numbers, options: Numbers, start: Numbers | None = None) -> Results:
    """The out, lse, dq, dk, dv of posenc; gradients begin from the out and lse of `start`, by default its own."""
    arguments, given, _ = call(*(arrays[name] for name in ("q", "k", "v", "grad")), **options)
    gradients = posenc.attention_vjp(*arguments, **{**given, **(start or {})})
    return given["out"], given["lse"], *gradients[:3]


def reference(arrays: Numbers, options: Numbers) -> tuple[Results, Numbers]:
    """The same by posenc.reference and the formula of the gradient, and the out and lse from which gradients begin."""
    q, k, v, grad = (arrays[name] for name in ("q", "k", "v", "grad"))
    out, lse = ANY.truth({"q": q, "k": k, "v": v, **options, "return_lse": True})
    start = {"out": out.astype(F32), "lse": lse.astype(F32)}
    return (out, lse, *formula(grad, q, k, v, **start, **options)[:3]), start


def in_float32(arrays: Numbers, options: Numbers, start: Numbers) -> Results:
    """The same as NumPy computes it in float32; masks and biases are those of the reference, rounded."""
    x = pairs_of(arrays["q"], arrays["k"], arrays["v"], **options)
    q, k, v, grad, bias = (
        np.asarray(a, F32) for a in (x.q, x.k, x.v, arrays["grad"], sum(x.numbers, np.zeros(x.seen.shape)))
    )
    scale, cap = F32.type(x.scale), None if x.softcap is None else F32.type(x.softcap)
    logits, slope = (q @ k.swapaxes(-1, -2)) * scale, F32.type(1)
    if cap is not None:
        bend = np.tanh(logits / cap)
        logits, slope = cap * bend, 1 - bend * bend
    logits = np.where(x.seen, logits + bias, F32.type(-np.inf))
    top = logits.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, F32.type(0))
    weights = np.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    out = weights @ v / np.where(total == 0, F32.type(1), total)
    p = np.exp(logits - np.where(np.isfinite(start["lse"]), start["lse"], F32.type(0))[..., None])
    ds = p * (grad @ v.swapaxes(-1, -2) - (grad * start["out"]).sum(-1, keepdims=True)) * slope

    def by_kv_head(d: Any) -> Any:
        return d.reshape(-1, x.share, *d.shape[-2:]).sum(-3)

    dk, dv = by_kv_head(ds.swapaxes(-1, -2) @ q) * scale, by_kv_head(p.swapaxes(-1, -2) @ grad)
    return out, lse, (ds @ k) * scale, dk, dv


def storage(report: Report, dtype: Any) -> None:
    """Count the entries that are not the float32 result, rounded once; gradients begin from the same out."""
    differing, entries, worst = 0, 0, 0.0
    for seed in range(CALLS):
        arrays, options = draw(seed)
        half = {name: array.astype(dtype) for name, array in arrays.items()}
        results = everything(half, options)
        wide = {name: array.astype(F32) for name, array in half.items()}
        for has, exact in zip(results, everything(wide, options, {"out": results[0].astype(F32)}), strict=True):
            different = has != exact.astype(has.dtype)
            differing, entries = differing + int(different.sum()), entries + has.size
            if different.any():
                apart = np.abs(has[different].astype(F64) - exact[different])
                worst = max(worst, float((apart / ulp(exact[different], has.dtype)).max()))
    what = f"{dtype.name} other than float32 rounded once"
    report.figure(f"{what}: entries", differing, f"of {entries}", most=0)
    report.figure(f"{what}: largest deviation", worst, "ulp", most=0)


if __name__ == "__main__":
    main(__doc__, run)
