"""Convert between user arguments and the operands of `posenc._core`."""
