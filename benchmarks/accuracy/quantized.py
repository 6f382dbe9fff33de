"""Print what int8 keys and values, and 16-bit attention, cost in accuracy.

`posenc.quantize` has one float32 scale for each row of D numbers, Q8_0 one float16 scale for each 32 numbers. The error
is that of the result of attention over 1024 keys, relative to the largest result. Caches are normal, heavy-tailed
(Student's t with 3 degrees of freedom), or normal with four channels 20 times as large, as the keys of some models.
The first rows stand beside the rule of llama.cpp's Q8_0. The perplexity is that of the quick study's model with RoPE,
trained here in float32, with attention in each dtype and precision. POSENC_ISA=amx-emulated shows the one of AMX.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from cases import BF16, F16
from tools.measure import Report, main, random

import posenc
from study import command, evaluation, text, training
from study.schemes import SCHEMES

HEADS, KEYS, WIDTH = 8, 1024, 128
Q8_BLOCK = 32


def run(report: Report) -> None:
    for name, cache in caches().items():
        k, v = cache
        q = random((HEADS, 16, WIDTH), seed=2)
        exact = posenc.attention(*(array.astype(np.float64) for array in (q, k, v)))
        for rule, read in (("a scale per row", dequantized), ("Q8_0", q8_0)):
            found = posenc.attention(q, read(k), read(v))
            error = abs(found - exact).max() / abs(exact).max()
            report.figure(f"{name} caches, D={WIDTH}, {rule}", float(error), "of the largest result")
    perplexities(report)


def caches() -> dict[str, tuple[Any, Any]]:
    shape = HEADS, KEYS, WIDTH
    normal = random(shape), random(shape, seed=1)
    rng = np.random.default_rng(3)
    heavy = tuple(rng.standard_t(3, shape).astype(np.float32) for _ in range(2))
    channels = normal[0].copy()
    channels[..., :4] *= 20
    return {"normal": normal, "heavy-tailed": heavy, "large-channel": (channels, normal[1])}


def dequantized(x: Any) -> Any:
    return posenc.quantize(x).dequantize()


def q8_0(x: Any) -> Any:
    blocks = x.reshape(*x.shape[:-1], -1, Q8_BLOCK)
    scale = abs(blocks).max(-1, keepdims=True) / np.float32(127)
    codes = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0))
    return (codes * scale.astype(np.float16).astype(np.float32)).reshape(x.shape)


def perplexities(report: Report) -> None:
    setting, scheme, corpus = command.QUICK, SCHEMES["rope"], text.embedded()
    weights = training.train(setting, scheme, corpus.train, corpus.vocabulary, seed=0)
    chosen = evaluation.protocol(setting, corpus.test)

    def with_int8(q: Any, k: Any, v: Any, **options: Any) -> Any:
        return posenc.attention(q, posenc.quantize(k), posenc.quantize(v), **options)

    kinds = {"int8 keys and values": with_int8}
    for dtype in (d for d in (BF16, F16) if d is not None):
        for precision in ("high", "low"):
            kinds[f"{dtype}, {precision}"] = rounded(dtype, precision)

    def perplexity(scheme: Any) -> float:
        return evaluation.perplexity(setting, scheme, weights, corpus.test, chosen.targets, setting.length)

    exact = perplexity(scheme)
    report.figure("perplexity per byte, float32", exact, "")
    for kind, attention in kinds.items():
        change = abs(perplexity(scheme._replace(attention=attention)) / exact - 1) * 100
        report.figure(f"{posenc.runtime.isa()}: change of the perplexity, {kind}", change, "%", most=0.1)


def rounded(dtype: Any, precision: str) -> Any:
    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        q, k, v = (array.astype(dtype) for array in (q, k, v))
        return posenc.attention(q, k, v, precision=precision, **options).astype(np.float32)

    return attention


if __name__ == "__main__":
    main(__doc__, run)
