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
Make = Callable[[Any, int, int], Any]


def weight(cls: Any, n: int, d: int) -> Any:
    return cls(n, d).create_weight()


def embedding(cls: Any, n: int, d: int) -> Any:
    """The table of a module; fairseq zeroes the row of the padding token."""
    return cls.get_embedding(n, d, padding_idx=None)


def melody(cls: Any, n: int, d: int) -> Any:
    return cls.get_embedding(n, d)


def filled(create: Any, n: int, d: int) -> Any:
    """XLM and DistilBERT fill a tensor of the caller."""
    out = torch.empty(n, d)
    create(n, d, out)
    return out


def called(create: Any, n: int, d: int) -> Any:
    return create(n, d)


def batched(create: Any, n: int, d: int) -> Any:
    return create(n, d)[0]


def of_dtype(create: Any, n: int, d: int) -> Any:
    return create(n, d, torch.float32)


def of_embeddings(cls: Any, n: int, d: int) -> Any:
    return cls(d)(torch.zeros(1, n, d))[0]


def buffer(cls: Any, n: int, d: int) -> Any:
    return cls(n, d)(n)


def at_distances(cls: Any, n: int, d: int) -> Any:
    """XLNet passes positions and frequencies to the function."""
    inverse = 1 / torch.pow(10000, torch.arange(0, d, 2.0) / d)
    return cls.positional_embedding(torch.arange(n).float(), inverse)[:, 0]


HALVES: dict[str, Any] = {"layout": "half"}
HALF_1: dict[str, Any] = {"layout": "half", "denominator": "half-1"}
COSINES_FIRST: dict[str, Any] = {**HALF_1, "order": "cossin"}
EVEN, ODD = (6, 64), (6, 15, 64)
# model: (name in its module, how it makes a table, our options, widths, whether it computes in float64)
PRESETS: dict[str, tuple[str, Make, dict[str, Any], tuple[int, ...], bool]] = {
    "xlm": ("create_sinusoidal_embeddings", filled, {}, EVEN, True),
    "videomae": ("get_sinusoid_encoding_table", batched, {}, ODD, True),
    "marian": ("MarianSinusoidalPositionalEmbedding", weight, HALVES, ODD, True),
    "ctrl": ("positional_encoding", of_dtype, HALVES, EVEN, False),
    "xlnet": ("XLNetModel", at_distances, HALVES, EVEN, False),
    "gptj": ("create_sinusoidal_positions", called, HALVES, EVEN, False),
    "whisper": ("sinusoids", called, HALF_1, EVEN, False),
    "qwen2_5_omni": ("SinusoidsPositionEmbedding", buffer, HALF_1, EVEN, False),
    "pegasus_x": ("PegasusXSinusoidalPositionalEmbedding", of_embeddings, HALF_1, EVEN, False),
    "m2m_100": ("M2M100SinusoidalPositionalEmbedding", embedding, HALF_1, ODD, False),
    "musicgen": ("MusicgenSinusoidalPositionalEmbedding", melody, COSINES_FIRST, ODD, False),
}


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
