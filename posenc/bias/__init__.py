"""Position biases: operators on the logits that read only positions. One file for each idea; all names are here.

Each function returns a `Bias`, which can be looked at, made a matrix, differentiated, or handed to `attention`.
"""

from . import distance, given, operator, pair
from . import sandwich as cosines
from . import t5 as buckets
from .distance import *
from .given import *
from .operator import *
from .pair import *
from .sandwich import *
from .t5 import *

__all__ = [*operator.__all__, *distance.__all__, *buckets.__all__, *cosines.__all__, *pair.__all__, *given.__all__]
