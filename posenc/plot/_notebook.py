"""Pictures that a notebook shows for operators and frequencies, and for figures at the end of a cell."""

from __future__ import annotations

import io
import sys
from typing import cast

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from .. import PositionBias, RopeFrequencies
from . import _canvas as canvas
from ._curves import bias as draw_curves
from ._description import description

DPI = 96
"""Of the screen, so that a label of 10 points has 10 points."""
SIZE = (7.0, 3.6)
"""Inches of the picture of an operator or of frequencies."""


def png(figure: Figure, dpi: float | None = None) -> bytes:
    """Return the figure as a PNG; if `dpi` is None, the figure's."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi="figure" if dpi is None else dpi)
    return buffer.getvalue()


def _is_function_of_distance(bias: PositionBias, n: int, m: int) -> bool:
    """Return whether a curve against the relative position shows a bias."""
    if not bias.reads_positions or any(own is not None for own in bias.own_positions):
        return False
    down, across = bias.matrix(n, m, align="end").strides[-2:]
    return bool(down == -across)  # the matrix is a view of its diagonals


def bias_figure(bias: PositionBias, n: int, m: int) -> Figure | None:
    """Draw the curve of each head if the bias is a function of distance, otherwise the matrix of the first head.

    Nothing is drawn of a bias without numbers.
    """
    figure = Figure(SIZE, layout="constrained")
    if n == 0 or m == 0:
        return None
    if all(_is_function_of_distance(cast("PositionBias", part), n, m) for part in bias.parts):
        draw_curves(bias, ax=figure.subplots())
        return figure
    matrix = np.array(bias.matrix(n, m, align="end", dtype=np.float64))
    first = matrix.reshape(-1, n, m)[0]
    if canvas.is_causal(bias):  # numbers of keys after the query mean nothing
        first[np.triu_indices(n, 1)] = np.nan
    canvas.draw_logits(figure.subplots(), np.where(np.isneginf(first), np.nan, first), bias, 0, bias.heads or 1)
    return figure


def frequencies_figure(frequencies: RopeFrequencies) -> Figure:
    """Draw the number of positions in which each pair makes a turn."""
    figure = Figure(SIZE, layout="constrained")
    w = frequencies.inv_freq.reshape(-1, len(frequencies)).max(axis=0)  # of all coordinates
    turns = np.divide(2 * np.pi, w, out=np.full(w.shape, np.nan), where=w > 0)
    factors = f"attention_factor {frequencies.attention_factor:.4g}, softmax_factor {frequencies.softmax_factor:.4g}"
    labels = {"xlabel": "pair", "ylabel": "positions per turn", "yscale": "log"}
    axes = canvas.draw_curves(figure.subplots(), range(len(turns)), {"": turns}, labels, legend=False)
    axes.get_lines()[0].set_marker(".")
    axes.set_title(f"Rotary frequencies of {len(turns)} pairs; {factors}", fontsize="medium")
    return figure


def png_of(value: PositionBias | RopeFrequencies, *lengths: int) -> bytes | None:
    """Return the picture of `_repr_png_`. `lengths` are the numbers of queries and keys of a bias."""
    figure = frequencies_figure(value) if isinstance(value, RopeFrequencies) else bias_figure(value, *lengths)
    return None if figure is None else png(figure, DPI)


def show_figures() -> None:
    """Let IPython show a Figure at the end of a cell, as it does after ``%matplotlib inline``, and describe it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        if "inline" in pyplot.get_backend():  # it is loaded with the first figure, and then drops these formatters
            pyplot.switch_backend(pyplot.get_backend())
        formatter = shell.display_formatter.formatters["image/png"]
        if Figure not in formatter.type_printers:
            formatter.for_type(Figure, png)
        texts = shell.display_formatter.formatters["text/plain"]
        texts.for_type(Figure, lambda figure, printer, cycle: printer.text(description(figure)))
