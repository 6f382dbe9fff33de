"""Streaming attention against torch's scaled_dot_product_attention, and against the multiplier of this core."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import Report, check, main, peer, random

import posenc

H, D = 8, 64


def run(report: Report) -> None:
    torch = peer("torch")
    peak = peak_flops()
    print(f"    peak: {peak / 1e9:.1f} GFLOP/s float32 (fused multiply-adds on independent registers)" if peak else
          "    (no C compiler here: no share of the peak)")  # fmt: skip
    for n in (128, 1024, 2048):
        one_size(report, torch, peak, n)
    for n in (256, 1024, 2048):
        backward(report, torch, peak, n)
    small(report, torch)
    content(report)
    decode(report, torch)


def one_size(report: Report, torch: Any, peak: float, n: int) -> None:
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    bias = posenc.alibi(posenc.alibi_slopes(H))
    matrix = np.ascontiguousarray(bias.matrix(n))
    outs = [np.empty_like(q) for _ in range(3)]
    check("attention", posenc.attention(q, k, v, out=outs[0]), naive(q, k, v, 0.0), 1e-5)
    check("attention, ALiBi", posenc.attention(q, k, v, bias=bias), naive(q, k, v, matrix), 1e-5)

    def share(seconds: float, part: float = 1.0) -> str:
        rate = 4.0 * H * n * n * D * part / seconds
        return f"{rate / 1e9:.1f} GFLOP/s" + (f", {100 * rate / peak:.0f} % of the peak" if peak else "")

    contenders: dict[str, Any] = {"posenc.attention(out=)": lambda: posenc.attention(q, k, v, out=outs[0])}
    causal: dict[str, Any] = {"posenc causal": lambda: posenc.attention(q, k, v, causal=True, out=outs[1])}
    biased: dict[str, Any] = {
        "posenc with ALiBi": lambda: posenc.attention(q, k, v, bias=bias, out=outs[2]),
        "posenc without": contenders["posenc.attention(out=)"],
    }
    if torch:
        tq, tk, tv, mask = (torch.from_numpy(a)[None] for a in (q, k, v, matrix))
        sdpa = torch.nn.functional.scaled_dot_product_attention
        contenders["torch SDPA"] = lambda: sdpa(tq, tk, tv)
        causal["torch SDPA causal"] = lambda: sdpa(tq, tk, tv, is_causal=True)
        biased["torch SDPA, ready ALiBi mask"] = lambda: sdpa(tq, tk, tv, attn_mask=mask)
    goal = {"torch SDPA": 1.0} if n == 1024 else None
    shape = f"float32 H={H} N=M={n} D={D}"
    report.time(f"attention {shape}", contenders, least=goal, note=share)
    report.time(f"attention causal {shape}", causal, note=lambda s: share(s, (n + 1) / (2 * n)))
    report.time(f"attention ALiBi {shape}", biased, note=share)


def backward(report: Report, torch: Any, peak: float, n: int) -> None:
    """Five products where the forward has two."""
    q, k, v, grad = (random((H, n, D), seed=seed) for seed in range(4))
    slopes = posenc.alibi(posenc.alibi_slopes(H))
    biases: dict[str, Any] = {"": {}, " causal": {"causal": True}, " with ALiBi": {"bias": slopes}}

    def gradient(**options: Any) -> Callable[[], Any]:
        out, lse = posenc.attention(q, k, v, return_lse=True, **options)
        return lambda: posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, **options)

    def share(seconds: float) -> str:
        rate = 10.0 * H * n * n * D / seconds
        return f"{rate / 1e9:.1f} GFLOP/s" + (f", {100 * rate / peak:.0f} % of the peak" if peak else "")

    contenders: dict[str, Any] = {f"posenc.attention_vjp{name}": gradient(**o) for name, o in biases.items()}
    contenders["posenc.attention"] = lambda: posenc.attention(q, k, v)
    if torch:
        tensors = [torch.from_numpy(a)[None].requires_grad_() for a in (q, k, v)]
        result = torch.nn.functional.scaled_dot_product_attention(*tensors)
        cotangent = torch.from_numpy(grad)[None]
        contenders["torch SDPA backward"] = lambda: torch.autograd.grad(result, tensors, cotangent, retain_graph=True)
        for ours, theirs in zip(
            contenders["posenc.attention_vjp"](), contenders["torch SDPA backward"](), strict=False
        ):
            check("attention_vjp", ours, theirs[0], 1e-4)
    goal = {"torch SDPA backward": 1.0} if n == 1024 else None
    report.time(f"attention_vjp float32 H={H} N=M={n} D={D}", contenders, least=goal, note=share)


def content(report: Report) -> None:
    """Operators that read q and k, against attention without; then its gradient."""
    n, rows = 1024, 512
    q, k, v, grad = (random((H, n, D), seed=seed) for seed in range(4))
    table, other = random((H, rows, D), seed=4), random((H, rows, D), seed=5)
    biases: dict[str, Any] = {
        "Shaw K=64": posenc.shaw(random((H, 129, D), seed=6)),
        "Transformer-XL": posenc.transformer_xl(
            random((H, 2 * n - 1, D), seed=7), random((H, D), seed=8), random((H, D), seed=9)
        ),
        "DeBERTa c2p": posenc.deberta(None, table, terms=("c2p",)),
        "DeBERTa p2c": posenc.deberta(other, None, terms=("p2c",)),
        "DeBERTa both": posenc.deberta(other, table),
    }

    def forward(bias: Any) -> Callable[[], Any]:
        return lambda: posenc.attention(q, k, v, bias=bias)

    def gradient(bias: Any) -> Callable[[], Any]:
        out, lse = posenc.attention(q, k, v, bias=bias, return_lse=True)
        return lambda: posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=bias)

    for name, bias in biases.items():
        goals = (2.3 if name[-3:] in ("p2c", "oth") else 1.65), 1.8
        for kind, make, goal in (("attention", forward, goals[0]), ("attention_vjp", gradient, goals[1])):
            contenders = {name: make(bias), "without": make(())}
            report.time(f"{kind} {name} float32 H={H} N=M={n} D={D}", contenders, most={"without": goal})


def small(report: Report, torch: Any) -> None:
    """Few positions, many heads."""
    for n in (16, 32, 49, 64, 96, 128, 256):
        q, k, v = (random((16, 8, n, D), seed=seed) for seed in range(3))
        contenders: dict[str, Any] = {"posenc.attention": lambda q=q, k=k, v=v: posenc.attention(q, k, v)}
        if torch:
            t = [torch.from_numpy(a) for a in (q, k, v)]
            sdpa = torch.nn.functional.scaled_dot_product_attention
            contenders["torch SDPA"] = lambda t=t, sdpa=sdpa: sdpa(*t)
        goal = {"torch SDPA": 1.2} if torch else None
        report.time(f"attention float32 B*H=128 N=M={n} D={D}", contenders, least=goal)


def decode(report: Report, torch: Any) -> None:
    m = 8192
    for heads, groups, n, d in ((32, 32, 1, 64), (32, 32, 1, 128), (32, 8, 1, 64), (32, 8, 1, 128), (32, 32, 4, 64)):
        q, k, v = random((heads, n, d)), random((groups, m, d), seed=1), random((groups, m, d), seed=2)
        contenders: dict[str, Any] = {
            "posenc.attention": lambda q=q, k=k, v=v: posenc.attention(q, k, v),
            "maximum of k and of v (reads them)": lambda k=k, v=v: (k.max(), v.max()),
        }
        goal = None
        if torch:
            tq, tk, tv = (torch.from_numpy(a)[None] for a in (q, k, v))
            sdpa, shared = torch.nn.functional.scaled_dot_product_attention, heads != groups
            contenders["torch SDPA"] = lambda tq=tq, tk=tk, tv=tv, sdpa=sdpa, shared=shared: sdpa(
                tq, tk, tv, enable_gqa=shared
            )
            goal = {"torch SDPA": 2.0 if shared else 1.5}
        report.time(f"decode float32 H={heads} G={groups} N={n} M={m} D={d}", contenders, least=goal)


def naive(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any) -> np.ndarray:
    """softmax(q k / sqrt(D) + bias) v in float64, head by head."""
    out = np.empty(q.shape)
    for h in range(len(q)):
        logits = q[h].astype(np.float64) @ k[h].astype(np.float64).T / D**0.5 + (bias[h] if np.ndim(bias) else bias)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        out[h] = weights @ v[h].astype(np.float64) / weights.sum(axis=1, keepdims=True)
    return out


PEAK_C = """
typedef float vec __attribute__((vector_size(WIDTH * 4)));
float spin(long turns) {
    vec a[10], x, y;
    for (int i = 0; i < WIDTH; i++) { x[i] = 0.999f; y[i] = 1e-3f; }
    for (int r = 0; r < 10; r++) a[r] = x * (float)(r + 1);
    for (long t = 0; t < turns; t++)
        _Pragma("GCC unroll 10")
        for (int r = 0; r < 10; r++) a[r] = a[r] * x + y;
    float sum = 0;
    for (int r = 0; r < 10; r++) for (int i = 0; i < WIDTH; i++) sum += a[r][i];
    return sum;
}
"""
PEAK_FLAGS = {"avx512": ("16", "-march=x86-64-v4"), "avx2": ("8", "-mavx2 -mfma"), "base": ("4", "")}


def peak_flops() -> float:
    """float32 operations per second of one core in this variant, from a loop of independent multiply-adds; or 0."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    width, flags = PEAK_FLAGS[posenc.isa()]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "peak.c"), Path(folder, "peak.so")
        source.write_text(PEAK_C)
        command = [compiler, "-O3", "-ffp-contract=fast", f"-DWIDTH={width}", *flags.split(), "-shared", "-fPIC"]
        try:
            subprocess.run([*command, str(source), "-o", str(library)], check=True, capture_output=True)
            spin: Callable[[int], float] = ctypes.CDLL(str(library)).spin
        except (OSError, subprocess.CalledProcessError):
            return 0.0
        spin.argtypes, spin.restype = [ctypes.c_long], ctypes.c_float  # type: ignore[attr-defined]
        turns, best = 4_000_000, 0.0
        for _ in range(9):
            start = time.perf_counter()
            spin(turns)
            best = max(best, turns * 10 * int(width) * 2 / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    main(__doc__, run)
