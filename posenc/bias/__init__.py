"""Attention biases that read positions only. One file per operator or family.

Each function returns a `PositionBias`: it can be shown as a matrix, differentiated, and handed to `attention`.
"""
