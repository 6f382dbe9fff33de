"""The types of results: gradients by name, the arrays of operators, layers of a config, and positions.

Functions return them; nobody constructs them. `attention_vjp` returns an `AttentionGradient`; ``alibi(...).arrays`` is
an `AlibiArrays`, and its gradient is one, too.
"""

from .absolute.combine import CombineGradient
from .absolute.complex_order import ComplexOrderGradient
from .absolute.convolution import ConvPosition2dGradient, ConvPositionGradient
from .absolute.embedding import HierarchicalGradient, InterpolateTableGradient, LearnedGradient
from .absolute.scans import FloaterGradient, RecurrentGradient
from .absolute.sinusoid import ShiftGradient, SinusoidalGradient
from .attention import AttentionGradient
from .bias.alibi import AlibiArrays
from .bias.dense import DenseArrays
from .bias.distance_function import FunctionArrays
from .bias.fire import FireArrays
from .bias.fox import FoxArrays
from .bias.kerple import KerpleArrays
from .bias.sandwich import SandwichArrays
from .bias.swin import SwinArrays
from .bias.t5 import T5Arrays
from .bias.tisa import TisaArrays
from .bias.toeplitz import ToeplitzArrays
from .relative.content import LogitsGradient
from .relative.cope import CopeArrays
from .relative.deberta import DebertaArrays
from .relative.gated_distance import GatedDistanceArrays
from .relative.relative_key_query import RelativeKeyQueryArrays
from .relative.shaw import ShawArrays
from .relative.transformer_xl import TransformerXLArrays
from .relative.tupe import TupeArrays
from .rotary.by_table import RopeTableGradient
from .rotary.layers import Layer
from .rotary.positions import MropePositions
from .rotary.rotations import RopeGradient

__all__ = [
    "AlibiArrays", "AttentionGradient", "CombineGradient", "ComplexOrderGradient", "ConvPosition2dGradient",
    "ConvPositionGradient", "CopeArrays", "DebertaArrays", "DenseArrays", "FireArrays", "FloaterGradient", "FoxArrays",
    "FunctionArrays", "GatedDistanceArrays", "HierarchicalGradient", "InterpolateTableGradient", "KerpleArrays",
    "Layer", "LearnedGradient", "LogitsGradient", "MropePositions", "RecurrentGradient", "RelativeKeyQueryArrays",
    "RopeGradient", "RopeTableGradient", "SandwichArrays", "ShawArrays", "ShiftGradient", "SinusoidalGradient",
    "SwinArrays", "T5Arrays", "TisaArrays", "ToeplitzArrays", "TransformerXLArrays", "TupeArrays",
]  # fmt: skip
