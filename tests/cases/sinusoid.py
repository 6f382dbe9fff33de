"""Frequencies and sinusoids."""

from __future__ import annotations

import numpy as np

from . import F64, Case, at, ulp, ulps


def sinusoid_tolerance(expected, work, arguments):
    """The documented bounds: 1 ulp in float32, 4e-16 absolute in float64, and one ulp for the product with scale."""
    (result,), scale = expected, arguments.get("scale", 1.0)
    if work == F64:
        return (np.full(result.shape, 4e-16 * abs(scale) + (scale != 1.0) * np.spacing(abs(scale))),)
    return (np.spacing(np.abs(result).astype(np.float32)).astype(np.float64) * (1.0 if scale == 1.0 else 2.0),)


def norm_of_pairs(
    rotated, *, layout="interleaved", out_layout=None, axes=None, rotary_dim=None, rotary_offset=0, seq_axis=-2, **_
):
    """Norm of the pair of each channel of a result, 0 for channels that are copied bit for bit. In a rotation all may
    cancel except the rounding of the larger part."""
    x = np.moveaxis(rotated, seq_axis, -2)
    width = x.shape[-1] - rotary_offset if rotary_dim is None else rotary_dim
    here = slice(rotary_offset, rotary_offset + width)
    blocks = 2 if axes == "blocks" else 1
    half, is_half = width // blocks // 2, (out_layout or layout) == "half"
    pairs = x[..., here].reshape(*x.shape[:-1], blocks, *((2, half) if is_half else (half, 2)))
    norm = np.broadcast_to(np.sqrt((pairs**2).sum(-2 if is_half else -1, keepdims=True)), pairs.shape)
    size = np.zeros(x.shape)
    size[..., here] = norm.reshape(*x.shape[:-1], width)
    return np.moveaxis(size, -2, seq_axis)


def of_pairs(count):
    """Tolerance of `count` spacings at the norm of the pair."""
    return lambda expected, work, arguments: (count * ulp(norm_of_pairs(expected[0], **arguments), work),)


def integers(rng, *shape):
    return rng.integers(-2000, 2000, shape)


def make_sinusoidal(**options):
    return lambda rng, n: {"positions": integers(rng, n), "dim": max(n, 1), **options}


def make_trained(rng, n):
    """Fractional positions, trained frequencies, and batch axes."""
    return {
        "positions": rng.uniform(-50, 50, (2, n)),
        "dim": max(n, 1),
        "layout": "half",
        "frequencies": rng.uniform(0, 2, (max(n, 1) + 1) // 2),
    }


def real_sinusoidal(rng):
    return {"positions": 8192, "dim": 1024}


def make_shift(**options):
    def make(rng, n):
        return {"encoding": rng.standard_normal((2, n, 2 * max(n, 1))), "offset": np.float64(37), **options}

    return make


def make_shift_rows(rng, n):
    return {
        "encoding": rng.standard_normal((2, n, 2 * max(n, 1))),
        "offset": rng.uniform(-99, 99, (2, n)),
        "frequencies": rng.uniform(0, 2, max(n, 1)),
        "layout": "half",
        "order": "cossin",
    }


# frequencies: base**-t is correctly rounded by construction, and the longdouble power of NumPy is within 2**-64.
# t**alpha: the half ulp of a float64 t counts alpha times (here 2, and twice that below a power of two), and the power
# adds half an ulp.
# shift: three roundings of numbers no larger than the norm of the pair (two products and a sum), and one of the table.
CASES = [
    Case(
        function="sinusoidal_frequencies", tolerance=ulps(0.5001), make=lambda rng, n: {"dim": n}, least=1,
    ),
    Case(
        function="sinusoidal_frequencies", label="half-1", tolerance=ulps(0.5001), least=1,
        make=lambda rng, n: {"dim": n, "denominator": "half-1", "base": 500},
    ),
    Case(
        function="sinusoidal_frequencies", label="power", tolerance=ulps(2.5), least=1,
        make=lambda rng, n: {"dim": n, "schedule": "power", "alpha": 2.0},
    ),
    Case(
        function="sinusoidal", tolerance=sinusoid_tolerance, axes={"positions": "n"},
        make=make_sinusoidal(), real=real_sinusoidal, gradients=at("positions"),
    ),
    Case(
        function="sinusoidal", label="count", tolerance=sinusoid_tolerance,
        make=lambda rng, n: {"positions": n, "dim": 33, "layout": "half"},
    ),
    Case(
        function="sinusoidal", label="fairseq", tolerance=sinusoid_tolerance,
        make=make_sinusoidal(layout="half", denominator="half-1"), axes={"positions": "n"}, gradients=at("positions"),
    ),
    Case(
        function="sinusoidal", label="musicgen", tolerance=sinusoid_tolerance,
        make=make_sinusoidal(layout="half", denominator="half-1", order="cossin", scale=3.0, base=500.0),
        axes={"positions": "n"}, gradients=at("positions"),
    ),
    Case(
        function="sinusoidal", label="trained", tolerance=sinusoid_tolerance, make=make_trained,
        axes={"positions": "b n", "frequencies": "f!"}, gradients=at("positions", "frequencies"),
    ),
    Case(
        function="shift", tolerance=of_pairs(3), make=make_shift(),
        axes={"encoding": "b n? d!"}, data=("encoding",), gradients=at("encoding"),
    ),
    Case(
        function="shift", label="rows", tolerance=of_pairs(3), make=make_shift_rows,
        axes={"encoding": "b n d!", "offset": "b n?", "frequencies": "f!"}, data=("encoding",),
        gradients=at("encoding", "offset", "frequencies"),
    ),
    Case(
        # entries are sines and cosines, within the bound of the table, or exact zeros
        function="shift_matrix", tolerance=lambda expected, work, arguments: (4e-16,),
        make=lambda rng, n: {"offset": 17.25, "dim": 2 * n, "layout": "half"}, least=1,
    ),
]  # fmt: skip
