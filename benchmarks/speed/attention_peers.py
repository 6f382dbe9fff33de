"""Time attention against torch, onnxruntime, OpenVINO and jax, and with a bias against FlexAttention, T5 and BLOOM.

All read the same numbers, and the script first checks that their results agree. FlexAttention is compiled, for which it
needs a C++ compiler. T5 and BLOOM are the modules of transformers. They run unchanged, except that each projection
returns a tensor that was made before, so only their bias and their attention are timed. jax is jit-compiled. XLA starts
a thread for each CPU that it may use, so this process is bound to one CPU, and jax has lines of its own.
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
CLOSE_FAR = 2e-4  # at BLOOM's largest bias, 512, float32 is spaced by 6e-5; a weight has that relative error


def run(report: Report) -> None:
    for n in (1024, 2048):
        flex(report, n)
    t5(report, 1024)
    bloom(report, 1024)
    every_library(report, 1024)


def tokens(n: int, seed: int) -> Any:
    """An array (1, n, H, D), the layout of a projection."""
    return random((1, n, H, D), seed=seed)


def heads(x: Any) -> Any:
    """A view (H, n, D)."""
    return x[0].transpose(1, 0, 2)


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


def without_projections(module: Any, given: dict[str, Any], result: str) -> Any:
    """Replace the projections of a module by ready tensors, and the projection of its result by the identity."""
    torch: Any = peer("torch")

    class Ready(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, tensor: Any) -> None:
            super().__init__()
            self.tensor = tensor

        def forward(self, hidden: Any) -> Any:
            return self.tensor

    for name, tensor in given.items():
        setattr(module, name, Ready(tensor))
    setattr(module, result, torch.nn.Identity())
    return module.eval()


def t5(report: Report, n: int) -> None:
    if not peer("transformers"):
        return
    torch: Any = peer("torch")
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    q, k, v = (tokens(n, seed) for seed in range(3))
    q /= np.float32(D**0.5)  # T5 does not scale
    table = random((32, H), seed=3)
    config = T5Config(d_model=H * D, d_kv=D, num_heads=H, dropout_rate=0.0)
    module = T5Attention(config, has_relative_attention_bias=True)
    module.relative_attention_bias.weight.data = torch.from_numpy(table)
    ready = {name: torch.from_numpy(x.reshape(1, n, H * D)) for name, x in zip("qkv", (q, k, v), strict=True)}
    module, hidden = without_projections(module, ready, "o"), torch.zeros(1, n, H * D)
    ours = np.empty_like(q)

    def call() -> Any:
        posenc.attention(
            heads(q), heads(k), heads(v), bias=posenc.t5(table, bidirectional=True), scale=1.0, out=heads(ours)
        )
        return ours

    def theirs(kind: str, position_bias: Any = None) -> Any:
        config._attn_implementation = kind
        with torch.no_grad():
            return module(hidden, position_bias=position_bias)[0]

    ready_bias = torch.from_numpy(np.ascontiguousarray(posenc.t5(table, bidirectional=True).matrix(n)))[None]
    contenders: dict[str, Callable[[], Any]] = {
        "transformers T5Attention, eager": lambda: theirs("eager"),
        "transformers T5Attention, eager, bias ready": lambda: theirs("eager", ready_bias),
        "transformers T5Attention, sdpa": lambda: theirs("sdpa"),
        "transformers T5Attention, sdpa, bias ready": lambda: theirs("sdpa", ready_bias),
    }
    for name, work in contenders.items():
        check(f"T5, {name}", work().numpy().reshape(q.shape), call(), CLOSE)
    goal = {"transformers T5Attention, eager": 8.0}
    report.time(f"T5 attention float32 H={H} N=M={n} D={D}", {"posenc": call, **contenders}, least=goal)


def bloom(report: Report, n: int) -> None:
    """Time BLOOM's attention. It adds slope * j, which differs from ALiBi's -slope * (i - j) by a constant per row."""
    if not peer("transformers"):
        return
    torch: Any = peer("torch")
    from transformers.models.bloom.configuration_bloom import BloomConfig
    from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

    q, k, v = (tokens(n, seed) for seed in range(3))
    config = BloomConfig(hidden_size=H * D, n_head=H, hidden_dropout=0.0, attention_dropout=0.0)
    fused = torch.from_numpy(np.stack((q, k, v), axis=3).reshape(1, n, 3 * H * D))
    module = without_projections(BloomAttention(config, layer_idx=0), {"query_key_value": fused}, "dense")
    hidden = torch.zeros(1, n, H * D)
    words = torch.ones(1, n, dtype=torch.long)
    mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
    slopes, outs = posenc.alibi_slopes(H), [np.empty_like(q) for _ in range(2)]

    def call(out: Any, **options: Any) -> Any:
        posenc.attention(heads(q), heads(k), heads(v), out=heads(out), **options)
        return out

    def causal() -> Any:
        return call(outs[0], bias=posenc.alibi(slopes), causal=True)

    def whole() -> Any:
        row = slopes[:, None, None] * np.arange(n)
        return call(outs[1], bias=posenc.dense(row))

    def theirs(mask: Any) -> Any:
        with torch.no_grad():
            alibi = build_alibi_tensor(words, H, torch.float32)
            return module(hidden, hidden, alibi, mask)[0]

    kinds: tuple[tuple[str, Callable[[], Any], Any], ...] = (("causal", causal, mask), ("unmasked", whole, None))
    for name, ours, its in kinds:
        check(f"BLOOM {name}", theirs(its).numpy().reshape(q.shape), ours(), CLOSE_FAR)
        report.time(
            f"BLOOM attention, {name}, float32 H={H} N=M={n} D={D}",
            {"posenc": ours, "transformers BloomAttention": lambda its=its: theirs(its)},
            least={"transformers BloomAttention": 8.0},
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
            check(f"{who}, {name}", heads(result[None]) if len(result) == n else result, ours(), CLOSE)
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
