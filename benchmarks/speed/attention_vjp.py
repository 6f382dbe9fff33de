"""Time the gradient of attention against the multiply-add peak and against torch's backward.

Further lines time the gradients of biases, and operators that read q and k, forward and backward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
    for n in (256, 1024, 2048):
        plain(report, torch, n)
    content(report)


def gradient(q: Any, k: Any, v: Any, grad: Any, **options: Any) -> Callable[[], Any]:
    out, lse = posenc.attention(q, k, v, return_lse=True, **options)
    return lambda: posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, **options)


def plain(report: Report, torch: Any, n: int) -> None:
    """Time the gradient without a bias, which has five matrix products (the forward has two), and with biases."""
    q, k, v, grad = (random((H, n, D), seed=seed) for seed in range(4))
    without = gradient(q, k, v, grad)
    contenders: dict[str, Any] = {"posenc.attention_vjp": without, **peak(10.0 * H * n * n * D)}
    if torch:
        tensors = [torch.from_numpy(a)[None].requires_grad_() for a in (q, k, v)]
        result = torch.nn.functional.scaled_dot_product_attention(*tensors)
        cotangent = torch.from_numpy(grad)[None]
        contenders["torch SDPA backward"] = lambda: torch.autograd.grad(result, tensors, cotangent, retain_graph=True)
        for ours, theirs in zip(without()[:3], contenders["torch SDPA backward"](), strict=True):
            check("attention_vjp", ours, theirs[0], 1e-4)
    share(
        report.time(
            f"attention_vjp float32 H={H} N=M={n} D={D}",
            contenders,
            most={NAME: 1 / 0.75},
            least={"torch SDPA backward": 1.2} if torch else None,
        )
    )
    others: dict[str, tuple[dict[str, Any], float]] = {
        "causal": ({"causal": True}, 0.6),
        "ALiBi, its gradient": ({"bias": posenc.alibi(posenc.alibi_slopes(H))}, 1.06),
        "T5, its gradient": ({"bias": posenc.t5(random((32, H)), bidirectional=True)}, 1.06),
    }
    for name, (options, most) in others.items():
        pair = {name: gradient(q, k, v, grad, **options), "without": without}
        report.time(f"attention_vjp float32 H={H} N=M={n} D={D}: {name}", pair, most={"without": most})


def content(report: Report) -> None:
    """Time operators that read q and k against attention without, forward and backward."""
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
    few = np.s_[:, :40]
    for name, bias in biases.items():
        added = bias.logits(q[few], k[few]) * np.float32(0.125)
        dense = posenc.attention(q[few], k[few], v[few], bias=posenc.dense(added), scale=0.125)
        check(name, posenc.attention(q[few], k[few], v[few], bias=bias, scale=0.125), dense, 1e-5)
        contenders = {name: lambda bias=bias: posenc.attention(q, k, v, bias=bias, scale=0.125)}
        contenders["without"] = lambda: posenc.attention(q, k, v, scale=0.125)
        shape = f"{name} float32 H={H} N=M={n} D={D}"
        report.time(f"attention {shape}", contenders, most={"without": 2.3 if name[-4:] in (" p2c", "both") else 1.65})
        contenders = {name: gradient(q, k, v, grad, bias=bias, scale=0.125)}
        contenders["without"] = gradient(q, k, v, grad, scale=0.125)
        report.time(f"attention_vjp {shape}", contenders, most={"without": 1.8})


if __name__ == "__main__":
    main(__doc__, run)
