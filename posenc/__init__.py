"""Position encodings and position-aware attention for Transformers, in C over NumPy arrays.

Sequence axes are N (queries, index i) and M (keys, index j); a relative position is always position of key minus
position of query. Positions are explicit: an int ``n`` means 0..n-1, an array means itself.
"""

import typing

from ._core_api.names import public_names as _public_names
from ._core_api.names import show_plain_annotations as _show_plain_annotations
from .absolute import *
from .attention import *
from .bias import *
from .relative import *
from .rotary import *
from .runtime import *

if typing.TYPE_CHECKING:
    from . import analysis as analysis
    from . import plot as plot
    from . import reference as reference
else:
    _ON_DEMAND = ("analysis", "plot", "reference")
    __all__ = _public_names(globals())
    _show_plain_annotations(globals())

    def __getattr__(name):
        """Import `posenc.analysis`, `posenc.plot` or `posenc.reference` at its first use."""
        if name in _ON_DEMAND:
            from importlib import import_module

            try:
                return import_module(f"{__name__}.{name}")
            except ImportError as error:  # hasattr and inspect.getmembers expect an AttributeError
                raise AttributeError(str(error), name=name) from error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

    def __dir__():
        return sorted({*globals(), *_ON_DEMAND})


__version__ = "0.1.0"
