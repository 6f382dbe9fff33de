"""Curves and matrices of positions."""
