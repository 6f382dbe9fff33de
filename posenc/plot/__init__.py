"""Pictures of encodings, biases and rotations: each function takes arrays or operators and returns the Figure.

Imported on demand, needs matplotlib (``pip install "posenc[plot]"``). Nothing is written, shown or kept: say
``figure.savefig(...)``. In a notebook ``%matplotlib inline`` shows the Figure that a cell ends with.
"""

from . import curves, images, rotations
from .curves import *
from .images import *
from .rotations import *

__all__ = [*curves.__all__, *images.__all__, *rotations.__all__]
