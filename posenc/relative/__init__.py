"""Attention operators that read queries and keys, TUPE and gated distance. One file per operator.

Each function returns a `ContentBias` to hand to `attention`; `tupe` and `gated_distance` return a `PositionBias`.
"""
