"""Bridges keep no function of the user longer than the call, the tape or the graph that reads the function."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import posenc

Q = np.random.default_rng(0).standard_normal((1, 4, 4))


def alive_after(count: int, call: Callable[[Any, Any], Any], clear: Callable[[], Any] = lambda: None) -> int:
    """The number of functions that are alive after `count` calls with a fresh function and a fresh vjp each."""
    references = []
    for number in range(count):
        function = lambda rel, *width, number=number: -np.abs(np.asarray(rel))[None] - number  # noqa: E731
        vjp = lambda grad, rel, width: (np.zeros_like(width),)  # noqa: E731
        call(function, vjp)
        references += [weakref.ref(function), weakref.ref(vjp)]
    del function, vjp
    clear()
    gc.collect()
    return sum(reference() is not None for reference in references)


def test_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")
    q, width = torch.tensor(Q), torch.ones(2)

    def of_tensors(function: Any) -> Any:
        return lambda rel, *arrays: torch.from_numpy(function(rel)) + sum(array.sum() for array in arrays)

    def call(function: Any, vjp: Any) -> None:
        inner = of_tensors(function)
        pt.attention(q, q, q, bias=pt.distance_function(inner, 1))
        leaf = width.clone().requires_grad_()
        pt.attention(q, q, q, bias=pt.distance_function(function, 1, arrays=[leaf], vjp=vjp)).sum().backward()
        pt.attention(q, q, q, bias=pt.distance_function(inner, 1, arrays=[leaf])).sum().backward()

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def by_dispatcher(function: Any, vjp: Any) -> None:
        leaf = width.clone().requires_grad_()
        with Mode():
            pt.attention(q, q, q, bias=pt.distance_function(function, 1, arrays=[leaf], vjp=vjp)).sum().backward()

    assert alive_after(200, call) == 0
    assert alive_after(20, by_dispatcher) == 0


def test_autograd() -> None:
    autograd = pytest.importorskip("autograd", reason="HIPS autograd is not installed")
    import posenc_bridges.autograd as pa

    def call(function: Any, vjp: Any) -> None:
        pa.attention(Q, Q, Q, bias=pa.distance_function(function, 1))

        def loss(width: Any) -> Any:
            bias = pa.distance_function(function, 1, arrays=(width,), vjp=vjp)
            return autograd.numpy.sum(pa.attention(Q, Q, Q, bias=bias))

        autograd.grad(loss)(np.ones(2))

    assert alive_after(200, call) == 0


def test_jax() -> None:
    """JAX keeps the constants of traced calls in caches, which `jax.clear_caches` empties."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    import posenc_bridges.jax as pj

    q, width = jax.numpy.asarray(Q), jax.numpy.ones(2)

    def call(function: Any, vjp: Any) -> None:
        pj.attention(q, q, q, bias=pj.distance_function(function, 1))

    def gradient(function: Any, vjp: Any) -> None:
        def loss(width: Any) -> Any:
            return pj.attention(q, q, q, bias=pj.distance_function(function, 1, arrays=(width,), vjp=vjp)).sum()

        jax.grad(loss)(width)

    assert alive_after(200, call, jax.clear_caches) == 0
    assert alive_after(20, gradient, jax.clear_caches) == 0


def test_a_graph_without_its_function_fails_by_name() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")
    q = torch.tensor(Q)

    def export() -> Any:
        def function(rel: Any) -> Any:
            return -np.abs(rel)[None]

        class Layer(torch.nn.Module):
            def forward(self, q: Any) -> Any:
                return pt.attention(q, q, q, bias=posenc.distance_function(function, 1))

        exported = torch.export.export(Layer(), (q,)).module()
        assert torch.equal(exported(q), Layer()(q))
        return exported

    exported = export()
    torch._dynamo.reset()
    gc.collect()
    message = "distance_function: function of a graph is gone; expected one that is made outside the compiled function"
    with pytest.raises(ReferenceError, match=message):
        exported(q)

    @torch.compile(fullgraph=True, backend="eager")
    def compiled(q: Any) -> Any:
        return pt.attention(q, q, q, bias=pt.distance_function(lambda rel: -rel.abs()[None], 1))

    with pytest.raises(RuntimeError, match=message):
        compiled(q)
