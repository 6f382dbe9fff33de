"""Figures of encodings, biases and rotations.

Each function takes arrays or operators and returns a matplotlib Figure; with ``ax=`` it draws on given axes. Nothing is
written or shown: end a notebook cell with the Figure, or call ``figure.savefig(...)``. A notebook also draws a
`PositionBias` or a `RopeFrequencies` at the end of a cell. The module is imported at the first use of ``posenc.plot``
and needs matplotlib (``pip install "posenc[plot]"``).
"""

import typing

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError('posenc.plot needs matplotlib: pip install "posenc[plot]"') from error

from .._core_api.names import public_names as _public_names
from .._core_api.names import show_plain_annotations as _show_plain_annotations
from .curves import *
from .images import *
from .notebook import show_figures as _show_figures
from .rotations import *
from .styles import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
    _show_plain_annotations(globals())

_show_figures()
