"""Curves and matrices of positions as arrays; `posenc.plot` draws them.

The module is imported on demand: ``import posenc.analysis``. Only the integral of `decay` needs scipy.
"""

from . import bands, curves, matrices, profiles
from .bands import *
from .curves import *
from .matrices import *
from .profiles import *

__all__ = [*bands.__all__, *curves.__all__, *matrices.__all__, *profiles.__all__]
