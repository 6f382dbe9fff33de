"""Pictures that a notebook shows for operators and frequencies, and for figures at the end of a cell."""

from __future__ import annotations

import io
import sys

import numpy as np
from matplotlib.figure import Figure

from ..bias.fox import FoxBias
from ..bias.operator import Bias, PositionBias, is_placed
from ..bias.parameters import array_axes
from ..rotary.scaling import RopeFrequencies
from ._canvas import axes_of, draw_logits
from .curves import bias as draw_curves
from .description import description
from .styles import line_style

DPI = 96
"""Of the screen, so that a label of 10 points has 10 points."""
LENGTHS = {"n", "m", "l"}
"""Letters of csrc/ops.def for queries, keys and diagonals."""
SHOWN = 64
"""Most queries and keys of the picture of an operator."""
SIZE = (7.0, 3.6)
"""Inches of the picture of an operator or of frequencies."""


def png(figure: Figure, dpi: float | None = None) -> bytes:
    """Return the figure as a PNG; if `dpi` is None, the figure's."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi="figure" if dpi is None else dpi)
    return buffer.getvalue()


def _is_function_of_distance(operator: Bias) -> bool:
    """Return whether a curve against the relative position shows an operator."""
    has_rows = any(LENGTHS & {*axes} for axes in array_axes(operator.name).values())
    return operator.is_relative and not is_placed(operator) and not has_rows


def _shown_lengths(operator: Bias) -> tuple[int, int]:
    """Return the numbers of queries and keys of the picture of an operator, if it is a matrix."""
    lengths: dict[str, int] = {}
    for array, axes in zip(operator.arrays, array_axes(operator.name).values(), strict=False):
        lengths |= dict(zip(reversed(axes), reversed(getattr(array, "shape", ())), strict=False))
    if "l" in lengths:
        n = (lengths["l"] + 1) // 2
        return n, lengths["l"] + 1 - n
    end = operator.positions_end if isinstance(operator, PositionBias) else None
    n = lengths.get("n", SHOWN if end is None else min(SHOWN, end))
    q, k = operator.own_positions
    return n if q is None else q.shape[-1], lengths.get("m", n) if k is None else k.shape[-1]


def bias_figure(operator: PositionBias) -> Figure | None:
    """Draw the curve of each head if the operator is a function of distance, otherwise the matrix of the first head.

    Nothing is drawn of an operator without numbers.
    """
    figure, axes = axes_of("bias", None, SIZE)
    if all(map(_is_function_of_distance, operator.parts)):
        return draw_curves(operator, ax=axes)
    lengths = zip(*map(_shown_lengths, operator.parts), strict=True)
    matrix = np.array(operator.matrix(*map(min, lengths), dtype=np.float64))
    if not matrix.size:
        return None
    first = matrix.reshape(-1, *matrix.shape[-2:])[0]
    if isinstance(operator, FoxBias):  # numbers of keys after the query mean nothing
        first[np.triu_indices(len(first), 1)] = np.nan
    draw_logits(axes, np.where(np.isneginf(first), np.nan, first), operator.name, 0, matrix.shape[-3])
    return figure


def frequencies_figure(frequencies: RopeFrequencies) -> Figure:
    """Draw the number of positions in which each pair makes a turn."""
    figure, axes = axes_of("frequencies", None, SIZE)
    turning = frequencies.inv_freq > 0
    turns = np.divide(2 * np.pi, frequencies.inv_freq, out=np.full(turning.shape, np.nan), where=turning)
    axes.plot(turns, marker=".", linewidth=1.2, **line_style(0))
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
