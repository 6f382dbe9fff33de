"""Time a dense T5 bias against transformers, and attention with each operator against attention without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc

H, D = 8, 64


def run(report: Report) -> None:
    dense(report)
    if not report.peers_only:
        inside_attention(report)


def dense(report: Report) -> None:
    heads, n = 16, 2048  # 256 MiB
    table = random((32, heads))
    bias = posenc.t5(table, bidirectional=True)
    ours, filled = random((heads, n, n)), random((heads, n, n), seed=1)
    contenders: dict[str, Any] = {
        "posenc matrix(out=)": lambda: bias.matrix(n, out=ours),
        "fill": lambda: filled.fill(1.5),
    }
    if peer("transformers"):
        torch: Any = peer("torch")
        from transformers.models.t5.configuration_t5 import T5Config
        from transformers.models.t5.modeling_t5 import T5Attention

        module = T5Attention(T5Config(num_heads=heads), has_relative_attention_bias=True)
        module.relative_attention_bias.weight.data = torch.from_numpy(table)
        with torch.no_grad():
            check("t5", bias.matrix(n, out=ours), module.compute_bias(n, n)[0].numpy(), 0.0)

        def compute_bias() -> object:
            with torch.no_grad():
                return module.compute_bias(n, n)

        contenders["transformers compute_bias"] = compute_bias
    report.time(
        f"dense T5, H={heads} N={n}, out=", contenders, most={"fill": 1.3}, least={"transformers compute_bias": 10}
    )
    report.time(f"T5 as a view, H={heads} N={n}", {"posenc matrix": lambda: bias.matrix(n)}, cold=False)


def operators(n: int) -> dict[str, tuple[Any, dict[str, Any], float | None]]:
    """Biases by name, with positions and with the goal: at most so many times the time of attention without."""
    rng = np.random.default_rng(0)
    gaps = {"q_positions": np.arange(n) * 3, "k_positions": np.arange(n) * 3}
    layers = rng.standard_normal((32, 1)), rng.standard_normal(32), rng.standard_normal((H, 32)), rng.standard_normal(H)
    t5 = posenc.t5(rng.standard_normal((32, H)), bidirectional=True)
    sandwich = posenc.sandwich(H, D)
    height, width = 32, n // 32
    return {
        "T5": (t5, {}, 1.1),
        "T5, positions with gaps": (t5, gaps, 2.0),
        "Sandwich": (sandwich, {}, 1.1),
        "Sandwich, positions with gaps": (sandwich, gaps, None),
        "KERPLE power, positions with gaps": (posenc.kerple_power([0.1] * H, [0.5] * H), gaps, None),
        "FoX": (posenc.fox(-rng.uniform(0, 1, (H, n))), {}, 2.0),
        "Swin": (posenc.swin(rng.standard_normal(((2 * height - 1) * (2 * width - 1), H)), height, width), {}, 2.0),
        "FIRE, 32 units": (posenc.fire(*layers, 0.1, 512.0), {}, None),
    }


def relative(n: int) -> dict[str, tuple[Any, float | None]]:
    """Operators that read queries and keys, and TUPE, by name, with the same goal."""
    table = random((H, 129, D))
    buckets = random((H, 512, D))
    return {
        "TUPE": (posenc.tupe(random((H, n, D)), random((H, n, D), seed=1)), 2.0),
        "gated distance, R=1": (posenc.gated_distance(random((H, n, 1)), table[..., :1]), None),
        "gated distance, R=16": (posenc.gated_distance(random((H, n, 16)), random((1024, 16)), rows="past"), None),
        "Shaw, K=64": (posenc.shaw(table), 2.0),
        "Shaw, K=64, values too": (posenc.shaw(table, random((H, 129, D), seed=1)), 2.0),
        "Transformer-XL, K=64": (posenc.transformer_xl(table, table[:, 0], table[:, 1]), 2.0),
        "DeBERTa, 256 buckets": (posenc.deberta(buckets, buckets, num_buckets=256, max_distance=512), 2.0),
        "CoPE, P=64": (posenc.cope(random((H, 64, D))), None),
    }


def inside_attention(report: Report) -> None:
    n = 2048
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    outs = [np.empty_like(q) for _ in range(2)]
    for name, (bias, where, most) in operators(n).items():
        few = slice(0, 65), slice(0, 130)
        part = {a: p[s] for (a, p), s in zip(where.items(), few, strict=False)} or {"align": "start"}
        matrix = bias.matrix(65, 130, **(part if where else {"q_positions": np.arange(65)}))
        args = q[:, few[0]], k[:, few[1]], v[:, few[1]]
        check(
            name, posenc.attention(*args, bias=bias, **part), posenc.attention(*args, bias=posenc.dense(matrix)), 1e-5
        )
        report.time(
            f"attention float32 H={H} N=M={n} D={D}: {name}",
            {
                "with it": lambda bias=bias, where=where: posenc.attention(q, k, v, bias=bias, out=outs[0], **where),
                "without": lambda: posenc.attention(q, k, v, out=outs[1]),
            },
            most={"without": most} if most else None,
        )
    for name, (operator, most) in relative(n).items():
        report.time(
            f"attention float32 H={H} N=M={n} D={D}: {name}",
            {
                "with it": lambda bias=operator: posenc.attention(q, k, v, bias=bias, scale=0.125, out=outs[0]),
                "without": lambda: posenc.attention(q, k, v, scale=0.125, out=outs[1]),
            },
            most={"without": most} if most else None,
        )


if __name__ == "__main__":
    main(__doc__, run)
