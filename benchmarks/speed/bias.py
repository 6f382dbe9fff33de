"""Time ALiBi and T5 as matrices, views and dense, and attention with each operator against attention without."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc

H, D = 8, 64


def run(report: Report) -> None:
    view(report)
    dense_alibi(report)
    dense_t5(report)
    if not report.peers_only:
        added(report)
        inside_attention(report)


def view(report: Report) -> None:
    """Measure the growth of the peak of this process, before anything large is allocated."""
    bias = posenc.alibi(posenc.alibi_slopes(32))
    bias.matrix(8)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    matrix = bias.matrix(8192)
    first = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert matrix.shape == (32, 8192, 8192)
    assert matrix[31, 8191, 0] == np.float32(-8191 / 256)
    report.figure("alibi(alibi_slopes(32)).matrix(8192): memory", grown / 1024, "MiB", most=8)
    report.figure("alibi(alibi_slopes(32)).matrix(8192): the first call", first * 1e3, "ms", most=1)
    report.time("alibi(alibi_slopes(32)).matrix(8192), warm", {"posenc matrix": lambda: bias.matrix(8192)}, cold=False)


def dense_alibi(report: Report) -> None:
    heads, n = 8, 2048  # 128 MiB
    bias = posenc.alibi(posenc.alibi_slopes(heads))
    ours, filled = random((heads, n, n)), random((heads, n, n), seed=1)
    distance = np.arange(n)[None, :] - np.arange(n)[:, None]
    check("alibi", bias.matrix(n, out=ours), -posenc.alibi_slopes(heads)[:, None, None] * abs(distance), 1e-4)
    contenders = {"posenc matrix(out=)": lambda: bias.matrix(n, out=ours), "fill": lambda: filled.fill(1.5)}
    if torch := peer("torch"):
        into = torch.from_numpy(random((heads, n, n), seed=2))
        slopes = torch.tensor(posenc.alibi_slopes(heads), dtype=torch.float32)[:, None, None]
        steps = -(torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs().float()
        contenders["torch slopes * distance, out="] = lambda: torch.mul(slopes, steps, out=into)
    report.time(f"dense ALiBi, H={heads} N={n}, out=", contenders, most={"fill": 1.3})


def added(report: Report) -> None:
    """Add both matrices to logits, into the same two outputs in turn.

    With one output for each matrix, the place of its pages would change the ratio by up to 7 %.
    """
    heads, n = 8, 2048
    logits, matrix = random((heads, n, n)), posenc.alibi(posenc.alibi_slopes(heads)).matrix(n)
    outputs, full = (random((heads, n, n), seed=1), random((heads, n, n), seed=2)), matrix.copy()
    report.time(
        f"adding to logits, H={heads} N={n}, twice",
        {
            "the view": lambda: [np.add(logits, matrix, out=out) for out in outputs],
            "a dense array": lambda: [np.add(logits, full, out=out) for out in outputs],
        },
        most={"a dense array": 1.05},
    )


def dense_t5(report: Report) -> None:
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


def relative(n: int) -> dict[str, tuple[Any, dict[str, Any], float | None]]:
    """Other operators that read positions of the sequence, by name; attention_vjp.py has Shaw's and DeBERTa's."""
    table, scale = random((H, 129, 1)), {"scale": D**-0.5}
    wide = posenc.gated_distance(random((H, n, 16)), random((1024, 16)), rows="past")
    return {
        "TUPE": (posenc.tupe(random((H, n, D)), random((H, n, D), seed=1)), scale, 2.0),
        "gated distance, R=1": (posenc.gated_distance(random((H, n, 1)), table), scale, None),
        "gated distance, R=16": (wide, scale, None),
        "CoPE, P=64": (posenc.cope(random((H, 64, D))), scale, None),
    }


def inside_attention(report: Report) -> None:
    n = 2048
    q, k, v = (random((H, n, D), seed=seed) for seed in range(3))
    outs = [np.empty_like(q) for _ in range(2)]
    biases = operators(n)
    for name, (bias, where, _) in biases.items():
        few = slice(0, 65), slice(0, 130)
        part = {a: p[s] for (a, p), s in zip(where.items(), few, strict=False)} or {"align": "start"}
        matrix = bias.matrix(65, 130, **(part if where else {"q_positions": np.arange(65)}))
        args, dense = (q[:, few[0]], k[:, few[1]], v[:, few[1]]), posenc.dense(matrix)
        check(name, posenc.attention(*args, bias=bias, **part), posenc.attention(*args, bias=dense), 1e-5)
    for name, (bias, options, most) in {**biases, **relative(n)}.items():
        report.time(
            f"attention float32 H={H} N=M={n} D={D}: {name}",
            {
                "with it": lambda bias=bias, given=options: posenc.attention(q, k, v, bias=bias, out=outs[0], **given),
                "without": lambda: posenc.attention(q, k, v, out=outs[1]),
            },
            most={"without": most} if most else None,
        )


if __name__ == "__main__":
    main(__doc__, run)
