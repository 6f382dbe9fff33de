"""Absolute encodings: a vector for each position. One file per encoding or family."""

import typing

from .._core_api.names import public_names as _public_names
from .complex_order import *
from .convolution import *
from .digits import *
from .embedding import *
from .floater import *
from .frequency import *
from .interpolate import *
from .merge import *
from .recurrence import *
from .shift import *
from .sinusoid import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
