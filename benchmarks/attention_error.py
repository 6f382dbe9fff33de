"""The float32 error of attention and of its gradient next to that of the same NumPy expression, over random calls.

The truth is the expression in float64 on the same float32 numbers; gradients begin from the same out and lse. Goal: in
every call the worst error is at most twice NumPy's, with a floor of 4 ulp of the largest value: of the result, or of
what is summed up to it. Errors are printed as halves of that bound, so the goal reads 2.

Where few roundings decide, in a call of a few pairs say, NumPy's error is a matter of luck. So it is printed against
itself too: the expression with queries, keys and channels in another order. The last figures compare with the worst of
several such orders.

Half precision is storage alone: it must give the float32 result of the same numbers, rounded once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from measure import Report, main

import posenc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from cases import BF16, F16, F32, F64, ulp
from cases.attention import attention, places
from test_attention_vjp import call, formula

CALLS, ORDERS = 300, 8
NAMES = ("out", "lse", "dq", "dk", "dv")
Numbers = dict[str, Any]
Results = tuple[Any, ...]


def run(report: Report) -> None:
    ours: dict[str, list[Any]] = {isa: [] for isa in posenc.isas()}
    numpy, floors = [], []
    for seed in range(CALLS):
        arrays, options = draw(seed)
        truth, given = expression(arrays, options, F64)
        for isa, found in ours.items():
            with posenc.use_isa(isa):
                found.append(errors(everything(arrays, options, given), truth))
        numpy.append([in_order(arrays, options, given, truth, order) for order in range(ORDERS)])
        floors.append(floor(arrays, options, given, truth))
    others, least = np.array(numpy), np.array(floors) / 2  # others: calls, orders, names
    first, worst = (np.maximum(theirs, least) for theirs in (others[:, 0], others.max(1)))
    summary(report, "NumPy in another order", others[:, 1] / first)
    for isa, found in ours.items():
        summary(report, isa, np.array(found) / first, most=2.0)
    for isa, found in ours.items():
        summary(report, f"{isa}, against the worst of {ORDERS} orders", np.array(found) / worst, most=2.0)
    for dtype in (d for d in (F16, BF16) if d is not None):
        storage(report, dtype)


def summary(report: Report, who: str, ratios: Any, most: float | None = None) -> None:
    for name, column in zip(NAMES, ratios.T, strict=True):
        note = f"{np.mean(column <= 2):.1%} of {CALLS} calls within 2, half of them within {np.median(column):.2f}"
        report.figure(f"{who}: float32 {name}; {note}", float(column.max()), "x NumPy's error in the worst", most=most)


def draw(seed: int) -> tuple[Numbers, Numbers]:
    """Arrays in float32 and options; a bias is (function, its arguments), as the oracle takes it."""
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
    """Our out, lse, dq, dk, dv; the gradients from `start`, its out and lse, or from our own."""
    arguments, given, _ = call(*(arrays[name] for name in ("q", "k", "v", "grad")), **options)
    gradients = posenc.attention_vjp(*arguments, **{**given, **(start or {})})
    return given["out"], given["lse"], *gradients[:3]


def expression(arrays: Numbers, options: Numbers, work: Any, start: Numbers | None = None) -> tuple[Results, Numbers]:
    """The same from whole matrices in `work`, and the out and lse that its gradients began from."""
    q, k, v, grad = (arrays[name] for name in ("q", "k", "v", "grad"))
    out, lse = attention(q, k, v, **options, return_lse=True, work=work.type)
    start = start or {"out": out.astype(F32), "lse": lse.astype(F32)}
    return (out, lse, *formula(grad, q, k, v, **start, **options, work=work)[:3]), start


def in_order(arrays: Numbers, options: Numbers, start: Numbers, truth: Results, order: int) -> list[float]:
    """Errors of NumPy's float32 with queries, keys and channels in an order of their own; 0 leaves them as they are."""
    if order == 0:
        return errors(expression(arrays, options, F32, start)[0], truth)
    rng, q, v = np.random.default_rng(order), arrays["q"], arrays["v"]
    rows, keys, inner, outer = map(rng.permutation, (q.shape[1], v.shape[1], q.shape[2], v.shape[2]))

    def turned(array: Any, row: Any, column: Any) -> Any:
        return np.ascontiguousarray(array[:, row][..., column])

    moved = {name: turned(arrays[name], at, inner) for name, at in (("q", rows), ("k", keys))}
    moved |= {name: turned(arrays[name], at, outer) for name, at in (("v", keys), ("grad", rows))}
    q_at, k_at = places(q.shape[1], v.shape[1], options["align"], None, None)
    given = {name: value for name, value in options.items() if name != "align"}
    given |= {"q_positions": q_at[rows], "k_positions": k_at[keys]}
    if options["bias"] and options["bias"][0][0] == "dense":
        given["bias"] = (("dense", {"array": turned(options["bias"][0][1]["array"], rows, keys)}),)
    begun = {"out": turned(start["out"], rows, outer), "lse": start["lse"][:, rows]}
    wanted = [turned(truth[0], rows, outer), truth[1][:, rows], turned(truth[2], rows, inner)]
    wanted += [turned(truth[3], keys, inner), turned(truth[4], keys, outer)]
    return errors(expression(moved, given, F32, begun)[0], tuple(wanted))


def errors(found: Results, truth: Results) -> list[float]:
    """The worst of each result; infinite where lse of what sees nothing is not exactly that."""
    worst = []
    for has, exact in zip(found, truth, strict=True):
        finite = np.isfinite(exact)
        same = np.array_equal(has[~finite], exact[~finite])
        error = np.nan_to_num(np.abs(has[finite] - exact[finite]), nan=np.inf).max(initial=0)
        worst.append(float(error) if same else np.inf)
    return worst


def floor(arrays: Numbers, options: Numbers, start: Numbers, truth: Results) -> list[float]:
    """4 ulp of the largest of the result and of what is summed up to it: values for out, P dP times q or k for their
    gradients, where P (dP - sum P dP) cancels to nothing once one key has all of the weight."""
    q, k, v, grad = (arrays[name] for name in ("q", "k", "v", "grad"))
    unsubtracted = formula(grad, q, k, v, **{**start, "out": 0 * start["out"]}, **options)[3]
    product = np.abs(unsubtracted).max() * q.shape[-1] ** -0.5
    terms = np.abs(v).max(), 0.0, product * np.abs(k).max(), product * np.abs(q).max(), np.abs(grad).max()
    return [
        4 * float(ulp(max(np.abs(exact[np.isfinite(exact)]).max(initial=0), term), F32))
        for exact, term in zip(truth, terms, strict=True)
    ]


def storage(report: Report, dtype: Any) -> None:
    """How many entries are not the float32 result of the same numbers, rounded once; gradients from the same out."""
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
    what = f"{dtype.name}, out, lse, dq, dk, dv: entries other than the float32 result rounded once"
    report.figure(f"{what}; the farthest is off by {worst:g} ulp", differing, f"of {entries}", most=0)


if __name__ == "__main__":
    main(__doc__, run)
