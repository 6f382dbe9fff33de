"""Imported before NumPy: its BLAS then has one thread, like everything that is timed here."""

import os

for library in ("OPENBLAS", "MKL", "OMP", "VECLIB_MAXIMUM"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
