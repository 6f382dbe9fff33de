"""Every function of posenc in plain NumPy: its equation as code, to read and to compare with.

``posenc.reference.rope`` takes the arguments of `posenc.rope`, without ``out=`` and ``dtype=``, and computes the same
numbers in float64, slowly. Arguments in ``np.longdouble``, or in arrays of mpmath's numbers, are computed in their own
precision. Nothing here uses the kernels of posenc, and arguments are not checked. The gradient of any function is
`gradient`, by central differences.
"""

from .absolute import merge
from .gradient import gradient

__all__ = [
    "gradient",
    "merge",
]
