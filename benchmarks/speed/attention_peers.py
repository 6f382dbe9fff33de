"""Time attention against torch, onnxruntime, OpenVINO and jax, and with ALiBi against FlexAttention.

All read the same numbers, and the script first checks that their results agree. FlexAttention is compiled, for which it
needs a C++ compiler. jax is jit-compiled. XLA starts a thread for each CPU that it may use, so this process is bound to
one CPU, and jax has lines of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip


os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
if hasattr(os, "sched_setaffinity"):  # Linux
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np
from tools.measure import Report, check, leave_out, main, peer, random
from tools.runtimes import runtimes

import posenc

H, D = 8, 64
CLOSE = 2e-5  # float32 sums of 64 products, then of 2048 weights


def run(report: Report) -> None:
    for n in (1024, 2048):
        flex(report, n)
    every_library(report, 1024)


def flex(report: Report, n: int) -> None:
    torch: Any = peer("torch")
    attention: Any = peer("torch.nn.attention.flex_attention")
    if not torch or not attention:
        return
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    ours = [np.empty_like(q) for _ in range(2)]
    slopes = posenc.alibi_slopes(H)
    bias, given = posenc.alibi(slopes), torch.from_numpy(slopes).float()
    tensors = [torch.from_numpy(x)[None] for x in (q, k, v)]

    def add_bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score - given[h] * (i - j).abs()

    def earlier(b: Any, h: Any, i: Any, j: Any) -> Any:
        return j <= i

    compiled = torch.compile(attention.flex_attention, dynamic=False)
    blocks = attention.create_block_mask(earlier, None, None, n, n, device="cpu")

    def theirs(mask: Any = None) -> Any:
        with torch.no_grad():
            return compiled(*tensors, score_mod=add_bias, block_mask=mask)

    try:
        theirs()
    except torch._dynamo.exc.BackendCompilerFailed as error:
        leave_out("torch FlexAttention", f"does not compile: {str(error).splitlines()[0]}")
        return
    for name, causal, mask, out in (("", False, None, ours[0]), (" causal", True, blocks, ours[1])):

        def call(causal: bool = causal, out: Any = out) -> Any:
            return posenc.attention(q, k, v, bias=bias, causal=causal, out=out)

        check(f"FlexAttention{name}", theirs(mask)[0], call(), CLOSE)
        report.time(
            f"attention ALiBi{name} float32 H={H} N=M={n} D={D}",
            {"posenc": call, "torch FlexAttention, compiled": lambda mask=mask: theirs(mask)},
            least={"torch FlexAttention, compiled": 2.5},
        )


def every_library(report: Report, n: int) -> None:
    """Time attention in float32 against each library that has it, on contiguous arrays (H, n, D)."""
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    bias = posenc.alibi(posenc.alibi_slopes(H))
    matrix = np.ascontiguousarray(bias.matrix(n))
    kinds: dict[str, tuple[dict[str, Any], bool, Any]] = {
        "plain": ({}, False, None),
        "causal": ({"causal": True}, True, None),
        "ALiBi, its matrix ready": ({"bias": bias}, False, matrix),
    }
    for name, (options, is_causal, added) in kinds.items():
        out = np.empty_like(q)

        def ours(options: Any = options, out: Any = out) -> Any:
            return posenc.attention(q, k, v, out=out, **options)

        contenders = libraries(q, k, v, is_causal, added)
        for who, call in contenders.items():
            result = np.asarray(call())[0]
            check(f"{who}, {name}", result.transpose(1, 0, 2) if len(result) == n else result, ours(), CLOSE)
        # After a call, threads of XLA spin for milliseconds, which the next call of the turn would pay for.
        spinning = {who: contenders.pop(who) for who in list(contenders) if who.startswith("jax")}
        for title, others in ((name, contenders), (f"{name}, beside jax", spinning)):
            if others:
                report.time(f"attention {title} float32 H={H} N=M={n} D={D}", {"posenc": ours, **others})


def libraries(q: Any, k: Any, v: Any, is_causal: bool, added: Any) -> dict[str, Callable[[], Any]]:
    """Calls that return (1, H, n, D), by name; jax has the layout (1, n, H, D)."""
    found: dict[str, Callable[[], Any]] = {}
    batch = {"q": q[None], "k": k[None], "v": v[None]} | ({} if added is None else {"added": added[None]})
    if torch := peer("torch"):
        tensors = [torch.from_numpy(array) for array in batch.values()]
        sdpa = torch.nn.functional.scaled_dot_product_attention
        found["torch SDPA"] = lambda: sdpa(*tensors, is_causal=is_causal)
    for name, call in runtimes("Attention", batch, is_causal=int(is_causal)).items():
        found[f"{name} Attention"] = call
    if package := peer("jax"):
        jax: Any = package
        jax.config.update("jax_platforms", "cpu")
        given = [jax.numpy.asarray(array.swapaxes(1, 2)) for array in (q[None], k[None], v[None])]
        bias = None if added is None else jax.numpy.asarray(added[None])
        compiled = jax.jit(jax.nn.dot_product_attention, static_argnames="is_causal")
        found["jax dot_product_attention, jit"] = lambda: compiled(
            *given, bias, is_causal=is_causal
        ).block_until_ready()
    return found


if __name__ == "__main__":
    main(__doc__, run)
