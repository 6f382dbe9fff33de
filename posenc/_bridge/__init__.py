"""Functions of posenc with their gradients in one form, for the modules that carry them to other libraries.

`posenc.autograd`, `posenc.torch` and `posenc.jax` are derived from here, and nothing is registered by hand. A `Call`
flattens the arguments of a call to arrays, integers and numbers, and keeps the rest as a hashable spec:

>>> call = Call({"positions": 3, "layout": "half"})
>>> call.spec, call.integers
(('call', ('positions', 'layout'), (1, 'half')), [3])
>>> call.arguments()
{'positions': 3, 'layout': 'half'}

A call takes one of these routes:

===================  ==================================  ===========================================================
module               call                                route
===================  ==================================  ===========================================================
`posenc.autograd`    every call                          a primitive of autograd, which gets the `Call`
`posenc.jax`         no array is traced                  the function of posenc
`posenc.jax`         `jit`, `grad`, `vmap`               a `jax.custom_vjp`, which gets the `Call` as a constant
`posenc.torch`       no gradient, nothing records        the function of posenc
`posenc.torch`       eager, with a gradient              a `torch.autograd.Function`, which gets the `Call`
`posenc.torch`       compile, export, modes, torch.func  a custom operator, which gets the spec as text
===================  ==================================  ===========================================================

A function that the user passes, as to `distance_function`, is part of the spec. So a tape, a graph or a cache of JAX
keeps the function as long as it keeps the call, and this module keeps nothing. The text of a custom operator has a
number in place of the function; `posenc.torch` maps the number to a weak reference.
"""

from .call import Call, Node, Path, Spec, arguments, make_node, paths, walk
from .function import FUNCTIONS, OPERATORS, Function, Outline, fail_without_gradient, stand_in
from .operator import Arguments, Operator, call_of, make
from .twins import export

__all__ = [
    "Arguments",
    "Call",
    "FUNCTIONS",
    "Function",
    "Node",
    "OPERATORS",
    "Operator",
    "Outline",
    "Path",
    "Spec",
    "arguments",
    "call_of",
    "export",
    "fail_without_gradient",
    "make",
    "make_node",
    "paths",
    "stand_in",
    "walk",
]
