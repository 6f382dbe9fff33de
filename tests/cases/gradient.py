"""The gradient of attention by its formula, from whole matrices, and random arguments for it."""

import numpy as np

import posenc

from . import F64
from .attention import pairs_of
from .bias import operator_of
from .rounding import gradient_bounds


def formula(grad, q, k, v, *, out, lse, grad_lse=None, **options):
    """Return (dQ, dK, dV, dS) from whole matrices.

    dV = P^T g, dP = g V^T, dS = P (dP - sum g out + grad_lse), dX = dS (1 - tanh**2), dQ = scale dX K,
    dK = scale dX^T Q.
    """
    x = pairs_of(q, k, v, **options)
    grad, out, lse = (np.asarray(given, F64) for given in (grad, out, lse))
    p = x.weights(lse)
    delta = (grad * out).sum(-1) - (0 if grad_lse is None else np.asarray(grad_lse, F64))
    ds = np.where(p == 0, 0, p * (grad @ x.v.swapaxes(-1, -2) - delta[..., None]))
    dx = ds * x.slope * x.scale

    def by_kv_head(d):
        return d.reshape(*d.shape[:-3], d.shape[-3] // x.share, x.share, *d.shape[-2:]).sum(-3)

    return dx @ x.k, by_kv_head(dx.swapaxes(-1, -2) @ x.q), by_kv_head(p.swapaxes(-1, -2) @ grad), ds


def formula_and_bounds(grad, q, k, v, *, out, lse, work, grad_lse=None, **options):
    """Return dQ, dK and dV by `formula`, and the largest error of each entry in an arithmetic (cases/rounding.py)."""
    wide = [None if x is None else np.asarray(x, F64) for x in (grad, out, lse, grad_lse)]
    exact = formula(grad, q, k, v, out=out, lse=lse, grad_lse=grad_lse, **options)[:3]
    return exact, gradient_bounds(pairs_of(q, k, v, **options), *wide, work)


def problem(rng, n, m, heads=4, groups=2, width=16, value_width=8, batch=(), dtype=F64, **options):
    """Random (grad, q, k, v), and the options of `attention_vjp` and of `formula`, with out and lse."""
    shapes = ((heads, n, width), (groups, m, width), (groups, m, value_width), (heads, n, value_width), (heads, n))
    q, k, v, grad, grad_lse = (rng.standard_normal((*batch, *shape)).astype(dtype) for shape in shapes)
    return call(q, k, v, grad, grad_lse, **options)


def call(q, k, v, grad, grad_lse=None, **options):
    made = tuple(map(operator_of, options.get("bias", ())))
    ours = {**options, "bias": made}
    out, lse = posenc.attention(q, k, v, return_lse=True, **ours)
    rest = {"out": out, "lse": lse, "grad_lse": grad_lse}
    return (grad, q, k, v), {**ours, **rest}, {**options, **rest}
