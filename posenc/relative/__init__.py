"""Operators on the logits that read queries and keys, and TUPE. One file for each idea; all names are here.

Each function returns a `Bias` to hand to `attention`; `Bias.logits` shows what it adds.
"""

from . import cope as contextual
from . import deberta as disentangled
from . import shaw as tables
from . import tupe as untied
from .cope import *
from .deberta import *
from .shaw import *
from .tupe import *

__all__ = [*contextual.__all__, *disentangled.__all__, *tables.__all__, *untied.__all__]
