"""Absolute encodings: a vector for each position. One file for each idea; all names are here."""

from . import complex_order as _complex_order
from . import convolution, frequency, recurrence, sinusoid
from . import digits as _digits
from . import embedding as lookup
from . import floater as flow
from . import merge as _merge
from . import shift as _shift
from .complex_order import *
from .convolution import *
from .digits import *
from .embedding import *
from .floater import *
from .frequency import *
from .merge import *
from .recurrence import *
from .shift import *
from .sinusoid import *

__all__ = [
    *frequency.__all__,
    *_shift.__all__,
    *sinusoid.__all__,
    *lookup.__all__,
    *recurrence.__all__,
    *flow.__all__,
    *_merge.__all__,
    *_complex_order.__all__,
    *_digits.__all__,
    *convolution.__all__,
]
