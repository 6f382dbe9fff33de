"""Time attention of one to four queries over many keys, against torch and against reading the keys and values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from attention import naive
from tools.measure import Report, check, main, peer, random

import posenc


def run(report: Report) -> None:
    torch, m = peer("torch"), 8192
    for heads, groups, n, d in ((32, 32, 1, 64), (32, 32, 1, 128), (32, 8, 1, 64), (32, 8, 1, 128), (32, 32, 4, 64)):
        q, k, v = random((heads, n, d)), random((groups, m, d), seed=1), random((groups, m, d), seed=2)
        share = heads // groups
        same = (np.broadcast_to(array[:1], (share, m, d)) for array in (k, v))
        check("decode", posenc.attention(q[:share], k[:1], v[:1]), naive(q[:share], *same, 0.0), 1e-5)
        contenders: dict[str, Any] = {
            "posenc.attention": lambda q=q, k=k, v=v: posenc.attention(q, k, v),
            "sum of k and of v (reads them)": lambda k=k, v=v: (k.sum(), v.sum()),
        }
        goal = None
        if torch:
            tq, tk, tv = (torch.from_numpy(a)[None] for a in (q, k, v))
            sdpa, shared = torch.nn.functional.scaled_dot_product_attention, heads != groups
            contenders["torch SDPA"] = lambda tq=tq, tk=tk, tv=tv, sdpa=sdpa, shared=shared: sdpa(
                tq, tk, tv, enable_gqa=shared
            )
            goal = {"torch SDPA": 2.0 if shared else 1.5}
        report.time(
            f"decode float32 H={heads} G={groups} N={n} M={m} D={d}", contenders, least=goal,
            most={"sum of k and of v (reads them)": 1 / 0.8},
        )  # fmt: skip


if __name__ == "__main__":
    main(__doc__, run)
