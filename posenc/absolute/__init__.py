"""Absolute encodings: a vector for each position. One file for each idea; all names are here."""

from . import sinusoid
from .sinusoid import *

__all__ = [*sinusoid.__all__]
