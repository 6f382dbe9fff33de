"""Time attention of one to four queries over many keys, against torch and against reading the keys and values.

Lines compare dtypes of the cache, heads that share keys (up to all of them), the absorbed decoding of multi-head latent
attention (MLA, whose values are the first channels of its keys) with two products of NumPy, one and two threads, and
`invariant=True` with the default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from attention import naive
from cases import BF16, F16
from tools.measure import Report, check, main, peer, random

import posenc

M = 8192


def run(report: Report) -> None:
    groups_of_heads(report)
    dtypes(report)
    latent(report)
    threads(report)
    invariant(report)


def cache(groups: int, d: int, m: int = M) -> tuple[Any, Any]:
    return random((groups, m, d), seed=1), random((groups, m, d), seed=2)


def sdpa(q: Any, k: Any, v: Any) -> Callable[[], Any] | None:
    """A call of torch's attention on the same numbers, or None without torch; bfloat16 goes by way of float32."""
    torch: Any = peer("torch")
    if not torch:
        return None
    dtype = getattr(torch, q.dtype.name)
    tensors = [torch.from_numpy(x.astype(np.float32))[None].to(dtype) for x in (q, k, v)]
    shared = len(q) != len(k)
    return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=shared)


def groups_of_heads(report: Report) -> None:
    cases = [(32, 32, 1, 64), (32, 32, 1, 128), (32, 8, 1, 64), (32, 8, 1, 128), (32, 32, 4, 64)]
    cases += [(heads, 1, 1, 128) for heads in (1, 16, 32, 128)]
    for heads, groups, n, d in cases:
        q, (k, v) = random((heads, n, d)), cache(groups, d)
        share = heads // groups
        same = (np.broadcast_to(array[:1], (share, M, d)) for array in (k, v))
        check("decode", posenc.attention(q[:share], k[:1], v[:1]), naive(q[:share], *same, 0.0), 1e-5)
        contenders: dict[str, Any] = {
            "posenc.attention": lambda q=q, k=k, v=v: posenc.attention(q, k, v),
            "sum of k and of v (reads them)": lambda k=k, v=v: (k.sum(), v.sum()),
        }
        goal = {}
        if torch := sdpa(q, k, v):
            contenders["torch SDPA"] = torch
            goal = {"torch SDPA": 1.2}
        most = {"sum of k and of v (reads them)": 1 / (0.9 if share == 1 else 0.8)} if share <= 8 else None
        report.time(f"decode float32 H={heads} G={groups} N={n} M={M} D={d}", contenders, least=goal, most=most)


def dtypes(report: Report) -> None:
    q, (k, v) = random((32, 1, 128)), cache(32, 128)
    for dtype in (F16, BF16):
        if dtype is None:
            continue
        narrow = [x.astype(dtype) for x in (q, k, v)]
        contenders: dict[str, Any] = {
            f"posenc, {dtype}": lambda narrow=narrow: posenc.attention(*narrow),
            "posenc, float32": lambda: posenc.attention(q, k, v),
        }
        goal = {}
        if torch := sdpa(*narrow):
            contenders[f"torch SDPA, {dtype}"] = torch
            goal[f"torch SDPA, {dtype}"] = 1.2
        report.time(f"decode {dtype} H=G=32 N=1 M={M} D=128", contenders, most={"posenc, float32": 0.6}, least=goal)
    codes = posenc.quantize(k), posenc.quantize(v)
    report.time(
        f"decode int8 H=G=32 N=1 M={M} D=128",
        {"posenc, int8": lambda: posenc.attention(q, *codes), "posenc, float32": lambda: posenc.attention(q, k, v)},
        most={"posenc, float32": 0.4},
    )


def latent(report: Report) -> None:
    heads, m, d, dv = 128, 4096, 576, 512
    q, k = random((heads, 1, d)), random((1, m, d), seed=1)
    v, rows = k[..., :dv], q[:, 0]
    scale = np.float32(d**-0.5)

    def products() -> Any:
        scores = rows @ k[0].T
        scores *= scale
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        return scores @ v[0] / scores.sum(-1, keepdims=True)

    check("MLA", posenc.attention(q, k, v)[:, 0], products(), 1e-5)
    report.time(
        f"MLA decode float32 H={heads} G=1 M={m} D={d} Dv={dv}",
        {"posenc.attention": lambda: posenc.attention(q, k, v), "NumPy, two products": products},
        least={"NumPy, two products": 1.2},
    )


def threads(report: Report) -> None:
    for heads in (1, 2):
        q, (k, v) = random((heads, 1, 128)), cache(heads, 128, 32768)

        def with_threads(n: int, q: Any = q, k: Any = k, v: Any = v) -> Any:
            with posenc.threads(n):
                return posenc.attention(q, k, v)

        report.time(
            f"decode float32 H=G={heads} N=1 M=32768 D=128, two threads",
            {"two threads": lambda call=with_threads: call(2), "one thread": lambda call=with_threads: call(1)},
            least={"one thread": 1.7},
        )


def invariant(report: Report) -> None:
    for n in (1, 64):
        q, (k, v) = random((32, n, 128)), cache(32, 128)

        def call(is_invariant: bool, q: Any = q, k: Any = k, v: Any = v) -> Any:
            return posenc.attention(q, k, v, align="end", invariant=is_invariant)

        report.time(
            f"attention float32 H=G=32 N={n} M={M} D=128, invariant=True",
            {"invariant": lambda call=call: call(True), "default": lambda call=call: call(False)},
        )


if __name__ == "__main__":
    main(__doc__, run)
