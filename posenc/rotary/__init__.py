"""Rotary embeddings: rotations of pairs of channels. One file for each idea; all names are here."""

from . import rotation, scaling
from .rotation import *
from .scaling import *

__all__ = [*scaling.__all__, *rotation.__all__]
