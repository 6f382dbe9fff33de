"""Rotary embeddings: rotations of pairs of channels. One file per function or family."""

import typing

from .._core_api.names import public_names as _public_names
from .config import *
from .lengths import *
from .mrope import *
from .rope import *
from .rope_2d import *
from .rope_nd import *
from .scaling import *
from .xpos import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
