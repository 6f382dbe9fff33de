"""Pictures that a notebook shows for operators and frequencies, and for figures at the end of a cell."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import PositionBias, RopeFrequencies
from . import _canvas as canvas
from .curves import bias as draw_curves
from .description import description

DPI = 96
"""Of the screen, so that a label of 10 points has 10 points."""
SHOWN = 64
"""Most queries and keys of the picture of an operator."""
LENGTHS: Mapping[str, Callable[[Any], tuple[int, ...]]] = {
    "beit": lambda b: (min(SHOWN, b.options["height"] * b.options["width"] + 1),),
    "dense": lambda b: b.array.shape[-2:],
    "fox": lambda b: (min(SHOWN, b.log_forget.shape[-1]),),
    "gated_distance": lambda b: b.gates.shape[-2:-1],
    "swin": lambda b: (min(SHOWN, b.options["height"] * b.options["width"]),),
    "toeplitz": lambda b: ((b.diagonals.shape[-1] + 1) // 2, b.diagonals.shape[-1] // 2 + 1),
    "tupe": lambda b: (b.pos_q.shape[-2], b.pos_k.shape[-2]),
}
"""Numbers of queries and keys, or one for both, of operators with arrays for a limited number of positions."""
SIZE = (7.0, 3.6)
"""Inches of the picture of an operator or of frequencies."""


def png(figure: Figure, dpi: float | None = None) -> bytes:
    """Return the figure as a PNG; if `dpi` is None, the figure's."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi="figure" if dpi is None else dpi)
    return buffer.getvalue()


def _is_function_of_distance(operator: Any) -> bool:
    """Return whether a curve against the relative position shows an operator."""
    if operator.name in LENGTHS or any(own is not None for own in operator.own_positions):
        return False
    down, across = operator.matrix(2).strides[-2:]
    return bool(down == -across)  # the matrix is a view of its diagonals


def _shown_lengths(operator: Any) -> tuple[int, int]:
    """Return the numbers of queries and keys of the picture of an operator, if it is a matrix."""
    lengths = LENGTHS[operator.name](operator) if operator.name in LENGTHS else (SHOWN,)
    q, k = operator.own_positions
    return lengths[0] if q is None else q.shape[-1], lengths[-1] if k is None else k.shape[-1]


def bias_figure(operator: PositionBias) -> Figure | None:
    """Draw the curve of each head if the operator is a function of distance, otherwise the matrix of the first head.

    Nothing is drawn of an operator without numbers.
    """
    figure, axes = canvas.axes_of(None, SIZE)
    if all(map(_is_function_of_distance, operator.parts)):
        return draw_curves(operator, ax=axes)
    lengths = zip(*map(_shown_lengths, operator.parts), strict=True)
    matrix = np.array(operator.matrix(*map(min, lengths), align="end", dtype=np.float64))
    if not matrix.size:
        return None
    first = matrix.reshape(-1, *matrix.shape[-2:])[0]
    if operator.name == "fox":  # numbers of keys after the query mean nothing
        first[np.triu_indices(len(first), 1)] = np.nan
    canvas.draw_logits(axes, np.where(np.isneginf(first), np.nan, first), operator, 0, operator.heads or 1)
    return figure


def frequencies_figure(frequencies: RopeFrequencies) -> Figure:
    """Draw the number of positions in which each pair makes a turn."""
    figure, axes = canvas.axes_of(None, SIZE)
    w = frequencies.inv_freq.reshape(-1, len(frequencies)).max(axis=0)  # of all coordinates
    turns = np.divide(2 * np.pi, w, out=np.full(w.shape, np.nan), where=w > 0)
    axes.plot(turns, marker=".", linewidth=1.2, **canvas.line_style(0))
    axes.set(xlabel="pair", ylabel="positions per turn", yscale="log")
    factors = f"attention_factor {frequencies.attention_factor:.4g}, softmax_factor {frequencies.softmax_factor:.4g}"
    axes.set_title(f"Rotary frequencies of {len(turns)} pairs; {factors}", fontsize="medium")
    axes.grid(alpha=0.3)
    return figure


def png_of(value: PositionBias | RopeFrequencies) -> bytes | None:
    """Return the picture of `_repr_png_`."""
    figure = frequencies_figure(value) if isinstance(value, RopeFrequencies) else bias_figure(value)
    return None if figure is None else png(figure, DPI)


def show_figures() -> None:
    """Let IPython show a Figure at the end of a cell, as it does after ``%matplotlib inline``, and describe it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.formatters["image/png"]
        if Figure not in formatter.type_printers:
            formatter.for_type(Figure, png)
        texts = shell.display_formatter.formatters["text/plain"]
        texts.for_type(Figure, lambda figure, printer, cycle: printer.text(description(figure)))
