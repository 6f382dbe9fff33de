"""Time every plotting call, without and with writing its PNG, for 512 positions of 128 channels.

The unit is processor seconds, which do not count other processes.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, main

import posenc
from posenc import plot

TURNS = 5


def calls() -> dict[str, Callable[[], Any]]:
    """Calls by name: one per function and picture that its options make."""
    encoding = posenc.sinusoidal(512, 128)
    plain = posenc.rope_frequencies(128)
    ntk = posenc.rope_frequencies(128, rope_type="ntk", factor=8)
    slopes = posenc.alibi_slopes(8)
    biases = {"alibi": posenc.alibi(slopes), "kerple": posenc.kerple_log(slopes, slopes)}
    rng = np.random.default_rng(0)
    q, k, table = (rng.standard_normal(shape, np.float32) for shape in ((2, 512, 64), (2, 512, 64), (33, 64)))
    words = [f"word {i}" for i in range(12)]
    maps = {f"scheme {i}": [np.eye(12)] for i in range(3)}
    return {
        "encoding": lambda: plot.encoding(encoding),
        "similarity": lambda: plot.similarity(encoding),
        "similarity, distance": lambda: plot.similarity(encoding, kind="distance"),
        "similarity, correlation": lambda: plot.similarity(encoding, kind="correlation"),
        "logits": lambda: plot.logits(posenc.shaw(table), q, k),
        "triangles": lambda: plot.triangles(encoding),
        "distance_curves": lambda: plot.distance_curves(encoding),
        "decay": plot.decay,
        "decay, long range": lambda: plot.decay(range(0, 4001, 10)),
        "decay, finite": lambda: plot.decay(np.arange(512), dim=128),
        "bias": lambda: plot.bias(biases["alibi"], distances=np.arange(-511, 512)),
        "biases": lambda: plot.biases(biases, distances=np.arange(-511, 512)),
        "profile": lambda: plot.profile({"RoPE": plain, **biases}, distances=np.arange(-511, 1)),
        "rope_bands": lambda: plot.rope_bands({"NTK": ntk}, plain, train_length=512),
        "extrapolation": lambda: plot.extrapolation(plain, 512, 1024),
        "attention_maps": lambda: plot.attention_maps(maps, [words], ["a text"]),
        "precision": plot.precision,
    }


def missing() -> set[str]:
    """Return the functions that draw a picture and have no call here."""
    return set(plot.__all__) - {"line_style", "description"} - {name.split(",")[0] for name in calls()}


def run(report: Report) -> None:
    if names := missing():
        sys.exit(f"no call of {', '.join(sorted(names))}")
    made = calls()
    plot.encoding(np.eye(2)).savefig(io.BytesIO())  # matplotlib reads its fonts once
    for name, call in made.items():
        drawn, written = [], []
        for _ in range(TURNS):
            start = time.process_time()
            figure = call()
            middle = time.process_time()
            figure.savefig(io.BytesIO(), format="png")
            drawn.append(middle - start)
            written.append(time.process_time() - start)
        report.figure(f"{name}: the call", min(drawn), "s")
        report.figure(f"{name}: with its PNG", min(written), "s", most=1.0)


if __name__ == "__main__":
    main(__doc__, run)
