"""The gradient of any function, by central differences."""

import numpy as np

from ._numbers import wide


def gradient(function, *arguments, grad=None, step=None, **options):
    """Differentiate a function by central differences.

    ``df/dx[i] = (f(x + h e_i) - f(x - h e_i)) / 2 h``, where f is ``sum(grad * function(*arguments, **options))``.

    Parameters
    ----------
    function : callable
        Returns an array, or a tuple of arrays.
    *arguments : any
        Floating-point numbers and arrays are differentiated. Other arguments (integers, text, None) are passed on.
    grad : array or tuple of arrays, optional
        Cotangent of the result, the first argument of the ``_vjp`` functions of posenc; ones by default. Of complex
        results, ``conj(grad) * function(..)`` is summed, and its real part is differentiated.
    step : float, optional
        h. By default ``cbrt(eps) * max(1, |x[i]|)``, where the errors of rounding and of truncation are alike if the
        third derivative is as large as the function.
    **options : any
        Keyword arguments of `function`, not differentiated.

    Returns
    -------
    ndarray, or tuple of (ndarray or None)
        One gradient for each of `arguments`, in its shape, None if it was not differentiated; for one argument the
        gradient itself.

    Notes
    -----
    This function checks the functions f_vjp of posenc: ``rope_vjp(grad, x, positions, w, layout="half")`` is about
    ``gradient(rope, x, positions, w, grad=grad, layout="half")``. To differentiate by a keyword argument, or by the
    parameters of an operator, pass a lambda that takes it as a positional argument. With the default step the error is
    about ``cbrt(eps)**2``, 4e-11 in float64, times the third derivative.

    Examples
    --------
    >>> import numpy as np
    >>> from posenc import reference
    >>> x, p = np.array([1.0, 2.0]), np.array([3.0])
    >>> dx, dp = reference.gradient(reference.combine, x, p, grad=[1.0, 10.0], mode="mul")
    >>> dx.round(9), dp.round(9)
    (array([ 3., 30.]), array([21.]))
    """

    def total(changed):
        results = function(*changed, **options)
        results = results if isinstance(results, tuple) else (results,)
        grads = [1] * len(results) if grad is None else grad if len(results) > 1 else [grad]
        return sum(np.real(np.conj(g) * r).sum() for g, r in zip(grads, results, strict=True))

    found = [_differentiate(total, arguments, number, step) for number in range(len(arguments))]
    return found[0] if len(found) == 1 else tuple(found)


def _differentiate(total, arguments, number, step):
    """Differentiate by one argument, entry after entry."""
    if np.asarray(arguments[number]).dtype.kind != "f":
        return None
    x = wide(arguments[number])
    slope = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        h = np.cbrt(np.finfo(x.dtype).eps) * max(1, abs(x[i])) if step is None else step
        up, down = x.copy(), x.copy()
        up[i], down[i] = x[i] + h, x[i] - h
        above, below = (total((*arguments[:number], moved, *arguments[number + 1 :])) for moved in (up, down))
        slope[i] = (above - below) / (up[i] - down[i])
    return slope
