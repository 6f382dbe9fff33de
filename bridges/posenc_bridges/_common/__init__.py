"""Functions of posenc with their gradients in one form, for the modules that carry them to other libraries.

`posenc_bridges.autograd`, `posenc_bridges.torch` and `posenc_bridges.jax` are derived from here, and nothing is
registered by hand. A `Call` flattens the arguments of a call to arrays, integers and numbers, and keeps the rest as a
hashable spec:

>>> call = Call({"positions": 3, "layout": "half"})
>>> call.spec, call.integers
(('call', ('positions', 'layout'), (1, 'half')), [3])
>>> call.arguments()
{'positions': 3, 'layout': 'half'}

A call takes one of these routes:

=========================  ==================================  =========================================================
module                     call                                route
=========================  ==================================  =========================================================
`posenc_bridges.autograd`  every call                          a primitive of autograd, which gets the `Call`
`posenc_bridges.jax`       no array is traced                  the function of posenc
`posenc_bridges.jax`       `jit`, `grad`, `vmap`               a `jax.custom_vjp`, which gets the `Call` as a constant
`posenc_bridges.torch`     nothing records                     the function of posenc, if there is a gradient inside a
                                                               `torch.autograd.Function`, which gets the spec
`posenc_bridges.torch`     compile, export, trace, modes       a custom operator, which gets the spec as text
=========================  ==================================  =========================================================

A function that the user passes, as to `distance_function`, is part of the spec. So a tape, a graph or a cache of JAX
keeps the function as long as it keeps the call, and this module keeps nothing. The text of a custom operator has a
number in place of the function; `posenc_bridges.torch` maps the number to a weak reference.
"""

from posenc.interop import OPERATORS, Arguments, Array, Outline, cast_result

from .call import NESTED, Call, Node, Path, arguments, make_node, paths, walk
from .function import FUNCTIONS, Function, fail_without_gradient, stand_in
from .operator import Operator, call_of, make
from .twins import export

__all__ = [
    "FUNCTIONS", "NESTED", "OPERATORS", "Arguments", "Array", "Call", "Function", "Node", "Operator", "Outline", "Path",
    "arguments", "call_of", "cast_result", "export", "fail_without_gradient", "make", "make_node", "paths", "stand_in",
    "walk",
]  # fmt: skip
