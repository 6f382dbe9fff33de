"""Is an implementation right, and if not, why not?

Each function compares an implementation, or its output, with the right answer of `posenc.reference` in float64, and
returns a `Report`: right within a bound that is derived for the dtype, or wrong, with the known errors that explain the
numbers, alone or two together, and with the wrong parts of a rotation or of attention. ``assert_rope`` and so on raise
an AssertionError with the report.

The module is imported at the first use of ``posenc.check``.
"""

from collections.abc import Callable as _Callable
from sys import modules as _modules
from typing import ParamSpec as _ParamSpec

from .attention import attention, cache, softmax
from .biases import bias, buckets, slopes
from .command import run_command as run_command
from .frequencies import frequencies
from .gradient import gradient
from .mask import mask
from .report import Cause, Reading, Report
from .rope import rope, sinusoid

_P = _ParamSpec("_P")


def _asserting(check: _Callable[_P, Report]) -> _Callable[_P, None]:
    """Return the check as an assertion."""

    def assertion(*arguments: _P.args, **options: _P.kwargs) -> None:
        __tracebackhide__ = True  # pytest shows the line of the test
        report = check(*arguments, **options)
        if not report:
            raise AssertionError(str(report))

    assertion.__name__ = assertion.__qualname__ = f"assert_{check.__name__}"
    assertion.__module__ = __name__
    assertion.__wrapped__ = check  # type: ignore[attr-defined]  # inspect.signature reads the arguments
    assertion.__doc__ = f"Raise an AssertionError with the report of `{check.__name__}`, unless it is right."
    return assertion


assert_attention = _asserting(attention)
assert_bias = _asserting(bias)
assert_buckets = _asserting(buckets)
assert_cache = _asserting(cache)
assert_frequencies = _asserting(frequencies)
assert_gradient = _asserting(gradient)
assert_mask = _asserting(mask)
assert_rope = _asserting(rope)
assert_sinusoid = _asserting(sinusoid)
assert_slopes = _asserting(slopes)
assert_softmax = _asserting(softmax)

__all__ = [
    "Cause", "Reading", "Report", "assert_attention", "assert_bias", "assert_buckets", "assert_cache",
    "assert_frequencies", "assert_gradient", "assert_mask", "assert_rope", "assert_sinusoid", "assert_slopes",
    "assert_softmax", "attention", "bias", "buckets", "cache", "frequencies", "gradient", "mask", "rope", "sinusoid",
    "slopes", "softmax",
]  # fmt: skip

_NAMES = {
    "alibi": "slopes, or bias for numbers of pairs",
    "alibi_slopes": "slopes",
    "kv_cache": "cache",
    "rope_frequencies": "frequencies",
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
