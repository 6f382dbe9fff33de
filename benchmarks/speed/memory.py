"""Measure the memory of attention at a length at which one array of scores would take gigabytes.

Figures are the growth of the peak of a process, beyond inputs and output. With each operator only the last 129 keys are
visible, which takes seconds instead of minutes and needs the same memory. Only Linux can reset a peak.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

from tools.measure import Report, main

import posenc

OPERATORS = {
    "ALiBi": "posenc.alibi(posenc.alibi_slopes(H))",
    "T5": "posenc.t5(R(32, H), bidirectional=True)",
    "KERPLE log": "posenc.kerple_log(abs(R(H)), abs(R(H)))",
    "KERPLE power": "posenc.kerple_power(abs(R(H)), abs(R(H)) + 0.1)",
    "Sandwich": "posenc.sandwich(H, D)",
    "FIRE": "posenc.fire(R(32, 1), R(32), R(H, 32), R(H), 0.1, 512.0)",
    "Swin 64 x 128": "posenc.swin(R(127 * 255, H), 64, 128)",
    "FoX": "posenc.fox(-abs(R(H, N)))",
    "Toeplitz": "posenc.toeplitz(R(H, 2 * N - 1))",
    "dense, of keys": "posenc.dense(R(H, 1, N))",
    "Shaw K=64": "posenc.shaw(R(H, 129, D), R(H, 129, D))",
    "Transformer-XL K=64": "posenc.transformer_xl(R(H, 129, D), R(H, D), R(H, D))",
    "Transformer-XL K=8191": "posenc.transformer_xl(R(H, 16383, D), R(H, D), R(H, D))",
    "DeBERTa 256/512": "posenc.deberta(R(H, 512, D), R(H, 512, D), num_buckets=256, max_distance=512)",
    "TUPE": "posenc.tupe(R(H, N, D), R(H, N, D), cls_to_any=R(H), any_to_cls=R(H))",
    "TUPE with T5": "posenc.tupe(R(H, N, D), R(H, N, D)) + posenc.t5(R(32, H), bidirectional=True)",
    "gated distance, R=16": "posenc.gated_distance(R(H, N, 16), R(1024, 16), rows='past')",
    "CoPE P=64": "posenc.cope(R(H, 64, D))",
}
SHAPE = 32, 8192, 64
CHILD = """
import sys
sys.path.insert(0, {root!r})
import numpy as np, posenc

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

def size(x):
    return x.nbytes if isinstance(x, np.ndarray) else sum(map(size, x)) if isinstance(x, tuple) else 0

H, N, D = {shape}
rng = np.random.default_rng(0)
R = lambda *shape: rng.standard_normal(shape, np.float32)
q, k, v = R(H, N, D), R(H, N, D), R(H, N, D)
out, lse, options = np.ones((H, N, D), np.float32), np.ones((H, N), np.float32), dict({options})
bias = {bias}
posenc.set_num_threads({threads})
small = posenc.alibi(np.ones(H))
posenc.attention(q[:, :256], k[:, :256], v[:, :256], bias=small)
for backward in {backward}:
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = status("VmRSS")
    made = out[:0]
    if backward:
        made = tuple(posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=bias, **options))
    else:
        posenc.attention(q, k, v, out=out.copy(), bias=bias, **options)
    print(status("VmHWM") - before - (size(made) if backward else out.nbytes) / 2**20)
"""


def grown(bias: str, options: str, threads: int, backward: tuple[bool, ...]) -> list[float]:
    """The growth in MiB of attention, or of its gradient, without the results."""
    root = str(posenc.__path__[0]).rsplit("/", 1)[0]
    given = {"shape": SHAPE, "bias": bias, "options": options, "threads": threads, "backward": backward}
    command = [sys.executable, "-c", CHILD.format(root=root, **given)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(line) for line in result.stdout.split()]


def run(report: Report) -> None:
    if sys.platform != "linux":
        return
    print("growth of the process; one array of the scores would be 8192 MiB")
    alibi = OPERATORS["ALiBi"]
    for options, threads in (("causal=True", 1), ("", 1), ("causal=True", 2)):
        what = ", ".join(filter(None, ("ALiBi", options, f"{threads} thread" + "s" * (threads > 1))))
        report.figure(f"attention H=32 N=8192 D=64, {what}", *grown(alibi, options, threads, (False,)), "MiB", most=64)
    name = "attention_vjp H=32 N=8192 D=64, ALiBi, causal, 1 thread"
    report.figure(name, *grown(alibi, "causal=True", 1, (True,)), "MiB", most=64)
    for name, bias in OPERATORS.items():
        growths = grown(bias, "window=(128, 0)", 2, (False, True))
        for what, growth in zip(("attention", "attention_vjp"), growths, strict=True):
            report.figure(f"{what}, window 128, 2 threads, {name}", growth, "MiB", most=64)


if __name__ == "__main__":
    main(__doc__, run)
