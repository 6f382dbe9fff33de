"""Time forward attention against the multiply-add peak and against torch's scaled_dot_product_attention.

Further lines time masks, biases, storage dtypes, many short sequences, and two threads.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random
from tools.peak import NAME, peak, share

import posenc

H, D = 8, 64


def run(report: Report) -> None:
    torch = peer("torch")
    for n, d, least in ((128, D, None), (512, D, 0.65), (1024, D, 0.75), (2048, D, 0.75), (1024, 128, 0.8)):
        one_size(report, torch, n, d, least)
    double(report, torch)
    options(report)
    storage(report, torch)
    small(report, torch)
    two_threads(report)


def one_size(report: Report, torch: Any, n: int, d: int, least: float | None) -> None:
    q, k, v = (random((H, n, d), seed=seed) for seed in range(3))
    bias = posenc.alibi(posenc.alibi_slopes(H))
    matrix = np.ascontiguousarray(bias.matrix(n))
    outs = [np.empty_like(q) for _ in range(3)]
    check("attention", posenc.attention(q, k, v, out=outs[0]), naive(q, k, v, 0.0), 1e-5)
    check("attention, ALiBi", posenc.attention(q, k, v, bias=bias), naive(q, k, v, matrix), 1e-5)
    operations = 4.0 * H * n * n * d

    def plain() -> object:
        return posenc.attention(q, k, v, out=outs[0])

    def causal() -> object:
        return posenc.attention(q, k, v, causal=True, out=outs[1])

    def biased() -> object:
        return posenc.attention(q, k, v, bias=bias, out=outs[2])

    groups: list[tuple[str, dict[str, Any], float]] = [
        ("attention", {"posenc.attention(out=)": plain, **peak(operations)}, 1.15),
        ("attention causal", {"posenc causal": causal, "posenc, no bias, no mask": plain}, 1.3),
        ("attention ALiBi", {"posenc with ALiBi": biased, "posenc, no bias, no mask": plain}, 1.3),
    ]
    if torch:
        tq, tk, tv, mask = (torch.from_numpy(a)[None] for a in (q, k, v, matrix))
        sdpa = torch.nn.functional.scaled_dot_product_attention
        for (_, contenders, _), call in zip(
            groups,
            (
                lambda: sdpa(tq, tk, tv),
                lambda: sdpa(tq, tk, tv, is_causal=True),
                lambda: sdpa(tq, tk, tv, attn_mask=mask),
            ),
            strict=True,
        ):
            contenders["torch SDPA"] = call
    most = {NAME: 1 / least if least else None, "posenc, no bias, no mask": None}
    for name, contenders, faster in groups:
        limit = {key: goal for key, goal in most.items() if goal and key in contenders}
        if "causal" in name and n >= 1024:
            limit["posenc, no bias, no mask"] = 0.6
        if "ALiBi" in name:
            limit["posenc, no bias, no mask"] = 1.05
        goals = {"torch SDPA": faster} if torch and n >= 512 else None
        share(report.time(f"{name} float32 H={H} N=M={n} D={d}", contenders, most=limit, least=goals))


def double(report: Report, torch: Any) -> None:
    n = 1024
    q, k, v = (random((H, n, D), np.float64, seed) for seed in range(3))
    check("attention float64", posenc.attention(q, k, v), naive(q, k, v, 0.0), 1e-12)
    contenders: dict[str, Any] = {"posenc.attention": lambda: posenc.attention(q, k, v)}
    contenders |= peak(4.0 * H * n * n * D, "float64")
    if torch:
        t = [torch.from_numpy(a)[None] for a in (q, k, v)]
        contenders["torch SDPA"] = lambda: torch.nn.functional.scaled_dot_product_attention(*t)
    share(report.time(f"attention float64 H={H} N=M={n} D={D}", contenders, most={NAME: 1 / 0.65}))


def options(report: Report) -> None:
    """Time attention with a bias, a mask or a window against attention without."""
    n = 2048
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    array, keep = random((H, n, n), seed=3), random((n, n), seed=4) > -1
    ours: dict[str, tuple[dict[str, Any], float]] = {
        "T5": ({"bias": posenc.t5(random((32, H)), bidirectional=True)}, 1.05),
        "KERPLE log": ({"bias": posenc.kerple_log([1.0] * H, [1.0] * H)}, 1.05),
        "any Toeplitz row": ({"bias": posenc.toeplitz(random((H, 2 * n - 1)))}, 1.05),
        "dense bias": ({"bias": posenc.dense(array)}, 1.3),
        "keep, 84 % of the pairs": ({"keep": keep}, 1.3),
        "softcap": ({"softcap": 30.0}, 1.5),
    }
    check(
        "dense",
        posenc.attention(q[:1, :65], k[:1, :65], v[:1, :65], bias=posenc.dense(array[:1, :65, :65])),
        naive(q[:1, :65], k[:1, :65], v[:1, :65], array[:1, :65, :65]),
        1e-5,
    )
    for name, (option, most) in ours.items():
        contenders = {
            "with it": lambda option=option: posenc.attention(q, k, v, **option),
            "no bias, no mask": lambda: posenc.attention(q, k, v),
        }
        report.time(f"attention float32 H={H} N=M={n} D={D}: {name}", contenders, most={"no bias, no mask": most})
    q, k, v = (random((1, 8192, D), seed=seed) for seed in range(3))
    contenders = {
        "window (256, 0)": lambda: posenc.attention(q, k, v, window=(256, 0)),
        "all of it": lambda: posenc.attention(q, k, v),
    }
    report.time("attention float32 H=1 N=M=8192 D=64: a window", contenders, most={"all of it": 0.08})


def storage(report: Report, torch: Any) -> None:
    ml_dtypes = peer("ml_dtypes")
    n = 2048
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    for name in ("float16", *(["bfloat16"] if ml_dtypes else [])):
        dtype = np.dtype(name)
        halves = [a.astype(dtype) for a in (q, k, v)]
        check(name, posenc.attention(*halves), posenc.attention(*(a.astype(np.float32) for a in halves)), 1e-2)
        contenders: dict[str, Any] = {
            f"stored as {name}": lambda halves=halves: posenc.attention(*halves),
            "float32": lambda: posenc.attention(q, k, v),
        }
        if torch:
            tensors = [torch.from_numpy(a)[None].to(getattr(torch, name)) for a in (q, k, v)]
            sdpa = torch.nn.functional.scaled_dot_product_attention
            contenders[f"torch SDPA, {name}"] = lambda tensors=tensors, sdpa=sdpa: sdpa(*tensors)
        report.time(f"attention H={H} N=M={n} D={D}: {name}", contenders, most={"float32": 1.15})


def small(report: Report, torch: Any) -> None:
    """Time short sequences, one of them and many."""
    for batch, n in product((1, 16), (16, 32, 49, 64, 96, 128, 256)):
        q, k, v = (random((batch, 8, n, D), seed=seed) for seed in range(3))
        contenders: dict[str, Any] = {"posenc.attention": lambda q=q, k=k, v=v: posenc.attention(q, k, v)}
        if torch:
            t = [torch.from_numpy(a) for a in (q, k, v)]
            sdpa = torch.nn.functional.scaled_dot_product_attention
            contenders["torch SDPA"] = lambda t=t, sdpa=sdpa: sdpa(*t)
        goal = {"torch SDPA": 1.2} if torch else None
        report.time(f"attention float32 B*H={8 * batch} N=M={n} D={D}", contenders, least=goal)


def two_threads(report: Report) -> None:
    n = 2048
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))

    def on(count: int) -> object:
        with posenc.threads(count):
            return posenc.attention(q, k, v)

    report.time(
        f"attention float32 H={H} N=M={n} D={D}: two threads",
        {"two threads": lambda: on(2), "one": lambda: on(1)},
        least={"one": 1.75},
    )


def naive(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any) -> np.ndarray:
    """softmax(q k / sqrt(D) + bias) v in float64, head by head."""
    out = np.empty(q.shape)
    for h in range(len(q)):
        logits = q[h].astype(np.float64) @ k[h].astype(np.float64).T / q.shape[-1] ** 0.5
        logits += bias[h] if np.ndim(bias) else bias
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        out[h] = weights @ v[h].astype(np.float64) / weights.sum(axis=1, keepdims=True)
    return out


if __name__ == "__main__":
    main(__doc__, run)
