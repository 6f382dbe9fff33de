"""How much a process grows: attention at a length where one array of scores would be gigabytes.

Each figure comes from a process of its own, as growth of its peak over what inputs and output already take.
"""

from __future__ import annotations

import subprocess
import sys

from measure import Report, main

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


def grown(shape: tuple[int, int, int], options: str, threads: int, backward: bool = False) -> float:
    """MiB."""
    root = str(posenc.__path__[0]).rsplit("/", 1)[0]
    code = CHILD.format(root=root, shape=shape, options=options, threads=threads, backward=backward)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(result.stdout) / 1024


def run(report: Report) -> None:
    shape = (32, 8192, 64)
    for options, threads in (("causal=True", 1), ("", 1), ("causal=True", 2)):
        what = ", ".join(filter(None, ("ALiBi", options, f"{threads} thread" + "s" * (threads > 1))))
        name = f"attention H=32 N=8192 D=64, {what}: growth (scores would be 8192)"
        report.figure(name, grown(shape, options, threads), "MiB", most=64)
    name = "attention_vjp H=32 N=8192 D=64, ALiBi, causal, 1 thread: growth beside the gradients"
    report.figure(name, grown(shape, "causal=True", 1, backward=True), "MiB", most=64)


if __name__ == "__main__":
    main(__doc__, run)
