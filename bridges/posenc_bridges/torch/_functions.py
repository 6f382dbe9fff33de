"""Functions and operators of posenc for tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posenc_bridges import _common
from posenc_bridges._common import Arguments

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


twins: dict[str, Twin] = {}
"""The functions by name."""


def _make_twin(function: _common.Function) -> Twin:
    return twins.setdefault(function.name, Twin(function))


_common.export(globals(), Operator, _make_twin, "tensors")
_matrix, _logits = Operator._matrix, Operator._logits

if TYPE_CHECKING:
    __all__: list[str]

    def __getattr__(name: str) -> Any: ...
