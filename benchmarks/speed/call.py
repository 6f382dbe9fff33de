"""Time calls with almost nothing to compute, against a small call of NumPy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random

import posenc


def run(report: Report) -> None:
    n, d = 4, 8
    x, y, out, copied = random((n, d)), random((n, d), seed=1), random((n, d), seed=2), random((n, d), seed=3)
    w = posenc.rope_frequencies(d).inv_freq
    positions = np.arange(n)
    angle = positions[:, None] * w
    table = posenc.rope_table(positions, w, dtype=np.float32)
    expected = x[:, : d // 2] * np.cos(angle) - x[:, d // 2 :] * np.sin(angle)
    check("rope", posenc.rope(x, positions, w, layout="half", out=out)[:, : d // 2], expected, 1e-6)

    add = {"adding two such arrays, np.add(out=)": lambda: np.add(x, y, out=copied)}
    contenders: dict[str, Any] = {
        "posenc.rope(out=)": lambda: posenc.rope(x, positions, w, layout="half", out=out),
        **add,
    }
    if torch := peer("torch"):
        tx, tcos, tsin = torch.from_numpy(x), *(torch.from_numpy(np.concatenate([t, t], axis=1)) for t in table)

        def torch_rope() -> Any:
            return tx * tcos + torch.cat((-tx[:, d // 2 :], tx[:, : d // 2]), dim=-1) * tsin

        contenders["torch, ready table"] = torch_rope
    report.time(f"rope of {n} x {d}, out=", contenders, most={"adding two such arrays, np.add(out=)": 4.0}, cold=False)
    report.time(
        f"rope of {n} x {d} from a table, out=",
        {"posenc.rope_by_table(out=)": lambda: posenc.rope_by_table(x, *table, layout="half", out=out), **add},
        cold=False,
    )
    report.time(
        f"rope of {n} x {d}, fresh",
        {"posenc.rope": lambda: posenc.rope(x, positions, w, layout="half"), **add},
        cold=False,
    )
    report.time(
        f"sinusoidal of {n} x {d}, out=",
        {"posenc.sinusoidal(out=)": lambda: posenc.sinusoidal(positions, d, out=out), **add},
        cold=False,
    )
    slopes = posenc.alibi(posenc.alibi_slopes(4))
    report.time(
        "alibi.matrix(8), 4 heads",
        {"posenc matrix": lambda: slopes.matrix(8), **add},
        cold=False,
    )
    q = random((2, n, d), seed=4)
    report.time(
        f"attention H=2 N={n} D={d}",
        {"posenc.attention": lambda: posenc.attention(q, q, q), **add},
        cold=False,
    )
    one_token(report, add)


def one_token(report: Report, add: dict[str, Any]) -> None:
    """Time the decoding of a token. With a bias, Python checks the arguments; without options, the binding does."""
    q, k, v = random((4, 1, 64)), random((4, 16, 64), seed=1), random((4, 16, 64), seed=2)
    bias = posenc.alibi(posenc.alibi_slopes(4))
    contenders: dict[str, Any] = {
        "posenc.attention": lambda: posenc.attention(q, k, v),
        "posenc.attention, ALiBi": lambda: posenc.attention(q, k, v, bias=bias, align="end"),
    }
    if torch := peer("torch"):
        tensors = [torch.from_numpy(x)[None] for x in (q, k, v)]
        contenders["torch SDPA"] = lambda: torch.nn.functional.scaled_dot_product_attention(*tensors)
    report.time("attention of one token over 16 keys H=4 D=64", {**contenders, **add}, cold=False)


if __name__ == "__main__":
    main(__doc__, run)
