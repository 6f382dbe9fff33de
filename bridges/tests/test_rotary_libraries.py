"""Agreement with rotary-embedding-torch and x-transformers on xPos; test_check.py has their rotations."""

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
