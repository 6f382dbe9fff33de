"""Rotary embeddings: rotations of pairs of channels. One file per function or family."""
