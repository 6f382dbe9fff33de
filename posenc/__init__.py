"""Position encodings and position-aware attention for Transformers, in C over NumPy arrays.

Sequence axes are N (queries, index i) and M (keys, index j); a relative position is always position of key minus
position of query. Positions are explicit: an int ``n`` means 0..n-1, an array means itself.
"""

# Names come from the files themselves: mypy does not see through the __all__ of a package.
from . import absolute, bias, relative, rotary, runtime
from . import attention as _attention
from .absolute.complex_order import *
from .absolute.convolution import *
from .absolute.digits import *
from .absolute.embedding import *
from .absolute.floater import *
from .absolute.frequency import *
from .absolute.merge import *
from .absolute.recurrence import *
from .absolute.shift import *
from .absolute.sinusoid import *
from .attention import *
from .bias.distance import *
from .bias.given import *
from .bias.operator import *
from .bias.pair import *
from .bias.sandwich import *
from .bias.t5 import *
from .relative.cope import *
from .relative.deberta import *
from .relative.shaw import *
from .relative.tupe import *
from .rotary.config import *
from .rotary.lengths import *
from .rotary.mrope import *
from .rotary.rope import *
from .rotary.rope_2d import *
from .rotary.scaling import *
from .rotary.xpos import *
from .runtime import *

__all__ = [*absolute.__all__, *rotary.__all__, *bias.__all__, *relative.__all__, *_attention.__all__, *runtime.__all__]
__version__ = "0.1.0"
