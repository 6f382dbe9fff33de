"""Attention biases that read positions only. One file per operator or family.

Each function returns a `PositionBias`: it can be shown as a matrix, differentiated, and handed to `attention`.
"""

import typing

from .._core_api.names import public_names as _public_names
from .alibi import *
from .beit import *
from .dense import *
from .distance_function import *
from .fire import *
from .fox import *
from .kerple import *
from .operator import *
from .sandwich import *
from .swin import *
from .t5 import *
from .tisa import *
from .toeplitz import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
