"""Agreement with rotary-embedding-torch and x-transformers on rotary embeddings and xPos: a table of (library, their
call, our options)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreed import agree
from float32 import angle_error

import posenc

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")

N, D = 300, 32
SIZE = 9
"""|x0| + |x1| of the numbers used here, by which an error of the angle is multiplied."""
RET, XT = "rotary_embedding_torch", "x_transformers.x_transformers"


def rotated(ret: Any, x: Any, dim: int = D, **options: Any) -> Any:
    given = {name: options.pop(name) for name in ("offset",) if name in options}
    return ret.RotaryEmbedding(dim, cache_if_possible=False, **options).rotate_queries_or_keys(x, **given)


def angles(dim: int) -> Any:
    """Angles in float64, with which results differ by roundings only."""
    return torch.from_numpy(np.repeat(np.arange(N)[:, None] * posenc.rope_frequencies(dim).inv_freq, 2, axis=1))


def from_length(xt: Any, x: Any, dim: int) -> Any:
    return xt.apply_rotary_pos_emb(x, xt.RotaryEmbedding(dim).forward_from_seq_len(N)[0])


ROTATIONS: list[tuple[str, Any, dict[str, Any]]] = [
    *(
        (RET, lambda ret, x, r=r, p=p: rotated(ret, x, r, offset=p), {"rotary_dim": r, "start": p})
        for r in (8, 16, D) for p in (0, 5000)
    ),
    (RET, lambda ret, x: rotated(ret, x, theta=500000.0), {"base": 500000.0}),
    (RET, lambda ret, x: rotated(ret, x, seq_before_head_dim=True), {"seq_axis": 1}),
    *(
        (RET, lambda ret, x, p=p: ret.apply_rotary_emb(angles(16), x, start_index=p), {"rotary_offset": p})
        for p in (0, 4, 16)
    ),
    *((XT, lambda xt, x, r=r: from_length(xt, x, r), {"rotary_dim": r}) for r in (8, 16, D)),
    (XT, lambda xt, x: xt.apply_rotary_pos_emb(x, angles(D)[None]), {"rotary_offset": 0, "rotary_dim": D}),
]  # fmt: skip
"""Rows with `rotary_offset` have the peer's angles in float64, and 16 rotated channels by default."""


def name(part: Any) -> str | None:
    """The id of a part of a row; pytest numbers functions, whose text has their address."""
    return None if callable(part) else str(part)


@pytest.mark.parametrize(("library", "theirs", "options"), ROTATIONS, ids=name)
def test_rope(library: str, theirs: Any, options: dict[str, Any]) -> None:
    peer, options = pytest.importorskip(library, reason=f"{library} is not installed"), {**options}
    x = np.random.default_rng(0).standard_normal((2, N, 3, D) if "seq_axis" in options else (2, 3, N, D))
    exact, base = "rotary_offset" in options, options.pop("base", 10000.0)
    rotary_dim = options.setdefault("rotary_dim", 16 if exact else D)
    ours = posenc.rope(x, N, posenc.rope_frequencies(rotary_dim, base=base), layout="interleaved", **options)
    # angles to 300, rounded to 3e-14 in NumPy
    bound = 1e-12 if exact else SIZE * angle_error(np.arange(N) + options.get("start", 0))
    bound = bound[:, None] if "seq_axis" in options else bound
    agree("rope", ours, theirs(peer, torch.from_numpy(x)).detach().numpy(), bound)
    start = options.get("rotary_offset", 0)
    for rest in (slice(start), slice(start + rotary_dim, None)):
        assert (ours[..., rest] == x[..., rest]).all()


@pytest.mark.parametrize("scale_base", [512, 700])
@pytest.mark.parametrize("library", [RET, XT])
def test_xpos(library: str, scale_base: int) -> None:
    """The center of the peers is half of the length. Their angles and scales are float32; a scale is a power of a
    rounded number, as an angle is a multiple of one, and zeta**(150 / 512) and its inverse are below 1.5."""
    peer = pytest.importorskip(library, reason=f"{library} is not installed")
    x = np.random.default_rng(0).standard_normal((2, 2, 3, N, D)).astype(np.float32)
    q, k = map(torch.from_numpy, x)
    if library == RET:
        module = peer.RotaryEmbedding(D, use_xpos=True, xpos_scale_base=scale_base, cache_if_possible=False)
        theirs = module.rotate_queries_and_keys(q, k)
    else:
        freqs, scale = peer.RotaryEmbedding(D, use_xpos=True, scale_base=scale_base).forward_from_seq_len(N)
        theirs = peer.apply_rotary_pos_emb(q, freqs, scale), peer.apply_rotary_pos_emb(k, freqs, scale**-1.0)
    options: dict[str, Any] = {"layout": "interleaved", "scale_base": scale_base, "center": N // 2}
    for one, other, downscale in zip(x, theirs, (False, True), strict=True):
        ours = posenc.xpos(one, N, posenc.rope_frequencies(D), downscale=downscale, **options)
        agree("xpos", ours, other.detach().numpy(), 1.5 * SIZE * angle_error(np.arange(N)))
