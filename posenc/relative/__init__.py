"""Attention operators that read queries and keys, and TUPE. One file per operator.

Each function returns a `ContentBias` to hand to `attention`, and `tupe` returns a `PositionBias`.
"""

import typing

from .._core_api.names import public_names as _public_names
from .cope import *
from .deberta import *
from .relative_key_query import *
from .shaw import *
from .transformer_xl import *
from .tupe import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
