"""Is an implementation right, and if not, why not?

Each function compares an implementation, or its output, with the right answer of `posenc.reference` in float64, and
returns a `Report`: right within a bound that is derived for the dtype, or wrong, with the parts that are, their laws,
and the known errors that give their numbers. `Report.assert_right` raises an AssertionError with the report.

The module is imported at the first use of ``posenc.check``.
"""

from sys import modules as _modules

from .._core_api.door import door as _door
from ._attention import attention, cache, softmax
from ._biases import bias, buckets, slopes
from ._command import run_command as run_command
from ._describe import Description, describe
from ._frequencies import frequencies
from ._gradient import gradient
from ._learned import learned
from ._mask import mask
from ._merge import merge
from ._positions import positions
from ._report import Cause, Reading, Report
from ._rope import rope, sinusoid

__all__ = [
    "Cause", "Description", "Reading", "Report", "attention", "bias", "buckets", "cache", "describe", "frequencies",
    "gradient", "learned", "mask", "merge", "positions", "rope", "sinusoid", "slopes", "softmax",
]  # fmt: skip
for _kind in filter(str.islower, __all__):  # an unknown argument gets a sentence that says what takes its place
    globals()[_kind] = _door(globals()[_kind], f"check.{_kind}")

_NAMES = {
    "alibi": "slopes, or bias for numbers of pairs",
    "alibi_slopes": "slopes",
    "interpolate_table": "learned",
    "kv_cache": "cache",
    "mrope_positions": "positions",
    "rope_frequencies": "frequencies",
    "merge_attention": "merge",
    "scaled_dot_product_attention": "attention",
    "sinusoidal": "sinusoid",
    "t5": "buckets, or bias for numbers of pairs",
    "t5_bucket": "buckets",
    "vjp": "gradient",
}


def __getattr__(name: str) -> object:
    """Name what checks it, for names that people try."""
    hint = f"; expected posenc.check.{_NAMES[name]}" if name in _NAMES else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=_modules[__name__])


def __dir__() -> list[str]:
    return [*__all__]
