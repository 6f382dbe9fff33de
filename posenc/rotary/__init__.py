"""Rotary embeddings: rotations of pairs of channels. One file for each idea; all names are here."""

from . import config, lengths, scaling
from . import mrope as sections
from . import rope as rotation
from . import rope_2d as axes
from . import xpos as _xpos
from .config import *
from .lengths import *
from .mrope import *
from .rope import *
from .rope_2d import *
from .scaling import *
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
