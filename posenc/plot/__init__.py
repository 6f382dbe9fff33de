"""Figures of encodings, biases and rotations.

A function of one panel draws on the axes ``ax``, or on a new figure of pyplot, and returns the Axes; `biases` draws
several panels and returns the Figure. So ``plt.savefig`` and ``plt.show`` work afterwards, and a notebook shows the
figure below its cell. A notebook also draws a `PositionBias` or a `RopeFrequencies` at the end of a cell. `description`
is the alternative text of a figure, which a notebook keeps beside the picture. The module is imported at the first use
of ``posenc.plot`` and needs matplotlib (``pip install matplotlib``).
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("posenc.plot needs matplotlib: pip install matplotlib") from error

from ._curves import bias, biases, decay, distance_curves, profile, rope_bands
from ._description import description
from ._images import comparison as comparison  # for the reports of posenc.check
from ._images import encoding, extrapolation, logits, similarity
from ._notebook import show_figures as _show_figures

__all__ = [
    "bias", "biases", "decay", "description", "distance_curves", "encoding", "extrapolation", "logits", "profile",
    "rope_bands", "similarity",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


_show_figures()
