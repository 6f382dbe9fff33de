"""Every function of posenc in plain NumPy: its equation as code, to read and to compare with.

``posenc.reference.rope`` takes the arguments of `posenc.rope`, without ``out=`` and ``dtype=``, and computes the same
numbers in float64, slowly. Arguments in ``np.longdouble``, or in arrays of mpmath's numbers, are computed in their own
precision. Nothing here uses the kernels of posenc. Arguments are not checked, and results that posenc returns as a
NamedTuple are tuples, except in functions with annotations, such as `rope_bands`: these are the functions of
`posenc.analysis` themselves. The gradient of any function is `gradient`, by central differences; `dropout_factors` are
the random numbers of `attention`.
"""

from .absolute import *
from .analysis import *
from .attention import *
from .bias import *
from .dropout import dropout_factors
from .gradient import gradient
from .relative import *
from .rotary import *

__all__ = [
    # absolute
    "combine", "complex_order", "conv_position", "conv_position_2d", "digits", "floater", "from_digits", "hierarchical",
    "integrate", "interpolate_table", "learned", "positions_from_mask", "recurrent", "shift", "shift_matrix",
    "sinusoidal", "sinusoidal_frequencies",
    # analysis
    "RopeBands", "RopeCoverage", "TaylorTerms", "TrianglePoints", "attention_profile", "correlation_matrix", "decay",
    "distance_matrix", "gram_matrix", "inner_product", "interaction_matrix", "order_sensitivity", "reference_logits",
    "reference_matrix", "rope_bands", "rope_coverage", "taylor_terms", "triangle_points",
    # attention
    "Quantized", "attention", "attention_weights", "dropout_factors", "gradient", "merge_attention", "quantize",
    # bias
    "Bias", "PositionBias", "alibi", "alibi_slopes", "beit", "dense", "distance_function", "fire", "fox", "kerple_log",
    "kerple_power", "sandwich", "swin", "t5", "t5_bucket", "tisa", "toeplitz",
    # relative
    "ContentBias", "cope", "deberta", "gated_distance", "nezha_table", "relative_key_query", "shaw", "transformer_xl",
    "tupe", "xl_table",
    # rotary
    "RopeFrequencies", "axial_frequencies", "convert_layout", "floor_log_scale", "grid_positions", "logn_scale",
    "mrope_frequencies", "mrope_positions", "rerope_positions", "rerotate", "rope", "rope_by_table", "rope_frequencies",
    "rope_from_config", "rope_matrix", "rope_nd", "rope_table", "self_extend_positions", "xpos",
]  # fmt: skip
