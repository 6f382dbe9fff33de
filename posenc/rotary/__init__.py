"""Rotary embeddings: rotations of pairs of channels. One file for each idea; all names are here."""

from . import config, rotation, scaling
from .config import *
from .rotation import *
from .scaling import *

__all__ = [*scaling.__all__, *config.__all__, *rotation.__all__]
