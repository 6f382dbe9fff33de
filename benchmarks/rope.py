"""Rotary embedding of queries of real size, against copying them and against what others do."""

from __future__ import annotations

from typing import Any

import numpy as np
from measure import Report, check, main, peer, random

import posenc

H, N, D = 32, 4096, 128  # 64 MiB of float32, one layer's queries


def run(report: Report) -> None:
    w = posenc.rope_frequencies(D)
    positions = np.arange(N)
    torch, llama = peer("torch"), peer("transformers.models.llama.modeling_llama")
    x, ours, copied = random((H, N, D)), random((H, N, D), seed=1), random((H, N, D), seed=2)
    check("rope", posenc.rope(x, positions, w, layout="half", out=ours)[3], numpy_rope(x[3].astype(np.float64)), 2e-6)

    for layout in ("half", "interleaved"):
        contenders: dict[str, Any] = {
            "posenc.rope(out=)": lambda layout=layout: posenc.rope(x, positions, w, layout=layout, out=ours),
            "copy": lambda: np.copyto(copied, x),
        }
        if llama and layout == "half":
            contenders["transformers LLaMA"] = transformers_rope(torch, llama, torch.from_numpy(x))
        if torch and layout == "interleaved":
            contenders["torch complex multiply, out="] = complex_rope(torch, x, copied)
        report.time(f"rope float32 {layout}, H={H} N={N} D={D}, out=", contenders, most={"copy": 1.45})

    tables = posenc.rope_table(positions, w)
    report.time(
        "rope float32 half in place, from a table",
        {
            "posenc.rope(out=x)": lambda: posenc.rope(ours, tables, layout="half", out=ours),
            "copy": lambda: np.copyto(copied, x),
        },
    )

    for dtype in ("bfloat16", "float16"):
        narrow, exact = half_inputs(dtype, x)
        if narrow is None:
            continue
        into, other = np.empty_like(narrow), np.empty_like(narrow)
        into.view(np.uint16).fill(1)
        other.view(np.uint16).fill(1)
        result = posenc.rope(narrow, positions, w, layout="half", out=into)
        check(f"rope {dtype}", result[3].astype(np.float32), numpy_rope(exact[3]), 0.02)
        contenders = {
            "posenc.rope(out=)": lambda narrow=narrow, into=into: posenc.rope(
                narrow, positions, w, layout="half", out=into
            ),
            "copy": lambda narrow=narrow, other=other: np.copyto(other.view(np.uint16), narrow.view(np.uint16)),
        }
        least = None
        if llama:
            contenders["transformers LLaMA"] = transformers_rope(
                torch, llama, torch.from_numpy(x).to(getattr(torch, dtype))
            )
            least = {"transformers LLaMA": 3.0} if dtype == "bfloat16" else None
        report.time(f"rope {dtype} half, H={H} N={N} D={D}, out=", contenders, least=least)


def numpy_rope(x: np.ndarray) -> np.ndarray:
    """(N, D) in float64, half layout."""
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-2 * np.arange(D // 2) / D)
    first, second = x[:, : D // 2].astype(np.float64), x[:, D // 2 :].astype(np.float64)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)


def half_inputs(dtype: str, x: np.ndarray) -> tuple[Any, Any]:
    """x in a half type, and what it then holds."""
    if dtype == "bfloat16":
        ml_dtypes = peer("ml_dtypes")
        if not ml_dtypes:
            return None, None
        narrow = x.astype(ml_dtypes.bfloat16)
    else:
        narrow = x.astype(np.float16)
    return narrow, narrow.astype(np.float64)


def transformers_rope(torch: Any, llama: Any, q: Any) -> Any:
    """transformers as a model runs it: the table once per call in float32, cast to q's dtype, queries alone rotated."""
    inverse = 1.0 / 10000.0 ** (torch.arange(0, D, 2, dtype=torch.float32) / D)
    empty = q[:0]

    def rotate() -> Any:
        angle = torch.arange(N, dtype=torch.float32)[:, None] * inverse
        both = torch.cat((angle, angle), dim=-1)
        cos, sin = both.cos().to(q.dtype)[None], both.sin().to(q.dtype)[None]
        return llama.apply_rotary_pos_emb(q[None], empty[None], cos, sin)[0]

    return rotate


def complex_rope(torch: Any, x: np.ndarray, out: np.ndarray) -> Any:
    """Pairs as complex numbers times a ready table: one pass, the fastest torch has."""
    q, into = (torch.view_as_complex(torch.from_numpy(a).view(H, N, D // 2, 2)) for a in (x, out))
    angle = torch.arange(N, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    table = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    return lambda: torch.mul(q, table, out=into)


if __name__ == "__main__":
    main(__doc__, run)
