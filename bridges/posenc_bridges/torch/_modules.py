"""Modules of PyTorch with the parameters of position encodings.

A module of a bias returns the operator from ``forward()``, made anew from its parameters, so that the operator never
holds a parameter that was replaced. Constants are NumPy arrays or numbers and no buffers: they have no place in the
state dict, stay in float64 under ``.to``, and need no data after ``to_empty``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.nn import Parameter, init  # type: ignore[import-not-found, unused-ignore]

import posenc

from . import _functions as pt

if TYPE_CHECKING:
    from ._tensors import Tensor


_Start = Callable[["Tensor"], object]


_SMALL: _Start = partial(init.trunc_normal_, std=0.02)
_UP_TO_TWO: _Start = partial(init.uniform_, a=0.0, b=2.0)


class _Bias(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A module that returns an operator; its parameters have these shapes and the initial values of `starts`."""

    starts: ClassVar[dict[str, _Start]] = {}
    """The function that fills each parameter; a parameter without one gets truncated normal numbers with std 0.02."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, Parameter(torch.empty(shape)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the parameters with initial values, also after ``to_empty``."""
        for name, parameter in self.named_parameters(recurse=False):
            self.starts.get(name, _SMALL)(parameter)

    def extra_repr(self) -> str:
        """Return the shapes of the parameters."""
        return ", ".join(f"{name} {tuple(one.shape)}" for name, one in self.named_parameters(recurse=False))

    def forward(self) -> pt.Operator:
        """Return the operator, for ``attention(bias=...)``."""
        return cast("pt.Operator", self._make())

    def _make(self) -> object:
        raise NotImplementedError


class ALiBi(_Bias):
    """The bias `alibi` with the slopes of its authors.

    Parameters
    ----------
    heads : int
        Number of heads.
    trainable : bool
        If True, the slopes are a parameter.

    Notes
    -----
    State dict: none, as in BLOOM and MPT; ``slopes`` (heads,) if trainable.

    Examples
    --------
    >>> import torch, posenc_bridges.torch as pt
    >>> bias = pt.ALiBi(8)
    >>> q, k, v = torch.randn(3, 2, 8, 100, 64)
    >>> pt.attention(q, k, v, bias=bias(), causal=True).shape
    torch.Size([2, 8, 100, 64])
    """

    def __init__(self, heads: int, trainable: bool = False) -> None:
        self._slopes = tuple(posenc.alibi_slopes(heads).tolist())
        super().__init__(**({"slopes": (heads,)} if trainable else {}))

    def reset_parameters(self) -> None:
        """Fill the slopes with those of the authors."""
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.tensor(self._slopes))

    def _make(self) -> object:
        return pt.alibi(getattr(self, "slopes", self._slopes))


class T5(_Bias):
    """The bias `t5` with a table.

    Parameters
    ----------
    heads, num_buckets, max_distance, bidirectional
        As in the config of T5: a decoder has ``bidirectional=False``.
    unscaled : bool
        If True, attention with this bias does not scale its logits, as in T5.

    Notes
    -----
    State dict: ``weight`` (num_buckets, heads). If the module is named ``relative_attention_bias``, the key is
    ``relative_attention_bias.weight``, as in T5, mT5, UMT5, LongT5, Switch Transformers, Pop2Piano, UDOP and MPNet.

    Examples
    --------
    >>> import torch, posenc_bridges.torch as pt
    >>> bias = pt.T5(8, bidirectional=False)
    >>> q, k, v = torch.randn(3, 2, 8, 100, 64)
    >>> pt.attention(q, k, v, bias=bias(), causal=True).sum().backward()
    >>> bias.weight.grad.shape
    torch.Size([32, 8])
    """

    def __init__(
        self,
        heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        *,
        unscaled: bool = False,
    ) -> None:
        super().__init__(weight=(num_buckets, heads))
        self._options = {"bidirectional": bidirectional, "max_distance": max_distance, "unscaled": unscaled}

    def _make(self) -> object:
        return pt.t5(self.weight, **self._options)


class Swin(_Bias):
    """The bias `swin` of a window with a table.

    Parameters
    ----------
    window : int or (height, width)
        Tokens of a window.
    heads : int
        Number of heads.

    Notes
    -----
    State dict: ``relative_position_bias_table`` ((2 height - 1) (2 width - 1), heads), as in ``relative_position_bias``
    of Swin in transformers 5, and in the attention of Swin in timm and in the authors' code.
    """

    _extra_rows = 0
    _function: ClassVar[str] = "swin"

    def __init__(self, window: int | tuple[int, int], heads: int) -> None:
        self._window = height, width = (window, window) if isinstance(window, int) else window
        rows = (2 * height - 1) * (2 * width - 1) + self._extra_rows
        super().__init__(relative_position_bias_table=(rows, heads))

    def _make(self) -> object:
        return getattr(pt, self._function)(self.relative_position_bias_table, *self._window)


class BEiT(Swin):
    """The bias `beit` of a window and a class token with a table.

    Parameters
    ----------
    window : int or (height, width)
        Tokens of a window, without the class token.
    heads : int
        Number of heads.

    Notes
    -----
    State dict: ``relative_position_bias_table`` ((2 height - 1) (2 width - 1) + 3, heads), as in
    ``relative_position_bias`` of BEiT and Data2VecVision in transformers, and in the attention of BEiT in timm.
    """

    _extra_rows = 3
    _function = "beit"


class KerpleLog(_Bias):
    """The bias `kerple_log` with its two numbers for each head, clamped to at least 0.01 as by the authors.

    Parameters
    ----------
    heads : int
        Number of heads.

    Notes
    -----
    State dict: ``bias_p`` and ``bias_a`` (heads, 1, 1), as in the authors' ``ParallelKerpleLog``: r1 is bias_p, and r2
    is bias_a.
    """

    starts: ClassVar[dict[str, _Start]] = {"bias_p": _UP_TO_TWO, "bias_a": init.uniform_}

    def __init__(self, heads: int) -> None:
        super().__init__(bias_p=(heads, 1, 1), bias_a=(heads, 1, 1))

    def _make(self) -> object:
        return pt.kerple_log(self.bias_p.clamp(min=0.01).flatten(), self.bias_a.clamp(min=0.01).flatten())


class KerplePower(_Bias):
    """The bias `kerple_power` with its two numbers for each head, clamped as by the authors.

    Parameters
    ----------
    heads : int
        Number of heads.

    Notes
    -----
    State dict: ``bias_a`` and ``bias_p`` (heads, 1, 1), as in the authors' ``ParallelKerplePower``: r1 is bias_a, at
    least 0.01, and r2 is bias_p, from 0.01 to 2.
    """

    starts: ClassVar[dict[str, _Start]] = {"bias_a": init.uniform_, "bias_p": _UP_TO_TWO}

    def __init__(self, heads: int) -> None:
        super().__init__(bias_a=(heads, 1, 1), bias_p=(heads, 1, 1))

    def _make(self) -> object:
        return pt.kerple_power(self.bias_a.clamp(min=0.01).flatten(), self.bias_p.clamp(0.01, 2).flatten())


class Tisa(_Bias):
    """The bias `tisa`: a sum of bells of the distance.

    Parameters
    ----------
    heads : int
        Number of heads.
    bells : int
        Number of bells of each head.

    Notes
    -----
    State dict: ``a``, ``b`` and ``c`` (heads, bells).
    """

    starts: ClassVar[dict[str, _Start]] = {"b": init.ones_, "c": init.normal_}

    def __init__(self, heads: int, bells: int = 5) -> None:
        super().__init__(**dict.fromkeys("abc", (heads, bells)))

    def _make(self) -> object:
        return pt.tisa(self.a, self.b, self.c)


class Fire(_Bias):
    """The bias `fire` with its network.

    Parameters
    ----------
    heads : int
        Number of heads.
    width : int
        Units of the hidden layer.
    c, length : float
        Initial values of c and of the threshold.

    Notes
    -----
    State dict, as in the code of the paper's appendix: ``mlp.0.weight``, ``mlp.0.bias``, ``mlp.2.weight``,
    ``mlp.2.bias``, ``c``, ``L_multiplier``, and ``init_L``, which is not trained. The threshold is init_L L_multiplier.
    """

    def __init__(self, heads: int, width: int = 32, c: float = 0.1, length: float = 512.0) -> None:
        self._c, self._length = c, length
        super().__init__(c=(), L_multiplier=(), init_L=())
        self.init_L.requires_grad_(False)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.ReLU(), torch.nn.Linear(width, heads))

    def reset_parameters(self) -> None:
        """Fill c and the threshold; the layers of the network fill their own parameters."""
        for name, value in (("c", self._c), ("L_multiplier", 1.0), ("init_L", self._length)):
            init.constant_(getattr(self, name), value)

    def _make(self) -> object:
        first, last = self.mlp[0], self.mlp[2]
        threshold = self.L_multiplier * self.init_L
        return pt.fire(first.weight, first.bias, last.weight, last.bias, self.c, threshold)


class Shaw(_Bias):
    """The operator `shaw` with tables of keys, and of values if wanted, for distances up to K.

    Parameters
    ----------
    dim : int
        Width of a head.
    K : int
        Largest distance with a row of its own.
    values : bool
        If True, there is a table that is added to the values, too.
    k_min : int, optional
        Largest distance to the left; by default K.

    Notes
    -----
    State dict: ``rel_k`` and, with values, ``rel_v`` (k_min + K + 1, dim). Row 0 is the key farthest to the left.
    """

    def __init__(self, dim: int, K: int, values: bool = False, *, k_min: int | None = None) -> None:
        self._k_min = K if k_min is None else k_min
        shape = self._k_min + K + 1, dim
        super().__init__(**dict.fromkeys(("rel_k", "rel_v") if values else ("rel_k",), shape))

    def _make(self) -> object:
        return pt.shaw(self.rel_k, getattr(self, "rel_v", None), k_min=self._k_min)


class RotaryEmbedding(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Rotary embeddings: `rope` with frequencies of its own.

    Parameters
    ----------
    dim : int, dict, path or config
        Number of rotated channels, or a config for `rope_from_config`, such as ``model.config``.
    base : float
        Base of the frequencies; only if `dim` is a number.
    layout : {"half", "interleaved"}, optional
        Pairs of channels. Required if `dim` is a number.
    learned : bool
        If True, the frequencies are a parameter.
    layer_type : str, optional
        As in `rope_from_config`.

    Notes
    -----
    State dict: none, as in the rotary modules of transformers; ``freqs`` (pairs,) if learned, as in
    rotary-embedding-torch. The fixed frequencies are float64, and stay so in a model of another dtype. Where YaRN
    multiplies the scale of attention, ``frequencies.softmax_factor`` is that factor.

    Examples
    --------
    >>> import torch, posenc_bridges.torch as pt
    >>> rotary = pt.RotaryEmbedding(64, layout="half")
    >>> q, k = torch.randn(2, 2, 8, 100, 64)
    >>> q, k = rotary(q), rotary(k)
    >>> rotary(q, torch.arange(100, 200)).shape
    torch.Size([2, 8, 100, 64])
    """

    def __init__(
        self,
        dim: int | Mapping[str, object] | str | os.PathLike[str] | Any,
        *,
        base: float | None = None,
        layout: str | None = None,
        learned: bool = False,
        layer_type: str | None = None,
    ) -> None:
        super().__init__()
        self.layout: str | None
        self.rotary_dim: int | None
        if isinstance(dim, int):
            if layout not in ("half", "interleaved"):
                raise ValueError(f"RotaryEmbedding: layout is {layout!r}; expected 'half' or 'interleaved'")
            self.frequencies = posenc.rope_frequencies(dim, base=10000.0 if base is None else base)
            self.layout, self.rotary_dim = layout, dim
        else:
            if base is not None:
                raise TypeError(f"RotaryEmbedding: base is {base}; expected None, because the config has it")
            self.frequencies = posenc.rope_from_config(dim, layer_type=layer_type)
            self.layout, self.rotary_dim = layout or self.frequencies.layout, self.frequencies.rotary_dim
        self._numbers = tuple(self.frequencies.inv_freq.tolist())
        if learned:
            self.freqs = Parameter(torch.empty(len(self.frequencies)))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill learned frequencies with the fixed ones."""
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.tensor(self.frequencies.inv_freq))

    def extra_repr(self) -> str:
        """Return the number of pairs and the layout."""
        return f"pairs={len(self.frequencies)}, layout={self.layout!r}"

    def forward(self, x: Tensor, positions: Tensor | int | None = None) -> Tensor:
        """Return x (..., H, N, D) rotated at these positions, by default 0 .. N - 1."""
        learned = getattr(self, "freqs", None)
        if learned is None and torch.compiler.is_compiling():  # strict export loses the numbers of NumPy's arrays
            learned = torch.tensor(self._numbers, dtype=torch.float64)
        frequencies = self.frequencies if learned is None else replace(self.frequencies, inv_freq=learned)
        at = x.shape[-2] if positions is None else positions
        rotated: Tensor = pt.rope(x, at, frequencies, layout=self.layout, rotary_dim=self.rotary_dim)
        return rotated


class SinusoidalEmbedding(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Sinusoidal encodings: `sinusoidal` with a width and options of its own.

    Parameters
    ----------
    dim : int
        Number of channels.
    **options
        Those of `sinusoidal`, such as ``layout="half"`` or ``dtype=torch.bfloat16``.

    Notes
    -----
    State dict: none. If a checkpoint has a table of encodings, such as Whisper's, this module does not need the table.

    Examples
    --------
    >>> import torch, posenc_bridges.torch as pt
    >>> encode = pt.SinusoidalEmbedding(64)
    >>> x = torch.randn(2, 100, 64)
    >>> (x + encode(x.shape[-2])).shape
    torch.Size([2, 100, 64])
    """

    def __init__(self, dim: int, **options: object) -> None:
        super().__init__()
        self._arguments = {"dim": dim, **options}
        pt.sinusoidal(1, **self._arguments)  # raises the errors

    def extra_repr(self) -> str:
        """Return the arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self._arguments.items())

    def forward(self, positions: Tensor | int) -> Tensor:
        """Return the encodings of positions (..., N), or of 0 .. positions - 1, with the shape (..., N, dim)."""
        encodings: Tensor = pt.sinusoidal(positions, **self._arguments)
        return encodings


MODULES = (
    "ALiBi", "BEiT", "Fire", "KerpleLog", "KerplePower", "RotaryEmbedding", "Shaw", "SinusoidalEmbedding", "Swin", "T5",
    "Tisa",
)  # fmt: skip
