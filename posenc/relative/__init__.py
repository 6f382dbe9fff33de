"""Operators on the logits that read queries and keys, and TUPE. One file for each idea; all names are here.

Each function returns a `Bias` to hand to `attention`; `Bias.logits` shows what it adds.
"""

from . import contextual, disentangled, tables, untied
from .contextual import *
from .disentangled import *
from .tables import *
from .untied import *

__all__ = [*contextual.__all__, *disentangled.__all__, *tables.__all__, *untied.__all__]
