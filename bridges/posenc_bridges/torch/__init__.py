"""Functions and operators of posenc for PyTorch, under their own names.

This module has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take the
arguments of their namesakes, except `out`, and return tensors. Every tensor that has a gradient may require it.

>>> import torch
>>> import posenc, posenc_bridges.torch as pt
>>> q, k, v = torch.randn(3, 2, 8, 100, 64, dtype=torch.bfloat16).requires_grad_()  # 2 sentences, 8 heads
>>> slopes = torch.nn.Parameter(torch.tensor(posenc.alibi_slopes(8), dtype=torch.float32))
>>> out = pt.attention(q, k, v, bias=pt.alibi(slopes), causal=True)
>>> out.sum().backward()  # one backward call for q, k, v and the slopes
>>> out.dtype, slopes.grad.shape
(torch.bfloat16, torch.Size([8]))

- Tensors are on the CPU, in float16, bfloat16, float32 or float64, with any strides. Nothing is copied on the way in.
  NumPy arrays and numbers are taken too.
- A gradient has the dtype of its argument.
- Every function is a custom operator with rules for autograd and for fake tensors. ``torch.compile(fullgraph=True)``
  keeps it in one graph, also where lengths are dynamic.
- An operator such as ``pt.alibi(slopes)`` describes a call, and each use reads the tensors anew. A module makes it in
  ``forward``, because a kept operator holds a parameter that the module may replace.
- A tensor that requires a gradient where there is none (a mask, positions of attention) is a TypeError.
- Only reverse mode and first derivatives exist. A second derivative and forward mode are errors. `torch.func.vmap`
  computes the rows of its batch one by one; batch axes of the arguments are faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import ml_dtypes  # noqa: F401
    import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError('posenc_bridges.torch needs torch and ml_dtypes: pip install "torch>=2.12" ml_dtypes') from error

from . import _functions, _modules
from ._functions import Operator as Operator
from ._prepared import PreparedAttention as PreparedAttention
from ._prepared import prepare as prepare
from ._sdpa import ReplacedSdpa as ReplacedSdpa
from ._sdpa import replace_sdpa, scaled_dot_product_attention
from ._sequences import attention as attention

__all__ = [*_functions.__all__, *_modules.MODULES, "prepare", "replace_sdpa", "scaled_dot_product_attention"]
globals().update({name: getattr(_functions, name) for name in _functions.__all__ if name != "attention"})
globals().update({name: getattr(_modules, name) for name in _modules.MODULES})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
