"""Figures of encodings, biases and rotations.

Each function takes arrays or operators and returns a matplotlib Figure; with ``ax=`` it draws on given axes. Nothing is
written or shown: end a notebook cell with the Figure, or call ``figure.savefig(...)``. A notebook also draws a
`PositionBias` or a `RopeFrequencies` at the end of a cell. `description` is the alternative text of a figure, which a
notebook keeps beside the picture. The module is imported at the first use of ``posenc.plot`` and needs matplotlib
(``pip install matplotlib``).
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("posenc.plot needs matplotlib: pip install matplotlib") from error

from ._canvas import line_style
from .curves import bias, biases, decay, distance_curves, precision, profile, rope_bands
from .description import description
from .images import attention_maps, encoding, extrapolation, logits, similarity, triangles
from .images import comparison as comparison  # for the reports of posenc.check
from .notebook import show_figures as _show_figures

__all__ = [
    "attention_maps", "bias", "biases", "decay", "description", "distance_curves", "encoding", "extrapolation",
    "line_style", "logits", "precision", "profile", "rope_bands", "similarity", "triangles",
]  # fmt: skip

_show_figures()
