"""Figures of encodings, biases and rotations.

Each function takes arrays or operators and returns a matplotlib Figure; with ``ax=`` it draws on given axes. Nothing is
written or shown: call ``figure.savefig(...)``, or end a notebook cell with the Figure under ``%matplotlib inline``. The
module is imported on demand and needs matplotlib (``pip install "posenc[plot]"``).
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError('posenc.plot needs matplotlib; pip install "posenc[plot]"') from error

from . import curves, images, rotations, styles
from .curves import *
from .images import *
from .rotations import *
from .styles import *

__all__ = [*curves.__all__, *images.__all__, *rotations.__all__, *styles.__all__]
