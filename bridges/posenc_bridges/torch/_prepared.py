"""Attention whose options are read once, for calls that differ in their tensors alone, as in decoding."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

import posenc
from posenc import interop
from posenc_bridges._common import FUNCTIONS, Call

from ._custom_ops import TENSORS, Plan, profiled
from ._functions import attention, twins
from ._tensors import Tensor, convert, have_numbers, is_constant, is_followed, is_recorded, to_tensor

_PLACE = torch.empty(1)
"""In the place of q, k and v."""


class PreparedAttention:
    """The function that `prepare` returns.

    Attributes
    ----------
    options : dict
        The options that do not have their defaults.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        function = FUNCTIONS["attention"]
        arguments = function.bind((_PLACE,) * 3, options)
        defaults = {name: parameter.default for name, parameter in function.signature.parameters.items()}
        self.options = {name: value for name, value in arguments.items() if value is not defaults[name]}
        call = Call(self.options, convert, TENSORS, is_constant=is_constant)
        self._has_own_way = call.has_objects or any(name in self.options for name in ("dropout", "return_lse"))
        for name in ("q", "k", "v"):
            del self.options[name]
        self._plan = Plan(call.spec, call.integers, call.numbers).with_paths()
        self._arrays, self._read = call.arrays[3:], None
        if not self._arrays and not self._has_own_way:
            self._read = {name: value for name, value in self._plan.arguments((None,) * 3).items() if value is not None}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return `attention` of these tensors with the options."""
        if self._has_own_way or is_recorded():
            return attention(q, k, v, **self.options)
        arrays = q, k, v, *self._arrays
        if self._read is not None and type(q) is type(k) is type(v) is torch.Tensor and not is_followed(arrays):
            try:  # Tensor.numpy refuses what is no array in memory, and `attention` then says why
                given = q.numpy(), k.numpy(), v.numpy()
                interop.follow_threads(torch.get_num_threads())
                with profiled("attention"):
                    return to_tensor(posenc.attention(*given, **self._read))
            except (RuntimeError, TypeError, ValueError):
                return attention(q, k, v, **self.options)
        if have_numbers(arrays):
            return twins["attention"].run(self._plan, arrays, False)
        return attention(q, k, v, **self.options)


def prepare(**options: Any) -> PreparedAttention:
    """Return `attention` with these options, as a function of q, k and v that reads the options once.

    A call of the function takes less time than a call of `attention`, which shows where there are few queries: a layer
    keeps the function and calls it for each token.

    Parameters
    ----------
    **options
        The options of `attention`, such as ``scale=``, ``causal=`` and ``bias=``. Tensors in them are read in each
        call, so their numbers may change.

    Returns
    -------
    PreparedAttention
        A function of tensors q, k and v. Its results, gradients and errors are those of `attention`.

    Raises
    ------
    TypeError
        An option that `attention` does not have.

    Examples
    --------
    >>> import torch, posenc_bridges.torch as pt
    >>> attend = pt.prepare(causal=True, align="end")
    >>> q, k, v = torch.randn(8, 1, 64), torch.randn(8, 100, 64), torch.randn(8, 100, 64)
    >>> torch.equal(attend(q, k, v), pt.attention(q, k, v, causal=True, align="end"))
    True
    """
    return PreparedAttention(options)
