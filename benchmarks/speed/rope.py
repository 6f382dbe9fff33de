"""Time the rotary embedding of queries against a copy and against the libraries that have it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, check, main, peer, random
from tools.runtimes import runtimes

import posenc

N, D = 4096, 128
FLOAT32_ANGLES = 2e-3  # an angle of 4096 is rounded by 2.4e-4, and the largest numbers are 5
SIZES = {"32 MiB": 16, "256 MiB": 128}  # heads: the queries of a layer, smaller and larger than the caches


def run(report: Report) -> None:
    for size, heads in SIZES.items():
        in_float32(report, f"{size}, H={heads} N={N} D={D}", heads)
    in_half_precision(report, 32)


def in_float32(report: Report, size: str, heads: int) -> None:
    w, positions = posenc.rope_frequencies(D), np.arange(N)
    torch, llama = peer("torch"), peer("transformers.models.llama.modeling_llama")
    x, ours, copied = random((heads, N, D)), random((heads, N, D), seed=1), random((heads, N, D), seed=2)
    check("rope", posenc.rope(x, positions, w, layout="half", out=ours)[3], numpy_rope(x[3].astype(np.float64)), 2e-6)
    tables = posenc.rope_table(positions, w, dtype=np.float32)
    for layout in ("half", "interleaved"):
        contenders: dict[str, Any] = {
            "posenc.rope(out=)": lambda layout=layout: posenc.rope(x, positions, w, layout=layout, out=ours),
            "copy": lambda: np.copyto(copied, x),
        }
        most, least = {"copy": 1.4}, None
        if llama and layout == "half":
            contenders["transformers LLaMA"] = transformers_rope(torch, llama, torch.from_numpy(x))
            least = {"transformers LLaMA": 3.0}
        if torch and layout == "interleaved":
            contenders["torch complex multiply, out="] = complex_rope(torch, x, copied)
            least = {"torch complex multiply, out=": 0.9}
        if heads == min(SIZES.values()):
            for name, call in libraries(x, positions, tables, layout).items():
                wanted = posenc.rope(x[3], positions, w, layout=layout)
                check(name, np.asarray(call())[0, 3], wanted, FLOAT32_ANGLES)
                contenders[name] = call
        report.time(f"rope float32 {layout}, {size}, out=", contenders, most=most, least=least)
    for layout in ("half", "interleaved"):
        report.time(
            f"rope float32 {layout} in place, {size}",
            {
                "posenc.rope(out=x)": lambda layout=layout: posenc.rope(ours, positions, w, layout=layout, out=ours),
                "posenc.rope_by_table(out=x)": lambda layout=layout: posenc.rope_by_table(
                    ours, *tables, layout=layout, out=ours
                ),
                "copy": lambda: np.copyto(copied, x),
            },
            most={"copy": 1.1},
        )
    video = np.indices((4, 32, N // 128)).reshape(3, -1)
    of_video = posenc.axial_frequencies((48, 40, 40))
    report.time(
        f"rope_nd float32 half, three coordinates, {size}, out=",
        {
            "posenc.rope_nd(out=)": lambda: posenc.rope_nd(x, video, of_video, layout="half", out=ours),
            "posenc.rope(out=)": lambda: posenc.rope(x, positions, w, layout="half", out=ours),
        },
        most={"posenc.rope(out=)": 1.1},
    )
    mixed, k = np.zeros((3, D // 2)), np.arange(D // 2)
    mixed[np.where(k < 60, k % 3, 0), k] = w.inv_freq  # those of mrope_frequencies, which older builds lack
    relatives: dict[str, Any] = {
        "posenc.rope(out=)": lambda: posenc.rope(x, positions, w, layout="half", out=ours),
        "rope_nd, M-RoPE": lambda: posenc.rope_nd(x, video, mixed, layout="half", out=ours),
        "xpos": lambda: posenc.xpos(x, positions, w, layout="half", out=ours),
        "rerotate": lambda: posenc.rerotate(x, positions, positions - 7, w, layout="half", out=ours),
    }
    report.time(f"relatives of rope, float32, {size}, out=", relatives)


def in_half_precision(report: Report, heads: int) -> None:
    w, positions, x = posenc.rope_frequencies(D), np.arange(N), random((heads, N, D))
    torch, llama = peer("torch"), peer("transformers.models.llama.modeling_llama")
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
        most, least = {"copy": 3.5 if posenc.runtime.isa() == "avx2" else 2.3} if dtype == "bfloat16" else None, None
        if llama:
            contenders["transformers LLaMA"] = transformers_rope(
                torch, llama, torch.from_numpy(x).to(getattr(torch, dtype))
            )
            least = {"transformers LLaMA": 3.0}
        report.time(f"rope {dtype} half, H={heads} N={N} D={D}, out=", contenders, most=most, least=least)


def numpy_rope(x: np.ndarray) -> np.ndarray:
    """Rotate x (N, D) in float64, half layout."""
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-2 * np.arange(D // 2) / D)
    first, second = x[:, : D // 2].astype(np.float64), x[:, D // 2 :].astype(np.float64)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)


def half_inputs(dtype: str, x: np.ndarray) -> tuple[Any, Any]:
    """Return x in a half-precision dtype, and its rounded values in float64."""
    if dtype == "bfloat16":
        ml_dtypes = peer("ml_dtypes")
        if not ml_dtypes:
            return None, None
        narrow = x.astype(ml_dtypes.bfloat16)
    else:
        narrow = x.astype(np.float16)
    return narrow, narrow.astype(np.float64)


def transformers_rope(torch: Any, llama: Any, q: Any) -> Any:
    """Rotate queries as a model of transformers does: a float32 table per call, cast to the dtype of q."""
    inverse = 1.0 / 10000.0 ** (torch.arange(0, D, 2, dtype=torch.float32) / D)
    empty = q[:0]

    def rotate() -> Any:
        angle = torch.arange(N, dtype=torch.float32)[:, None] * inverse
        both = torch.cat((angle, angle), dim=-1)
        cos, sin = both.cos().to(q.dtype)[None], both.sin().to(q.dtype)[None]
        return llama.apply_rotary_pos_emb(q[None], empty[None], cos, sin)[0]

    return rotate


def libraries(x: np.ndarray, positions: np.ndarray, tables: Any, layout: str) -> dict[str, Any]:
    """Calls of onnxruntime and OpenVINO, and of the libraries for torch that have the interleaved layout alone."""
    cached = {"x": x[None], "cos": tables[0], "sin": tables[1], "positions": positions[None]}
    runs = runtimes("RotaryEmbedding", cached, interleaved=int(layout == "interleaved"))
    found: dict[str, Any] = {f"{name} RotaryEmbedding, table ready": call for name, call in runs.items()}
    if layout == "half" or not (torch := peer("torch")):
        return found
    q: Any = torch.from_numpy(x)[None]
    if package := peer("x_transformers.x_transformers"):
        x_transformers: Any = package
        module = x_transformers.RotaryEmbedding(D)

        def rotate() -> Any:
            angles, scale = module.forward_from_seq_len(N)
            return x_transformers.apply_rotary_pos_emb(q, angles, scale)

        found["x-transformers apply_rotary_pos_emb"] = rotate
    if package := peer("rotary_embedding_torch"):
        keeps: Any = package.RotaryEmbedding(D)
        found["rotary-embedding-torch, angles kept"] = lambda: keeps.rotate_queries_or_keys(q)
    return found


def complex_rope(torch: Any, x: np.ndarray, out: np.ndarray) -> Any:
    """Multiply pairs, as complex numbers, by a ready table: one pass, the fastest expression in torch."""
    q, into = (torch.view_as_complex(torch.from_numpy(a).view(len(x), N, D // 2, 2)) for a in (x, out))
    angle = torch.arange(N, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    table = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    return lambda: torch.mul(q, table, out=into)


if __name__ == "__main__":
    main(__doc__, run)
