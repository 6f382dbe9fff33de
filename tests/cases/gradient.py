"""The gradient of attention by its formula, from whole matrices, and random arguments for it."""

import numpy as np

import posenc

from . import F64
from .attention import operators, places, visible


def formula(grad, q, k, v, *, out, lse, grad_lse=None, bias=(), scale=None, softcap=None, align=None, q_positions=None,
            k_positions=None, work=F64, **mask):  # fmt: skip
    """Return (dQ, dK, dV, dS) from whole matrices in `work`.

    dV = P^T g, dP = g V^T, dS = P (dP - sum g out + grad_lse), dX = dS (1 - tanh**2), dQ = scale dX K,
    dK = scale dX^T Q.
    """
    grad, q, k, v, out, lse = (np.asarray(x, work) for x in (grad, q, k, v, out, lse))
    share, groups = q.shape[-3] // k.shape[-3], k.shape[-3]
    k, v = np.repeat(k, share, -3), np.repeat(v, share, -3)
    factor = work.type(q.shape[-1] ** -0.5 if scale is None else scale)
    q_at, k_at = places(q.shape[-2], k.shape[-2], align, q_positions, k_positions)
    logits, slope = (q @ k.swapaxes(-1, -2)) * factor, work.type(1)
    if softcap is not None:
        bend = np.tanh(logits / work.type(softcap))
        logits, slope = work.type(softcap) * bend, 1 - bend * bend
    for function, given in bias:
        logits = logits + np.asarray(operators()[function].values(q_at, k_at, **given), work)
    shape = (*out.shape[:-1], k.shape[-2])
    seen = visible(shape, q_positions=q_at, k_positions=k_at, **mask) & (logits != -np.inf)
    p = np.where(seen, np.exp(np.where(seen, logits - np.where(np.isfinite(lse), lse, 0)[..., None], 0)), work.type(0))
    delta = (grad * out).sum(-1, dtype=work)
    if grad_lse is not None:
        delta = delta - np.asarray(grad_lse, work)
    ds = np.where(p == 0, work.type(0), p * (grad @ v.swapaxes(-1, -2) - delta[..., None]))
    dx = ds * slope

    def grouped(x):
        return x.reshape(*x.shape[:-3], groups, share, *x.shape[-2:]).sum(-3, dtype=work)

    keys = grouped(dx.swapaxes(-1, -2) @ q) * factor, grouped(p.swapaxes(-1, -2) @ grad)
    return (dx @ k) * factor, *keys, ds


def problem(rng, n, m, heads=4, groups=2, width=16, value_width=8, batch=(), dtype=F64, **options):
    """Random (grad, q, k, v), and the options of `attention_vjp` and of `formula`, with out and lse."""
    shapes = ((heads, n, width), (groups, m, width), (groups, m, value_width), (heads, n, value_width), (heads, n))
    q, k, v, grad, grad_lse = (rng.standard_normal((*batch, *shape)).astype(dtype) for shape in shapes)
    return call(q, k, v, grad, grad_lse, **options)


def call(q, k, v, grad, grad_lse=None, **options):
    made = tuple(getattr(posenc, function)(**given) for function, given in options.get("bias", ()))
    ours = {**options, "bias": made}
    out, lse = posenc.attention(q, k, v, return_lse=True, **ours)
    rest = {"out": out, "lse": lse, "grad_lse": grad_lse}
    return (grad, q, k, v), {**ours, **rest}, {**options, **rest}
