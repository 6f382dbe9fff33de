"""Absolute encodings: a vector for each position. One file for each idea; all names are here."""

from . import convolution, sinusoid
from .convolution import *
from .sinusoid import *

__all__ = [*convolution.__all__, *sinusoid.__all__]
