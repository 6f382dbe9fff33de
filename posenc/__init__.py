"""Position encodings and position-aware attention for Transformers, in C over NumPy arrays.

Sequence axes are N (queries, index i) and M (keys, index j); a relative position is always position of key minus
position of query. Positions are explicit: an int ``n`` means 0..n-1, or with ``start=s`` s..s+n-1, and an array means
itself. A function ``f`` whose gradient is known has ``f_vjp``, which returns a NamedTuple such as ``RopeGradient``.

Encodings that are added to or multiplied with embeddings
    sinusoidal, sinusoidal_frequencies, shift, shift_matrix; learned, hierarchical, interpolate_table; recurrent,
    floater, integrate; conv_position, conv_position_2d; complex_order; combine; digits, from_digits;
    positions_from_mask

Rotations of queries and keys
    rope, rope_nd, xpos; rope_frequencies, rope_from_config, layers, axial_frequencies, mrope_frequencies,
    RopeFrequencies; rope_table, rope_by_table, rope_matrix, rerotate, convert_layout; mrope_positions, grid_positions;
    self_extend_positions, rerope_positions, logn_scale, floor_log_scale

Biases that read positions
    alibi, alibi_slopes, kerple_log, kerple_power, t5, t5_bucket, sandwich, fire, fox, tisa, swin, beit;
    distance_function, toeplitz, dense; PositionBias, Bias

Biases that read queries and keys
    shaw, nezha_table, transformer_xl, xl_table, deberta, relative_key_query, cope, gated_distance, tupe; ContentBias

Attention
    attention, attention_weights, merge_attention, quantize, Quantized

Threads
    threads, get_num_threads, set_num_threads

Modules
    analysis, check, plot, reference and typing (the types of results) are imported at their first use. runtime has the
    instruction sets; ``import posenc.interop`` is for bridges to other libraries. The distribution posenc-bridges has
    the functions of posenc for the arrays of torch, JAX, autograd and dask: ``import posenc_bridges.torch``.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._core_api.foreign import missing_name as _missing_name
from ._core_api.notebook import draw_with as _draw_with
from .absolute.combine import combine, combine_vjp
from .absolute.complex_order import complex_order, complex_order_vjp
from .absolute.convolution import (
    conv_position,
    conv_position_2d,
    conv_position_2d_vjp,
    conv_position_vjp,
)
from .absolute.digits import digits, from_digits, positions_from_mask
from .absolute.embedding import (
    hierarchical,
    hierarchical_vjp,
    interpolate_table,
    interpolate_table_vjp,
    learned,
    learned_vjp,
)
from .absolute.frequency import sinusoidal_frequencies
from .absolute.scans import (
    floater,
    floater_vjp,
    integrate,
    recurrent,
    recurrent_vjp,
)
from .absolute.sinusoid import (
    shift,
    shift_matrix,
    shift_vjp,
    sinusoidal,
    sinusoidal_vjp,
)
from .attention import attention, attention_vjp, attention_weights, merge_attention
from .attention.quantized import Quantized, quantize
from .bias.alibi import alibi, alibi_slopes
from .bias.dense import dense
from .bias.distance_function import distance_function
from .bias.fire import fire
from .bias.fox import fox
from .bias.kerple import kerple_log, kerple_power
from .bias.operator import Bias, PositionBias
from .bias.sandwich import sandwich
from .bias.swin import beit, swin
from .bias.t5 import t5, t5_bucket
from .bias.tisa import tisa
from .bias.toeplitz import toeplitz
from .relative.content import ContentBias
from .relative.cope import cope
from .relative.deberta import deberta
from .relative.gated_distance import gated_distance
from .relative.relative_key_query import relative_key_query
from .relative.shaw import nezha_table, shaw
from .relative.transformer_xl import transformer_xl, xl_table
from .relative.tupe import tupe
from .rotary.by_table import rope_by_table, rope_by_table_vjp
from .rotary.config import rope_from_config
from .rotary.coordinates import axial_frequencies, mrope_frequencies, rope_nd, rope_nd_vjp
from .rotary.layers import layers
from .rotary.lengths import floor_log_scale, logn_scale, rerope_positions, rerotate, self_extend_positions
from .rotary.positions import grid_positions, mrope_positions
from .rotary.rope import convert_layout, rope, rope_matrix, rope_table, rope_vjp
from .rotary.scaling import RopeFrequencies, rope_frequencies
from .rotary.xpos import xpos, xpos_vjp
from .runtime import get_num_threads, set_num_threads, threads

if _TYPE_CHECKING:
    from . import analysis as analysis
    from . import check as check
    from . import plot as plot
    from . import reference as reference
    from . import typing as typing

__version__ = "0.1.0"
__all__ = [
    # absolute
    "combine", "combine_vjp", "complex_order", "complex_order_vjp", "conv_position", "conv_position_2d",
    "conv_position_2d_vjp", "conv_position_vjp", "digits", "floater", "floater_vjp", "from_digits", "hierarchical",
    "hierarchical_vjp", "integrate", "interpolate_table", "interpolate_table_vjp", "learned", "learned_vjp",
    "positions_from_mask", "recurrent", "recurrent_vjp", "shift", "shift_matrix", "shift_vjp", "sinusoidal",
    "sinusoidal_frequencies", "sinusoidal_vjp",
    # rotary
    "RopeFrequencies", "axial_frequencies", "convert_layout", "floor_log_scale", "grid_positions", "layers",
    "logn_scale", "mrope_frequencies", "mrope_positions", "rerope_positions", "rerotate", "rope", "rope_by_table",
    "rope_by_table_vjp", "rope_frequencies", "rope_from_config", "rope_matrix", "rope_nd", "rope_nd_vjp", "rope_table",
    "rope_vjp", "self_extend_positions", "xpos", "xpos_vjp",
    # bias
    "Bias", "ContentBias", "PositionBias", "alibi", "alibi_slopes", "beit", "dense", "distance_function", "fire", "fox",
    "kerple_log", "kerple_power", "sandwich", "swin", "t5", "t5_bucket", "tisa", "toeplitz",
    # relative
    "cope", "deberta", "gated_distance", "nezha_table", "relative_key_query", "shaw", "transformer_xl", "tupe",
    "xl_table",
    # attention
    "Quantized", "attention", "attention_vjp", "attention_weights", "merge_attention", "quantize",
    # runtime
    "get_num_threads", "set_num_threads", "threads",
]  # fmt: skip

_MODULES = ("analysis", "check", "plot", "reference", "typing")
_BRIDGES = ("autograd", "dask", "jax", "torch", "transformers")

if not _TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a module at its first use, or name the distribution that has it."""
        try:
            if name in _MODULES:
                return _import_module(f"posenc.{name}")
        except ImportError as error:  # hasattr and inspect.getmembers expect an AttributeError
            raise AttributeError(str(error), name=name) from error
        if name in _BRIDGES:
            expected = f"posenc_bridges.{name}, of the distribution posenc-bridges"
            raise AttributeError(f"module 'posenc' has no attribute '{name}'; expected {expected}", name=name)
        raise _missing_name("posenc", name, __all__)

    def __dir__() -> list[str]:
        return sorted([*__all__, *_MODULES, "runtime", "__version__"])


_draw_with(lambda *value: _import_module("posenc.plot._notebook").png_of(*value))
