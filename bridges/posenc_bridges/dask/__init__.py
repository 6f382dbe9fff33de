"""Encodings, bias matrices and attention on dask arrays, for sequences that outgrow one machine.

`posenc_bridges.dask` has functions of posenc under their own names. They take dask arrays and return lazy ones, on any
scheduler of dask: threads, processes, or a distributed cluster.

>>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
>>> q, k, v = (da.random.default_rng(0).random((8, 1000, 64), chunks=(4, 300, -1), dtype=np.float32) for _ in range(3))
>>> w = posenc.rope_frequencies(64)
>>> q, k = (posenc_bridges.dask.rope(x, 1000, w, layout="half") for x in (q, k))
>>> out, lse = posenc_bridges.dask.attention(q, k, v, causal=True, return_lse=True)
>>> out.chunks
((4, 4), (300, 300, 300, 100), (64,))
>>> gradient = posenc_bridges.dask.attention_vjp(da.ones_like(out), q, k, v, out=out, lse=lse, causal=True)
>>> gradient.k.sum(-1).compute().shape
(8, 1000)

- Arrays are split along batch, heads, queries and keys alike. The axis of channels is one chunk; if it is not, it is
  merged into one.
- A task computes the positions of its chunk from the place of the chunk. No table of cos and sin is sent.
- Results equal the results of the same function of posenc: encodings bit for bit, attention and its gradients up to
  rounding. The bits depend on the chunks, but neither on the scheduler nor on the number of workers.
- Values are checked when a chunk is computed; types and shapes are checked at once.
"""

from __future__ import annotations

try:
    import dask.array  # noqa: F401
except ImportError as error:
    raise ImportError('posenc_bridges.dask needs dask: pip install "dask>=2025.1" "distributed>=2025.1"') from error

from ._attention import attention, attention_vjp
from ._encodings import combine, learned, rope, rope_nd, sinusoidal, xpos
from ._matrix import matrix
from ._quantized import Quantized, quantize

__all__ = [
    "Quantized", "attention", "attention_vjp", "learned", "matrix", "combine", "quantize", "rope", "rope_nd",
    "sinusoidal", "xpos",
]  # fmt: skip
