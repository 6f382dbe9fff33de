"""Norms and covariances of the embeddings of words and positions, in a model with a learned table of positions."""

from __future__ import annotations

import numpy as np

from arrays import Array

from .schemes import Weights
from .text import Bytes


def embedding_statistics(weights: Weights, data: Bytes) -> dict[str, float]:
    """Compare the two tables of a trained model; bytes that the text does not contain are left out.

    The vectors are compared as they are added: those of words are multiplied by sqrt(width). A norm is the mean over
    the words or positions.
    """
    words: Array = weights["embedding"][np.unique(data)].astype(np.float64) * weights["embedding"].shape[1] ** 0.5
    positions: Array = weights["scheme.table"].astype(np.float64)
    return {
        "word_norm": float(np.linalg.norm(words, axis=1).mean()),
        "position_norm": float(np.linalg.norm(positions, axis=1).mean()),
        "word_diagonal": diagonal_dominance(words),
        "position_diagonal": diagonal_dominance(positions),
    }


def diagonal_dominance(rows: Array) -> float:
    """Mean size of a diagonal entry of the covariance of the channels, divided by the mean size of the others."""
    covariance = np.abs(np.cov(rows, rowvar=False))
    d = len(covariance)
    diagonal = float(np.trace(covariance))
    return diagonal / d / ((float(covariance.sum()) - diagonal) / (d * (d - 1)))
