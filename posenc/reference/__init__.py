"""Every function of posenc in plain NumPy: its equation as code, to read and to compare with.

``posenc.reference.rope`` takes the arguments of `posenc.rope`, without ``out=`` and ``dtype=``, and computes the same
numbers in float64, slowly. Arguments in ``np.longdouble``, or in arrays of mpmath's numbers, are computed in their own
precision. Nothing here uses the kernels of posenc, and arguments are not checked. The gradient of any function is
`gradient`, by central differences.
"""

from .absolute import merge
from .attention import Quantized, attention, attention_weights, merge_attention, quantize
from .bias import (
    Bias,
    PositionBias,
    alibi,
    alibi_slopes,
    beit,
    dense,
    distance_function,
    fire,
    fox,
    kerple_log,
    kerple_power,
    sandwich,
    swin,
    t5,
    t5_bucket,
    tisa,
    toeplitz,
)  # fmt: skip
from .gradient import gradient
from .relative import (
    ContentBias,
    cope,
    deberta,
    gated_distance,
    nezha,
    relative_key_query,
    shaw,
    transformer_xl,
    tupe,
    xl_table,
)  # fmt: skip

__all__ = [
    "Bias",
    "ContentBias",
    "PositionBias",
    "Quantized",
    "alibi",
    "alibi_slopes",
    "attention",
    "attention_weights",
    "beit",
    "cope",
    "deberta",
    "dense",
    "distance_function",
    "fire",
    "fox",
    "gated_distance",
    "gradient",
    "kerple_log",
    "kerple_power",
    "merge",
    "merge_attention",
    "nezha",
    "quantize",
    "relative_key_query",
    "sandwich",
    "shaw",
    "swin",
    "t5",
    "t5_bucket",
    "tisa",
    "toeplitz",
    "transformer_xl",
    "tupe",
    "xl_table",
]
