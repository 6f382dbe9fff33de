"""Curves and matrices of positions as arrays; `posenc.plot` draws them.

The module is imported at the first use of ``posenc.analysis``.
"""

from ..reference import (
    RopeBands,
    RopeCoverage,
    TaylorTerms,
    TrianglePoints,
    interaction_matrix,
    order_sensitivity,
    reference_logits,
    reference_matrix,
    rope_bands,
    rope_coverage,
    taylor_terms,
    triangle_points,
)
from ._curves import AttentionProfile, InnerProduct, attention_profile, decay, inner_product
from ._matrices import correlation_matrix, distance_matrix, gram_matrix

__all__ = [
    "AttentionProfile", "InnerProduct", "RopeBands", "RopeCoverage", "TaylorTerms", "TrianglePoints",
    "attention_profile", "correlation_matrix", "decay", "distance_matrix", "gram_matrix", "inner_product",
    "interaction_matrix", "order_sensitivity", "reference_logits", "reference_matrix", "rope_bands", "rope_coverage",
    "taylor_terms", "triangle_points",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
