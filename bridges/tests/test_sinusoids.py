"""Sinusoidal tables of Hugging Face transformers and x-transformers, each with the options of posenc that name it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from agreed import agree, angle_error

import posenc

torch = pytest.importorskip("torch", reason="the peers run on torch, which is not installed")

N = 2048


def filled(create: Any, n: int, d: int) -> Any:
    """XLM and DistilBERT fill a tensor of the caller."""
    out = torch.empty(n, d)
    create(n, d, out)
    return out


def at_distances(cls: Any, n: int, d: int) -> Any:
    """XLNet passes positions and frequencies to the function."""
    inverse = 1 / torch.pow(10000, torch.arange(0, d, 2.0) / d)
    return cls.positional_embedding(torch.arange(n).float(), inverse)[:, 0]


HALVES: dict[str, Any] = {"layout": "half"}
HALF_1: dict[str, Any] = {"layout": "half", "denominator": "half-1"}
COSINES_FIRST: dict[str, Any] = {**HALF_1, "order": "cossin"}
EVEN, ODD = (6, 64), (6, 15, 64)
# model: (name in its module, how it makes a table, our options, widths, whether it computes in float64)
PRESETS: dict[str, tuple[str, Callable[[Any, int, int], Any], dict[str, Any], tuple[int, ...], bool]] = {
    "xlm": ("create_sinusoidal_embeddings", filled, {}, EVEN, True),
    "videomae": ("get_sinusoid_encoding_table", lambda table, n, d: table(n, d)[0], {}, ODD, True),
    "marian": ("MarianSinusoidalPositionalEmbedding", lambda cls, n, d: cls(n, d).create_weight(), HALVES, ODD, True),
    "ctrl": ("positional_encoding", lambda table, n, d: table(n, d, torch.float32), HALVES, EVEN, False),
    "xlnet": ("XLNetModel", at_distances, HALVES, EVEN, False),
    "gptj": ("create_sinusoidal_positions", lambda table, n, d: table(n, d), HALVES, EVEN, False),
    "whisper": ("sinusoids", lambda table, n, d: table(n, d), HALF_1, EVEN, False),
    "qwen2_5_omni": ("SinusoidsPositionEmbedding", lambda cls, n, d: cls(n, d)(n), HALF_1, EVEN, False),
    "pegasus_x": ("PegasusXSinusoidalPositionalEmbedding",
                  lambda cls, n, d: cls(d)(torch.zeros(1, n, d))[0], HALF_1, EVEN, False),
    "m2m_100": ("M2M100SinusoidalPositionalEmbedding",  # fairseq zeroes the row of the padding token
                lambda cls, n, d: cls.get_embedding(n, d, padding_idx=None), HALF_1, ODD, False),
    "musicgen": ("MusicgenSinusoidalPositionalEmbedding",
                 lambda cls, n, d: cls.get_embedding(n, d), COSINES_FIRST, ODD, False),
}  # fmt: skip


@pytest.mark.parametrize(("model", "dim"), [(model, dim) for model, row in PRESETS.items() for dim in row[3]])
def test_transformers(model: str, dim: int) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    name, make, options, _, in_float64 = PRESETS[model]
    found = getattr(import_module(f"transformers.models.{model}.modeling_{model}"), name, None)
    if found is None:
        pytest.skip(f"this version of transformers has no {name}")
    peer = make(found, N, dim).detach().numpy()
    # float64: both round a number below 1 to float32, 2**-25 each, and their angle, below N, is rounded twice
    allowed = 2.0**-24 + N * 2.0**-52 if in_float64 else angle_error(np.arange(N))
    agree("sinusoidal", posenc.sinusoidal(N, dim, **options), peer, allowed, f"transformers: {model}")


@pytest.mark.parametrize(("dim", "offset"), [(2, 0), (64, 7000)])
def test_x_transformers(dim: int, offset: int) -> None:
    """ScaledSinusoidalEmbedding."""
    xt = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")
    module = xt.ScaledSinusoidalEmbedding(dim)
    peer = module(torch.zeros(1, N, dim), offset=offset).detach().numpy()
    where = np.arange(N) + offset
    ours = posenc.sinusoidal(where, dim, layout="half", scale=module.scale.item())
    agree("sinusoidal", ours, peer, angle_error(where), "x_transformers: ScaledSinusoidalEmbedding")
