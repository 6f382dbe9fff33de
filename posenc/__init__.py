"""Position encodings and position-aware attention for Transformers, in C over NumPy arrays.

Sequence axes are N (queries, index i) and M (keys, index j); a relative position is always position of key minus
position of query. Positions are explicit: an int ``n`` means 0..n-1, an array means itself.
"""

import typing

from ._core_api.names import public_names as _public_names
from .absolute import *
from .attention import *
from .bias import *
from .relative import *
from .rotary import *
from .runtime import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())

__version__ = "0.1.0"
