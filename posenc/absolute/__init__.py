"""Absolute encodings: a vector for each position. One file per encoding or family."""
