"""Attention operators that read queries and keys, TUPE and gated distance. One file per operator.

Each function returns a `ContentBias` to hand to `attention`; `tupe` and `gated_distance` return a `PositionBias`.
"""

import typing

from .._core_api.names import public_names as _public_names
from .cope import *
from .deberta import *
from .gated_distance import *
from .relative_key_query import *
from .shaw import *
from .transformer_xl import *
from .tupe import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
