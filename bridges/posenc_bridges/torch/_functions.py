"""Functions and operators of posenc for tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]

from posenc_bridges import _common
from posenc_bridges._common import Arguments, Function

from ._custom_ops import Twin
from ._specs import BY_AUTOGRAD
from ._tensors import Tensor


class Operator(_common.Operator):
    """A `posenc.Bias` whose arrays may be tensors, for `attention` of this module.

    It describes a call and copies nothing, so each use reads the current numbers of its tensors. Errors in the arrays
    are raised there, too.

    Attributes
    ----------
    name : str
        Name of the function that made the operator.
    arguments : dict
        Its arguments by name.
    """

    __slots__ = ()

    def __init__(self, name: str, arguments: Arguments) -> None:
        if name == "distance_function" and arguments.get("vjp") is None:
            arguments = {**arguments, "vjp": BY_AUTOGRAD}
        super().__init__(name, arguments)

    # torch.compile follows a global of this module, and not an attribute of the class of an object that it made itself.
    def matrix(self, *args: object, **options: object) -> Tensor:
        """Return `PositionBias.matrix` as a contiguous tensor; float32 without ``dtype``."""
        return _matrix(self, *args, **options)

    def logits(self, *args: object, **options: object) -> Tensor:
        """Return `ContentBias.logits` as a tensor."""
        return _logits(self, *args, **options)

    def __repr__(self) -> str:
        return f"<posenc_bridges.torch.{self._described()}>"


def _make_twin(function: Function) -> Callable[[Arguments, bool], Tensor | tuple[Tensor, ...]]:
    twin = Twin(function)

    def run(arguments: Arguments, returns_all: bool) -> Tensor | tuple[Tensor, ...]:
        if "dropout" in arguments:
            arguments["seed"] = _draw_seed(arguments.get("seed"), arguments["dropout"])
        results = twin(arguments)
        return tuple(results) if returns_all else results[0]

    return run


def _draw_seed(seed: object, dropout: object) -> object:
    """Return the seed of dropout: a tensor, which a graph reads anew in each call; by default of torch's generator."""
    if seed is None and isinstance(dropout, (int, float)) and dropout > 0:
        seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device="cpu")
    elif isinstance(seed, int) and 2**63 <= seed < 2**64:
        seed = torch.tensor([seed - 2**64])
    is_one = isinstance(seed, torch.Tensor) and seed.dtype is torch.int64 and seed.numel() == 1
    return seed.reshape(1) if is_one else seed


_common.export(globals(), Operator, _make_twin, "tensors")
_matrix, _logits = Operator._matrix, Operator._logits

if TYPE_CHECKING:
    __all__: list[str]

    def __getattr__(name: str) -> Any: ...
