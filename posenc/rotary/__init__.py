"""Rotary embeddings: rotations of pairs of channels. One file for each idea; all names are here."""

from . import axes, config, lengths, rotation, scaling, sections
from . import xpos as _xpos
from .axes import *
from .config import *
from .lengths import *
from .rotation import *
from .scaling import *
from .sections import *
from .xpos import *

__all__ = [
    *scaling.__all__,
    *config.__all__,
    *rotation.__all__,
    *axes.__all__,
    *sections.__all__,
    *_xpos.__all__,
    *lengths.__all__,
]
