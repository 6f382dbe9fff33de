"""posenc.torch: values and gradients of every Case, custom operators, compiled models, workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import BF16, CASES, F32, F64, get_path, set_path
from cases.attention import AttentionCase
from cases.bias import OF_METHOD, BiasCase, is_operator
from cases.deviation import cotangents

torch = pytest.importorskip("torch", reason="torch is not installed")
pt = pytest.importorskip("posenc.torch", reason="ml_dtypes is not installed")

ROWS = [pytest.param(case, id=case.name) for case in CASES if case.gradients]


def tensor(array: Any) -> Any:
    """A tensor with the numbers and the dtype of an array, in memory of its own."""
    array = np.array(array, order="C")
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == BF16 else torch.tensor(array)


def array(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy().view(BF16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def operator(described: Any) -> Any:
    """The operator of (function, its arguments)."""
    function, operands = described
    return getattr(pt, function)(**{k: operator(v) if is_operator(v) else v for k, v in operands.items()})


def through(case: Any, arguments: dict[str, Any], dtype: Any = F64) -> Any:
    """Call the function of a case in posenc.torch."""
    if isinstance(case, AttentionCase):
        return pt.attention(**{**arguments, "bias": tuple(map(operator, arguments.get("bias", ())))})
    options = case.options(np.dtype(dtype))
    if not isinstance(case, BiasCase):
        return getattr(pt, case.function)(**arguments, **options)
    inner = operator((case.function, {k: v for k, v in arguments.items() if k not in OF_METHOD}))
    return getattr(inner, case.method)(**{k: v for k, v in arguments.items() if k in OF_METHOD}, **options)


def of_values(case: Any, arguments: dict[str, Any], dtype: Any = F64) -> tuple[Any, list[Any]]:
    """The case as a function of the tensors that have gradients, and these tensors. Integers become floats."""
    paths = list(case.gradients.values())

    def function(*values: Any) -> Any:
        given = arguments
        for path, value in zip(paths, values, strict=True):
            given = set_path(given, path, value)
        return through(case, given, dtype)

    values = [np.asarray(get_path(arguments, path)) for path in paths]
    return function, [tensor(v.astype(F64) if v.dtype.kind == "i" else v).requires_grad_() for v in values]


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
@pytest.mark.parametrize("case", ROWS)
def test_is_our_function_and_vjp(case: Any, dtype: Any) -> None:
    """Results and gradients have the bits and dtypes of posenc."""
    arguments = case.arguments(max(5, case.least), dtype)
    for path in case.gradients.values():
        value = np.asarray(get_path(arguments, path))
        if value.dtype.kind == "i":
            arguments = set_path(arguments, path, value.astype(F64))
    grads = tuple(g.astype(dtype) for g in cotangents(case, arguments))
    expected = case.vjp(grads, arguments)
    function, values = of_values(case, arguments, dtype)
    result = function(*values)
    parts = result if isinstance(result, tuple) else (result,)
    for part, plain in zip(parts, case.call(arguments, **case.options(dtype)), strict=True):
        found = torch.view_as_real(part) if part.is_complex() else part
        assert found.detach().is_contiguous()
        assert array(found).dtype == plain.dtype
        assert np.array_equal(array(found), plain, equal_nan=True)
    wide = [tensor(g.astype(F64)) for g in grads]
    cotangent = [
        (torch.view_as_complex(g) if part.is_complex() else g).to(part.dtype)
        for g, part in zip(wide, parts, strict=True)
    ]
    for name, value, found in zip(case.gradients, values, torch.autograd.grad(parts, values, cotangent), strict=True):
        assert found.dtype == value.dtype
        assert np.array_equal(array(found), expected[name].astype(array(value).dtype)), name


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """A block that records the calls of custom operators of posenc."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "posenc":
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", ROWS)
def test_opcheck(case: Any) -> None:
    """torch.library.opcheck: the schema, the registrations, fake tensors, and ahead-of-time autograd."""
    function, values = of_values(case, case.arguments(max(4, case.least)))
    with Recorder() as recorder:
        parts = function(*values)
        parts = parts if isinstance(parts, tuple) else (parts,)
        torch.autograd.grad(parts, values, [torch.ones_like(part) for part in parts])
    assert len(recorder.calls) == 2
    for func, args in recorder.calls:
        copies = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), args)
        if not func._opname.endswith("_vjp"):
            for copy, one in zip(copies[1], args[1], strict=True):
                copy.requires_grad_(one.requires_grad)
        done = torch.library.opcheck(func, copies)
        assert set(done.values()) == {"SUCCESS"}
        assert len(done) == 4


@pytest.mark.parametrize("case", ROWS)
def test_gradcheck(case: Any) -> None:
    function, values = of_values(case, case.arguments(max(3, case.least)))
    assert torch.autograd.gradcheck(lambda *values: finite(function(*values)), values)


def finite(result: Any) -> Any:
    """The results without -inf, the lse of queries without a visible key, which has no central differences."""
    if not isinstance(result, tuple):
        return result
    out, lse = result
    return out, torch.where(torch.isfinite(lse), lse, 0.0)
