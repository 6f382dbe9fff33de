"""Measure the memory of attention at a length at which one array of scores would take gigabytes.

Each figure comes from a process of its own: the growth of its peak beyond inputs and output. With each operator only
the last 129 keys are visible, which takes seconds instead of minutes and needs the same memory.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

from tools.measure import Report, main

import posenc

CHILD = """
import resource, sys
sys.path.insert(0, {root!r})
import numpy as np, posenc
H, N, D = {shape}
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((H, N, D), np.float32) for _ in range(3))
out = np.ones((H, N, D), np.float32)
bias = posenc.alibi(posenc.alibi_slopes(H))
options = dict({options})
posenc.set_num_threads({threads})
small = np.ones((H, 256, D), np.float32)
posenc.attention(small, small, small, bias=bias, causal=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if {backward}:
    lse = np.ones((H, N), np.float32)
    gradients = posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=bias, **options)
    before += 3 * out.nbytes // 1024
else:
    posenc.attention(q, k, v, bias=bias, out=out, **options)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
assert np.isfinite(out).all() and {backward} or not (out == 1).all()
"""


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
OPERATOR = """
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
out, lse, window = np.ones((H, N, D), np.float32), np.ones((H, N), np.float32), (128, 0)
bias = {bias}
posenc.set_num_threads(2)
small = posenc.alibi(np.ones(H))
posenc.attention(q[:, :256], k[:, :256], v[:, :256], bias=small)
for backward in False, True:
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = status("VmRSS")
    made = out[:0]
    if backward:
        made = tuple(posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=bias, window=window))
    else:
        posenc.attention(q, k, v, out=out.copy(), bias=bias, window=window)
    print(status("VmHWM") - before - (size(made) if backward else out.nbytes) / 2**20)
"""


def with_operator(shape: tuple[int, int, int], bias: str) -> list[float]:
    """The growth in MiB of forward and backward, without their results."""
    root = str(posenc.__path__[0]).rsplit("/", 1)[0]
    code = OPERATOR.format(root=root, shape=shape, bias=bias)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [float(line) for line in result.stdout.split()]


def grown(shape: tuple[int, int, int], options: str, threads: int, backward: bool = False) -> float:
    """The growth in MiB of attention or its gradient, without its results."""
    root = str(posenc.__path__[0]).rsplit("/", 1)[0]
    code = CHILD.format(root=root, shape=shape, options=options, threads=threads, backward=backward)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(result.stdout) / 1024


def run(report: Report) -> None:
    shape = (32, 8192, 64)
    print("growth of the process; one array of the scores would be 8192 MiB")
    for options, threads in (("causal=True", 1), ("", 1), ("causal=True", 2)):
        what = ", ".join(filter(None, ("ALiBi", options, f"{threads} thread" + "s" * (threads > 1))))
        name = f"attention H=32 N=8192 D=64, {what}"
        report.figure(name, grown(shape, options, threads), "MiB", most=64)
    name = "attention_vjp H=32 N=8192 D=64, ALiBi, causal, 1 thread"
    report.figure(name, grown(shape, "causal=True", 1, backward=True), "MiB", most=64)
    if sys.platform != "linux":  # only Linux can reset a peak
        return
    for name, bias in OPERATORS.items():
        for what, growth in zip(("attention", "attention_vjp"), with_operator(shape, bias), strict=True):
            report.figure(f"{what}, window 128, 2 threads, {name}", growth, "MiB", most=64)


if __name__ == "__main__":
    main(__doc__, run)
