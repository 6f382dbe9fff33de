"""Curves and matrices of positions as arrays; `posenc.plot` draws them.

The module is imported at the first use of ``posenc.analysis``. Only the integral of `decay` needs scipy.
"""

import typing

from .._core_api.names import public_names as _public_names
from .._core_api.names import show_plain_annotations as _show_plain_annotations
from .bands import *
from .curves import *
from .matrices import *
from .profiles import *
from .reference import *
from .taylor import *

if not typing.TYPE_CHECKING:
    __all__ = _public_names(globals())
    _show_plain_annotations(globals())
