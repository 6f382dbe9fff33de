"""Rotary embeddings: rotations of pairs of channels."""
