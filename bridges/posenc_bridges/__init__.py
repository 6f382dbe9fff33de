"""posenc for the arrays of other libraries: `torch`, `transformers`, `jax`, `autograd` and `dask`.

Import a bridge as ``import posenc_bridges.torch``. Each has the functions of `posenc` under their own names. A bridge
imports its library; this package imports none.
"""

__version__ = "0.1.0"
