"""Absolute encodings: a vector for each position."""

import numpy as np

from ._numbers import cos, exp, places, precise, sin, tanh, wide

__all__ = [
    "combine", "complex_order", "conv_position", "conv_position_2d", "digits", "floater", "from_digits", "hierarchical",
    "integrate", "interpolate_table", "learned", "positions_from_mask", "recurrent", "shift", "shift_matrix",
    "sinusoidal", "sinusoidal_frequencies",
]  # fmt: skip


def sinusoidal_frequencies(dim, *, base=10000.0, schedule="geometric", alpha=1.0, denominator="dim"):
    """Compute the frequencies of a sinusoidal encoding.

    ``w_i = base**-t`` with ``t = 2 i / dim``. The schedule "power" is ``t**alpha``.

    Vaswani et al. 2017, section 3.5. The denominator "half-1" of tensor2tensor is ``t = i / (dim // 2 - 1)``.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.sinusoidal_frequencies(8)
    array([1.   , 0.1  , 0.01 , 0.001])
    """
    number = 0 * wide(base)  # t is computed in the precision of the base
    if denominator == "dim":
        t = (2 * np.arange((dim + 1) // 2) + number) / dim
    else:
        t = (np.arange(dim // 2) + number) / max(dim // 2 - 1, 1)
    return t**alpha if schedule == "power" else base**-t


geometric = sinusoidal_frequencies
"""The function above, where an argument has its name."""


def _columns(dim, count, layout, order):
    """Columns of the sines and of the cosines. An odd width lacks the last column of the second kind."""
    i = np.arange(count)
    first, second = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, count + i)
    sine, cosine = (first, second) if order == "sincos" else (second, first)
    return sine[sine < dim], cosine[cosine < dim]


def sinusoidal(
    positions,
    dim=None,
    *,
    base=10000.0,
    frequencies=None,
    layout="interleaved",
    order="sincos",
    denominator="dim",
    scale=1.0,
    start=0,
):
    """Encode positions by sines and cosines.

    ``PE[p, 2i] = sin(p w_i)``, ``PE[p, 2i + 1] = cos(p w_i)``.

    Vaswani et al. 2017, section 3.5. The layout "half" has all sines before all cosines.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.sinusoidal(2, 4).round(3)
    array([[0.   , 1.   , 0.   , 1.   ],
           [0.841, 0.54 , 0.01 , 1.   ]])
    """
    w = geometric(dim, base=base, denominator=denominator) if frequencies is None else wide(frequencies)
    angle = places(positions, start)[..., None] * w
    sine, cosine = _columns(dim or 2 * len(w), len(w), layout, order)
    table = np.zeros((*angle.shape[:-1], dim or 2 * len(w)), angle.dtype)
    table[..., sine] = scale * sin(angle[..., : len(sine)])
    table[..., cosine] = scale * cos(angle[..., : len(cosine)])
    return table


def shift(encoding, offset, *, base=10000.0, frequencies=None, layout="interleaved", order="sincos", denominator="dim"):
    """Move a sinusoidal encoding to another position.

    ``sin(a + b) = sin a cos b + cos a sin b``, ``cos(a + b) = cos a cos b - sin a sin b`` with ``b = offset w_i``.

    Vaswani et al. 2017, section 3.5: the encoding of p + k is a linear function of the encoding of p.
    """
    encoding, dim = wide(encoding), np.shape(encoding)[-1]
    w = geometric(dim, base=base, denominator=denominator) if frequencies is None else wide(frequencies)
    b = wide(offset)[..., None] * w
    at_sine, at_cosine = _columns(dim, len(w), layout, order)
    sine, cosine = encoding[..., at_sine], encoding[..., at_cosine]
    moved = np.zeros(encoding.shape, np.result_type(encoding, b))
    moved[..., at_sine] = sine * cos(b) + cosine * sin(b)
    moved[..., at_cosine] = cosine * cos(b) - sine * sin(b)
    return moved


def shift_matrix(
    offset, dim, *, base=10000.0, frequencies=None, layout="interleaved", order="sincos", denominator="dim"
):
    """Compute the matrix that moves a sinusoidal encoding.

    ``p[pos + offset] = matrix @ p[pos]``; its columns are the moved unit vectors.
    """
    options = {"base": base, "frequencies": frequencies, "layout": layout, "order": order, "denominator": denominator}
    return shift(np.eye(dim), offset, **options).T


def learned(table, positions, *, start=0):
    """Look up the rows of a table of learned positions.

    ``p_m = table[m]``. Gehring et al. 2017, section 3.1.
    """
    return wide(table)[places(positions, start).astype(int)]


def hierarchical(table, positions, *, alpha=0.4, start=0):
    """Extend a table of n learned positions to n**2 positions.

    ``q[i n + j] = alpha u_i + (1 - alpha) u_j`` with ``u_i = (p_i - alpha p_0) / (1 - alpha)``. Su 2020
    (kexue.fm/archives/7947).
    """
    p = wide(table)
    u = (p - alpha * p[:1]) / (1 - alpha)
    i, j = np.divmod(places(positions, start).astype(int), max(len(p), 1))
    return alpha * u[i] + (1 - alpha) * u[j]


def interpolate_table(table, n, *, grid=None, method="linear", corners=None, antialias=False, prefix=0):
    """Resample a table along one axis, or over a grid (H, W, d) or (prefix + H W, d), as PyTorch's `interpolate`.

    Each axis is a product with a matrix of weights: the filter at the distances between the rows of the table and the
    places of the result, ``i (r - 1) / (n - 1)`` or ``(i + 1/2) r / n - 1/2``. Keys 1981 has the cubic filter.
    """
    table, is_line = wide(table), np.ndim(n) == 0
    corners = is_line and method == "linear" and not antialias if corners is None else corners
    size = (n,) if is_line else tuple(n)
    kept, rows = table[:prefix], table[prefix:]
    shape = (len(rows),) if is_line else table.shape[:2] if grid is None else tuple(grid)
    result = rows.reshape(*shape, table.shape[-1])
    for axis, (r, length) in enumerate(zip(shape, size, strict=True)):
        weights = resampling_weights(r, length, method, corners, antialias, precise(1, table))
        result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result if table.ndim == 3 else np.concatenate([kept, result.reshape(-1, table.shape[-1])])


def resampling_weights(r, n, method, corners, antialias, one):
    """Return the weights (n, r) of the rows of a table for each of n places."""
    i, t = np.arange(n)[:, None], np.arange(-2, r + 2)
    step, per = (r, max(n, 1)) if not corners else (r - 1, n - 1) if n > 1 else (0, 1)
    place, steps = (i * step, per) if corners and not antialias else ((2 * i + 1) * step - per, 2 * per)
    if antialias:
        distance = (t[2:-2] * steps - place) * one / (steps * max(step * one / per, one))
        weights = resampling_filter(distance, method, -one / 2)
        return weights / weights.sum(axis=1, keepdims=True)
    place = np.maximum(place, 0) if method == "linear" else place
    all_weights = resampling_filter((t * steps - place) * one / steps, method, -3 * one / 4)
    weights = all_weights[:, 2:-2]  # the first and the last row are repeated beyond the borders
    if r:
        weights[:, 0] += all_weights[:, :2].sum(axis=1)
        weights[:, -1] += all_weights[:, -2:].sum(axis=1)
    return weights


def resampling_filter(x, method, a):
    """Return the weight of a row at the distance x: a triangle, or the cubic convolution of Keys 1981."""
    x = abs(x)
    if method == "linear":
        return np.maximum(1 - x, 0)
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0 * x))


def combine(x, p, *, mode="add"):
    """Merge an encoding with the data.

    ``x + p``; "mul" is ``x p``, "mul1p" is ``x (1 + p)``, "concat" is ``[x, p]``, "replace" is p.

    Vaswani et al. 2017, section 3.4, add; the other modes are those of bert4keras.
    """
    x, p = wide(x), wide(p)
    if mode == "concat":
        return np.concatenate([x, np.broadcast_to(p, (*x.shape[:-1], p.shape[-1]))], -1)
    if mode == "replace":
        return np.broadcast_to(p, x.shape)
    return {"add": x + p, "mul": x * p, "mul1p": x * (1 + p)}[mode]


def complex_order(amplitude, frequency, positions, *, phase=None, start=0):
    """Encode words by complex numbers that rotate with the position.

    ``r exp(i (w p + phase))``. Wang et al. 2020, equation 11.
    """
    angle = wide(frequency) * places(positions, start)[..., None] + (0 if phase is None else wide(phase))
    return wide(amplitude) * cos(angle) + 1j * (wide(amplitude) * sin(angle))


def _tanh_step(p, weight, bias, driven):
    """``tanh(W p + b + V x)``, where V x is `driven`."""
    return tanh(p @ weight.T + bias + driven)


def _gru_step(p, weight, bias, driven):
    """Cho et al. 2014, equations 5 to 8, with the reset gate after the product, as cuDNN has it."""
    r_input, z_input, n_input = np.split(bias[0] + driven, 3, axis=-1)
    r_state, z_state, n_state = np.split(p @ weight.T + bias[1], 3, axis=-1)
    r = 1 / (1 + exp(-(r_input + r_state)))
    z = 1 / (1 + exp(-(z_input + z_state)))
    return (1 - z) * tanh(n_input + r * n_state) + z * p


def recurrent(p0, weight, bias, n, *, inputs=None, input_weight=None, cell="tanh", include_p0=True):
    """Encode positions by the states of a recurrent network.

    ``p_{k+1} = f(p_k, x_k)``, where f is ``tanh(W p + b + V x)`` or a GRU. Su 2021 (kexue.fm/archives/8130).
    """
    p, weight, bias = wide(p0), wide(weight), wide(bias)
    driven = np.zeros((n, len(weight))) if inputs is None else wide(inputs) @ wide(input_weight).T
    batch = np.broadcast_shapes(p.shape[:-1], driven.shape[:-2])
    p, rows = np.broadcast_to(p, (*batch, p.shape[-1])), []
    step = {"tanh": _tanh_step, "gru": _gru_step}[cell]
    for k in range(n):
        if k > 0 or not include_p0:
            p = step(p, weight, bias, driven[..., k - include_p0, :])
        rows.append(p)
    return np.stack(rows, -2) if rows else np.zeros((*batch, 0, p.shape[-1]))


TABLEAUS = {
    "rk4_38": ([0, 1, 2, 3], [[], [1], [-1, 3], [3, -3, 3]], 3, [1, 3, 3, 1], 8),
    "rk4": ([0, 1, 1, 2], [[], [1], [0, 1], [0, 0, 2]], 2, [1, 2, 2, 1], 6),
    "midpoint": ([0, 1], [[], [1]], 2, [0, 1], 1),
    "euler": ([0], [[]], 1, [1], 1),
}
"""Coefficients of the Runge-Kutta methods of `integrate`: c and a over a denominator, b over another."""


def _solver_step(h, t, p, d, method):
    """``k_i = h(t + c_i d, p + d sum_j a_ij k_j)``, ``p(t + d) = p + d sum_i b_i k_i``; 0 times infinity is 0."""
    c, a, stages, b, weights = TABLEAUS[method]
    slopes = []
    for c_i, a_i in zip(c, a, strict=True):
        moved = p + d * sum(x * k for x, k in zip(a_i, slopes, strict=True) if x) / stages
        slopes.append(h(t + c_i * d / stages, moved))
    return p + d * sum(x * k for x, k in zip(b, slopes, strict=True) if x) / weights


def integrate(h, p0, times, *, substeps=5, method="rk4_38"):
    """Solve a differential equation in fixed steps.

    ``dp/dt = h(t, p)``; row k is ``p(times[k])``, and p0 is at times[0]. Liu et al. 2020 (FLOATER), equation 3.
    """
    times = np.arange(times) if np.ndim(times) == 0 else np.asarray(times)
    p, rows = wide(p0), []
    for k, t in enumerate(times):
        if k > 0:
            d = (t - times[k - 1]) / substeps
            for j in range(substeps):
                p = _solver_step(h, times[k - 1] + j * d, p, d, method)
        rows.append(p)
    return np.stack(rows, -2) if rows else np.zeros((*p.shape[:-1], 0, p.shape[-1]))


def floater(p0, w1, b1, w2, b2, n, *, dt=0.01, substeps=5, method="rk4_38"):
    """Encode positions by a flow whose field is a small network.

    ``dp/dt = W2 [relu(W1 [p; t] + b1); t] + b2`` at the times ``0, dt, 2 dt, ..``. Liu et al. 2020 and their code.
    """
    w1, b1, w2, b2 = wide(w1), wide(b1), wide(w2), wide(b2)

    def beside(x, t):
        return np.concatenate([x, np.full((*x.shape[:-1], 1), t)], axis=-1)

    def field(t, p):
        return beside(np.maximum(beside(p, t) @ w1.T + b1, 0), t) @ w2.T + b2

    return integrate(field, p0, dt * np.arange(n), substeps=substeps, method=method)


def digits(numbers, *, base=10, width):
    """Write numbers by their digits.

    Digit k from the left is ``floor(number / base**(width - 1 - k)) mod base``; the last digit keeps the fraction.

    Su 2023 (kexue.fm/archives/9675). Python's integers are exact beyond 2**53.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.digits(874.5, width=3)
    array([8. , 7. , 4.5])
    """
    numbers = np.asarray(numbers).astype(object)[..., None]
    powers = np.array([base**k for k in reversed(range(width))], object)
    found = numbers // powers % base
    found[..., -1:] += numbers % 1
    return found.astype(np.float64)


def from_digits(digits, *, base=10):
    """Compute the numbers that digits write.

    ``sum_k digit_k base**(width - 1 - k)``.
    """
    digits = wide(digits)
    powers = np.array([float(base**k) for k in reversed(range(digits.shape[-1]))])
    return (digits * powers).sum(-1)


def positions_from_mask(keep, *, start=0):
    """Compute the positions of the words between padding.

    ``start + max(cumsum(keep) - 1, 0)``, as fairseq's make_positions and the position_ids of transformers.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.positions_from_mask([False, False, True, True, True])
    array([0, 0, 0, 1, 2])
    """
    return start + np.maximum(np.cumsum(keep, -1) - 1, 0)


def _read(x, axis, offset, padding):
    """x[n + offset] along an axis; beyond the ends 0, the row from the other end, or the last row."""
    n = x.shape[axis]
    where = np.arange(n) + offset
    if padding == "circular":
        return np.take(x, where % max(n, 1), axis)
    inside = ((where >= 0) & (where < n)).reshape(-1, *[1] * (-axis - 1))
    nearest = np.take(x, np.clip(where, 0, max(n - 1, 0)), axis)
    return np.where(inside, nearest, 0.0) if padding == "zero" else nearest


def conv_position(x, kernel, bias=None, *, padding="zero", left=None, residual=False):
    """Encode positions by a depthwise convolution over the sequence.

    ``y[n, c] = bias[c] + sum_t kernel[c, t] x[n + t - left, c]``, where x is padded. Islam et al. 2020.
    """
    x, kernel = wide(x), wide(kernel)
    left = (kernel.shape[1] - 1) // 2 if left is None else left
    y = np.zeros_like(x) + (0 if bias is None else wide(bias))
    for t in range(kernel.shape[1]):
        y = y + kernel[:, t] * _read(x, -2, t - left, padding)
    return y + x if residual else y


def conv_position_2d(x, kernel, bias=None, *, height, width, prefix=0, padding="zero", residual=False):
    """Encode positions by a depthwise convolution over a grid of patches.

    ``y = conv(x)`` on the grid, with `residual` ``conv(x) + x``; the tokens of the prefix are copied. Chu et al. 2021,
    section 3.2, adds x.
    """
    x, kernel = wide(x), wide(kernel)
    grid = x[..., prefix:, :].reshape(*x.shape[:-2], height, width, x.shape[-1])
    rows, columns = kernel.shape[1:]
    y = np.zeros_like(grid) + (0 if bias is None else wide(bias))
    for a, b in np.ndindex(rows, columns):
        line = _read(grid, -3, a - (rows - 1) // 2, padding)
        y = y + kernel[:, a, b] * _read(line, -2, b - (columns - 1) // 2, padding)
    y = y + grid if residual else y
    return np.concatenate([x[..., :prefix, :], y.reshape(x[..., prefix:, :].shape)], -2)
