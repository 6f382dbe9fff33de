"""posenc_bridges.torch: values and gradients of every Case, custom operators, compiled models, errors, processes."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from bridge_cases import KINDS, ROWS, differentiable, floats, of_values, operator_in, rows, through
from cases import BF16, F32, F64, as_tuple, map_arrays
from cases.bias import BiasCase, of_method
from cases.deviation import cotangents

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")


def tensor(array: Any) -> Any:
    """A tensor with the numbers and the dtype of an array, in memory of its own."""
    array = np.array(array, order="C")
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == BF16 else torch.tensor(array)


def array(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy().view(BF16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def leaves(case: Any, arguments: dict[str, Any], dtype: Any = F64) -> tuple[Any, list[Any]]:
    """The case as a function of the tensors that have gradients, and these tensors."""
    values = [tensor(one).requires_grad_() for one in differentiable(case, arguments)]
    return of_values(pt, case, arguments, case.options(np.dtype(dtype))), values


@rows(F32, F64, BF16)
def test_is_our_function_and_vjp(case: Any, dtype: Any) -> None:
    """Results and gradients have the bits and dtypes of posenc."""
    arguments = floats(case, case.arguments(max(5, case.least), dtype))
    grads = tuple(g.astype(dtype) for g in cotangents(case, arguments))
    expected = case.vjp(grads, arguments)
    function, values = leaves(case, arguments, dtype)
    parts = as_tuple(function(*values))
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


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # opcheck of torch 2.14 reads it
@pytest.mark.parametrize("case", ROWS)
def test_opcheck(case: Any) -> None:
    """torch.library.opcheck: the schema, the registrations, fake tensors, and ahead-of-time autograd."""
    function, values = leaves(case, floats(case, case.arguments(max(4, case.least))))
    with Recorder() as recorder:
        parts = as_tuple(function(*values))
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


@pytest.mark.sweep
@pytest.mark.parametrize("case", ROWS)
def test_compiles(case: Any) -> None:
    """torch.compile traces a call of every function into one graph that has its numbers."""
    given, options = map_arrays(tensor, case.arguments(max(4, case.least))), case.options(np.dtype(F64))
    expected = as_tuple(through(pt, case, given, options))
    torch._dynamo.reset()
    found = torch.compile(lambda given: through(pt, case, given, options), fullgraph=True, backend="eager")(given)
    assert all(torch.equal(one, other) for one, other in zip(as_tuple(found), expected, strict=True))


# ---- a model ----


class Layer(torch.nn.Module):
    """Rotary attention with a trainable T5 bias, and a skip connection."""

    def __init__(self, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(16, 48, dtype=dtype), torch.nn.Linear(16, 16, dtype=dtype)
        self.table = torch.nn.Parameter(torch.randn(8, 4, dtype=dtype))
        self.register_buffer("frequencies", torch.tensor(posenc.rope_frequencies(4).inv_freq))

    def forward(self, x: Any) -> Any:
        q, k, v = self.inner(x).unflatten(-1, (3, 4, 4)).movedim(-3, 0).transpose(-2, -3)
        q, k = (pt.rope(one, x.shape[-2], self.frequencies, layout="half") for one in (q, k))
        bias = pt.t5(self.table, max_distance=9, bidirectional=True)
        out = pt.attention(q, k, v, bias=bias, causal=True)
        return x + self.outer(out.transpose(-2, -3).flatten(-2))


def model(dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(Layer(dtype), Layer(dtype))


def train(model: Any, x: Any) -> list[Any]:
    """The output of a model, and the gradients of its parameters."""
    model.zero_grad()
    out = model(x)
    out.square().mean().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # torch itself uses it
def test_inductor() -> None:
    """The default backend fuses sums; no sum has more than 256 terms, and 256 eps = 2**-15."""
    eager, x = model(), torch.randn(2, 9, 16)
    torch._dynamo.reset()
    compiled = torch.compile(eager, fullgraph=True)
    for one, other in zip(train(eager, x), train(compiled, x), strict=True):
        assert (one - other).abs().max() <= 2.0**-15 * one.abs().max()


def test_lengths_are_dynamic() -> None:
    """A second length makes a graph for all further lengths. A compiled model has the bits and gradients of itself."""
    eager = model()
    testing = import_module("torch._dynamo.testing")  # torch does not import it itself
    counter = testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(eager, fullgraph=True, backend=counter)
    for length in (9, 11, 33):
        x = torch.randn(2, length, 16)
        assert all(torch.equal(one, other) for one, other in zip(train(eager, x), train(compiled, x), strict=True))
    assert counter.frame_count == 2


def test_lengths_that_must_grow_together_are_fixed() -> None:
    torch._dynamo.reset()

    def function(x: Any, p: Any) -> Any:
        return pt.combine(x, p, mode="concat"), pt.conv_position_2d(
            x, torch.ones(3, 3, 3), height=2, width=x.shape[0] // 2
        )

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (4, 6):
        x, p = torch.randn(n, 3), torch.randn(n, 5)
        assert all(torch.equal(one, other) for one, other in zip(compiled(x, p), function(x, p), strict=True))


def test_parameters_are_made_inside_a_compiled_function() -> None:
    """Functions that make frequencies and slopes run once, while torch traces; it could not trace their checks."""
    config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "rope_theta": 500.0}

    def function(x: Any) -> Any:
        w = posenc.rope_frequencies(x.shape[-1], rope_type="linear", factor=4.0)
        x = pt.rope(x, x.shape[-2], w, layout="half") + pt.rope(x, x.shape[-2], posenc.rope_from_config(config))
        x = pt.rope(x, x.shape[-2], posenc.sinusoidal_frequencies(x.shape[-1]), layout="interleaved")
        return pt.attention(x, x, x, bias=pt.alibi(posenc.alibi_slopes(2)), causal=True)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for n in (5, 7):
        x = torch.randn(1, 2, n, 8)
        assert torch.equal(compiled(x), function(x))


# ---- arguments ----


def qkv(heads: int = 4, dtype: Any = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, h, 6, 8, generator=generator, dtype=dtype) for h in (heads, 2, 2)]


def test_an_operator_reads_its_parameters_at_each_use() -> None:
    slopes = torch.nn.Parameter(torch.ones(2))
    bias = pt.alibi(slopes)
    assert bias.matrix(2)[0, 0, 1] == -1
    with torch.no_grad():
        slopes += 1
    assert bias.matrix(2)[0, 0, 1] == -2
    assert "alibi" in repr(bias)
    assert torch.equal(pickle.loads(pickle.dumps(bias)).matrix(2), bias.matrix(2))


def test_one_backward_call_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    row = posenc._core.attention_vjp
    monkeypatch.setattr(posenc._core, "attention_vjp", lambda *name, **given: (calls.append(1), row(*name, **given))[1])
    tensors, r1 = [*qkv(), torch.ones(4)], torch.ones(4)
    for one in tensors:
        one.requires_grad_()
    bias = pt.alibi(tensors[3]), pt.kerple_log(r1, np.ones(4))
    pt.attention(*tensors[:3], bias=bias, causal=True).sum().backward()
    assert len(calls) == 1
    assert r1.grad is None
    assert [one.grad.dtype for one in tensors] == [torch.float64] * 3 + [torch.float32]


@pytest.mark.parametrize("bias", [case for case in KINDS.values() if isinstance(case, BiasCase)], ids=lambda c: c.name)
def test_operators_of_posenc_are_taken(bias: Any) -> None:
    """A Bias of NumPy arrays gives the bits of its twin."""
    arguments = bias.arguments(max(5, bias.least))
    call = pt.Operator._matrix if bias.method == "matrix" else pt.Operator._logits
    made = bias.bias(arguments), operator_in(pt, bias, arguments)
    assert torch.equal(*(call(one, **of_method(arguments)) for one in made))


def window(rel: Any, width: Any) -> Any:
    return -((rel / width[:, None]) ** 2)


def test_distance_function_of_tensors() -> None:
    """Without a vjp the function is one of tensors, and autograd differentiates it."""
    q, k, v = qkv()
    width = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)

    def function(width: Any) -> Any:
        return pt.attention(q, k, v, bias=pt.distance_function(window, 4, arrays=[width]), causal=True)

    assert torch.autograd.gradcheck(function, width)
    plain = posenc.distance_function(window, 4, arrays=[width.detach()])
    assert np.array_equal(function(width).detach(), posenc.attention(q, k, v, bias=plain, causal=True))
    unread = pt.distance_function(lambda rel, width: -rel.abs().expand(4, -1), 4, arrays=[width])
    unread.matrix(3).sum().backward()
    assert not width.grad.any()


def test_scale_of_heads() -> None:
    """Swin V2's logit scale: a parameter, here through an exponential, and also a number in a tensor."""
    q, k, v = qkv()
    logs = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)

    def function(logs: Any) -> Any:
        return pt.attention(q, k, v, scale=logs.exp(), causal=True)

    assert torch.autograd.gradcheck(function, logs)
    assert torch.autograd.gradcheck(function, logs[0].detach().requires_grad_())
    scale = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(TypeError, match="attention: scale has a traced value; expected one that is not"):
        pt.attention(q, k, v, scale=scale, bias=pt.shaw(torch.ones(3, 8))).sum().backward()


def test_lse_alone_has_a_gradient() -> None:
    q, k, v = qkv()
    q.requires_grad_()
    _, lse = pt.attention(q, k, v, return_lse=True)
    lse.sum().backward()
    out, plain = posenc.attention(q.detach(), k, v, return_lse=True)
    given = {"out": out, "lse": plain, "grad_lse": np.ones_like(plain)}
    assert np.array_equal(q.grad, posenc.attention_vjp(np.zeros_like(out), q.detach(), k, v, **given).q)


def test_quantized_keys_are_constants() -> None:
    q, k, v = qkv(dtype=torch.float32)
    small = [posenc.quantize(one.numpy()) for one in (k, v)]
    expected = posenc.attention(q.numpy(), *small)
    assert np.array_equal(pt.attention(q, *small), expected)
    with Recorder() as recorder:
        assert np.array_equal(pt.attention(q, *small), expected)
    assert '["Quantized", ["codes", "scale", "axis"], [0, 0, 1]]' in recorder.calls[0][1][0]
    with pytest.raises(TypeError, match="attention_vjp: k has type Quantized"):
        pt.attention(q.requires_grad_(), *small).sum().backward()


def test_frequencies_that_are_trained() -> None:
    """RopeFrequencies of a tensor: eager, under torch.compile, and as a pytree with one leaf."""
    from torch.utils import _pytree as pytree

    x, inv_freq = torch.randn(6, 8), torch.nn.Parameter(torch.tensor([1.0, 0.5, 0.25, 0.125]))
    known = posenc.RopeFrequencies(inv_freq, 1.25, 1.0, "half")
    wanted = posenc.rope_vjp(np.ones((6, 8)), x.numpy(), 6, replace(known, inv_freq=inv_freq.detach().numpy()))
    for rotate in (pt.rope, torch.compile(pt.rope, backend="eager", fullgraph=True)):
        inv_freq.grad = None
        rotate(x, 6, known).sum().backward()
        np.testing.assert_array_equal(inv_freq.grad, wanted.frequencies.astype(np.float32))
        with torch.no_grad():
            assert torch.equal(rotate(x, 6, known), rotate(x, 6, replace(known, inv_freq=inv_freq.detach().clone())))
    leaves, structure = pytree.tree_flatten(known)
    assert [leaf is inv_freq for leaf in leaves] == [True]
    assert repr(pytree.tree_unflatten([inv_freq], structure)) == repr(known)


def test_scalars_in_tensors() -> None:
    x, w = torch.randn(6, 8), posenc.rope_frequencies(8)
    by_number = pt.rope(x, 6, w, layout="half")
    assert torch.equal(pt.rope(x, torch.tensor(6), w, layout="half"), by_number)
    assert torch.equal(pt.rope(x, np.int32(6), w, layout="half"), by_number)
    q, k, v = qkv()
    assert torch.equal(pt.attention(q, k, v, scale=torch.tensor(0.5)), pt.attention(q, k, v, scale=np.float32(0.5)))
    for dtype in (torch.bfloat16, np.float64, np.dtype(np.float32), "float16"):
        found = pt.sinusoidal(5, 4, dtype=dtype)
        assert np.array_equal(found.to(torch.float64), posenc.sinusoidal(5, 4, dtype=array(found).dtype).astype(F64))
    assert pt.alibi(posenc.alibi_slopes(2)).matrix(3).stride() == (9, 3, 1)


def test_meta_tensors() -> None:
    q, k, v = (one.to("meta").requires_grad_() for one in qkv())
    out, lse = pt.attention(q, k, v, bias=pt.alibi(torch.ones(4)), causal=True, return_lse=True)
    assert (out.shape, lse.shape, out.device.type) == ((2, 4, 6, 8), (2, 4, 6), "meta")
    assert torch.autograd.grad(out.sum(), k)[0].shape == k.shape


def test_functions_without_weak_references_are_refused_in_graphs() -> None:
    """A graph keeps the number of a function, and a weak reference finds the function by this number."""

    class Function:
        __slots__ = ()

        def __call__(self, rel: Any) -> Any:
            return -abs(rel)

    q = torch.ones(1, 4, 4)
    bias = pt.distance_function(Function())
    assert pt.attention(q, q, q, bias=bias).shape == q.shape
    with torch._subclasses.fake_tensor.FakeTensorMode():
        for _ in range(2):
            with pytest.raises(TypeError, match="distance_function: function has type Function, to which no weak"):
                pt.attention(torch.ones(1, 4, 4), q, q, bias=bias)


def test_functions_of_tensors_compile_forward() -> None:
    q, width = torch.randn(1, 4, 6, 8, dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)

    def call(q: Any, width: Any) -> Any:
        return pt.attention(q, q, q, bias=pt.distance_function(window, 4, arrays=[width]))

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, width), call(q, width))
    with pytest.raises(NotImplementedError, match="distance_function: vjp is None in"):
        compiled(q, width.requires_grad_()).sum().backward()


@pytest.mark.parametrize("mode", ["eager", "recorded", "aot_eager"])
def test_arrays_may_change_before_the_gradient(mode: str) -> None:
    """Tensors raise if they change between a call and its gradient; arrays are copied, also those of a `Bias`."""
    keep = np.random.default_rng(0).random((6, 6)) < 0.7
    arrays = {"keep": keep, "slopes": np.ones(4), "table": np.zeros((4, 6, 6)), "inv_freq": np.ones(4)}

    def function(q: Any, keep: Any, slopes: Any, table: Any, inv_freq: Any) -> Any:
        k = pt.rope(q, 6, inv_freq, layout="half")
        dense = pt.dense if mode == "aot_eager" else posenc.dense
        return pt.attention(q, k, q, keep=keep, bias=[pt.alibi(slopes), dense(table)])

    torch._dynamo.reset()
    call = torch.compile(function, fullgraph=True, backend=mode) if mode == "aot_eager" else function
    gradients = []
    for changed in ([], *([name] for name in arrays)):
        (q, *_), given = qkv(), {name: array.copy() for name, array in arrays.items()}
        q.requires_grad_()
        with Recorder() if mode == "recorded" else contextlib.nullcontext():
            out = call(q, **given)
        for name in changed:
            given[name][...] = ~given[name] if name == "keep" else given[name] + 2
        out.square().sum().backward()
        gradients.append(q.grad)
    assert all(torch.equal(gradients[0], one) for one in gradients)


@pytest.mark.filterwarnings("ignore:.torch.jit.")
def test_traced_graphs_have_the_call() -> None:
    q, other = torch.randn(1, 4, 6, 8), torch.randn(1, 4, 9, 8)
    slopes = torch.ones(4)

    def function(q: Any) -> Any:
        return pt.attention(q, q, q, bias=pt.alibi(slopes), causal=True)

    traced = torch.jit.trace(function, q)
    assert torch.equal(traced(other), function(other))
    leaves = [other.clone().requires_grad_() for _ in range(2)]
    for leaf, call in zip(leaves, (traced, function), strict=True):
        call(leaf).square().sum().backward()
    assert torch.equal(leaves[0].grad, leaves[1].grad)
    with torch.no_grad():
        assert torch.equal(torch.jit.trace(function, q)(other), function(other))


def test_vmap() -> None:
    """A batch has the bits of its rows, also of their gradients, inside and outside other transformations."""
    vmap, grad, (_, k, v) = torch.func.vmap, torch.func.grad, qkv(heads=2)
    rows, slopes = torch.randn(3, 2, 2, 6, 8, dtype=torch.float64), torch.ones(2, dtype=torch.float64)

    def attend(q: Any) -> Any:
        return pt.attention(q, k, v, bias=pt.alibi(slopes), causal=True)

    def loss(slopes: Any, q: Any) -> Any:
        return pt.attention(q, k, v, bias=pt.alibi(slopes)).square().sum()

    expected = torch.stack([attend(q) for q in rows])
    assert torch.equal(vmap(attend)(rows), expected)
    assert torch.equal(vmap(attend, in_dims=2, out_dims=1)(rows.movedim(0, 2)), expected.movedim(0, 1))
    assert torch.equal(
        vmap(vmap(lambda x: pt.rope(x, 6, torch.ones(4), layout="half")))(rows),
        pt.rope(rows, 6, torch.ones(4), layout="half"),
    )
    samples = torch.stack([grad(loss)(slopes, q) for q in rows])
    assert torch.equal(vmap(grad(loss), in_dims=(None, 0))(slopes, rows), samples)
    of_both = vmap(grad(loss, (0, 1)))(slopes.expand(3, 2), rows)
    assert torch.equal(of_both[0], samples)
    assert of_both[1].shape == rows.shape
    summed = grad(lambda slopes: vmap(lambda q: loss(slopes, q))(rows).sum())(slopes)
    torch.testing.assert_close(summed, samples.sum(0), rtol=1e-13, atol=0)
    leaf = slopes.clone().requires_grad_()
    vmap(lambda q: loss(leaf, q))(rows).sum().backward()
    torch.testing.assert_close(leaf.grad, summed, rtol=1e-13, atol=0)


@pytest.mark.parametrize("case", ROWS)
def test_batches_of_cotangents(case: Any) -> None:
    """Their gradients have the bits of those of one cotangent after the other."""
    arguments = floats(case, case.arguments(max(5, case.least), F32))
    function, values = leaves(case, arguments, F32)
    parts = as_tuple(function(*values))
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(3, *part.shape, generator=generator, dtype=part.dtype) for part in parts]
    found = torch.autograd.grad(parts, values, grads, is_grads_batched=True, retain_graph=True)
    for row in range(3):
        expected = torch.autograd.grad(parts, values, [grad[row] for grad in grads], retain_graph=True)
        assert all(torch.equal(batch[row], one) for batch, one in zip(found, expected, strict=True))


@pytest.mark.parametrize("create_graph", [False, True])
def test_jacobians_that_torch_vectorizes(create_graph: bool) -> None:
    """The lse alone has a batch of cotangents, or both results have one."""
    q, k, v = qkv(heads=2)
    slopes = torch.ones(2, dtype=torch.float64)

    def attend(slopes: Any) -> Any:
        return pt.attention(q, k, v, bias=pt.alibi(slopes), return_lse=True)

    for function in (attend, lambda slopes: attend(slopes)[1], lambda slopes: attend(slopes)[0].sum()):
        jacobian = partial(torch.autograd.functional.jacobian, function, slopes, create_graph)
        assert all(map(torch.equal, as_tuple(jacobian(vectorize=True)), as_tuple(jacobian())))
    assert torch.autograd.gradcheck(attend, slopes.requires_grad_(), check_batched_grad=True)


def elsewhere() -> Any:
    """A tensor that claims to be on a GPU; there need not be one."""
    with torch._subclasses.fake_tensor.FakeTensorMode():
        return torch.empty(2, 4, 6, 8, device="cuda")


def eight(tensor: Any) -> Any:
    return tensor.to(torch.float8_e4m3fn)


PROXY = "^posenc_bridges.torch: an argument has type Proxy of torch.fx; expected a tensor, as torch.export passes it"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, x: pt.attention(elsewhere(), q, q), "attention: q has device cuda:0; expected a tensor on the CPU"),
        (
            lambda q, x: pt.combine(q.to_sparse(), q),
            r"combine: x has layout torch.sparse_coo; expected layout torch.stri",
        ),
        (
            lambda q, x: pt.combine(torch.nested.nested_tensor([q, q]), q),
            "combine: x is a nested tensor; expected layout ",
        ),
        (lambda q, x: pt.combine(object(), q), "combine: x has dtype object; expected float16"),
        (lambda q, x: pt.combine(object(), q * x), "combine: x has type object; expected a tensor"),
        (lambda q, x: pt.combine(q > 0, q), "combine: x has dtype bool"),
        (lambda q, x: pt.attention(q, q, q, softcap=x), "attention: softcap has a tensor that requires a gradient"),
        (lambda q, x: pt.attention(q, q, q, q_positions=x.expand(6)), "attention: q_positions has a tensor that requ"),
        (lambda q, x: pt.alibi(torch.ones(4)).matrix(2, q_positions=x.expand(2)), "matrix: q_positions has a tensor"),
        (lambda q, x: pt.t5(torch.ones(32, 4), max_distance=x, bidirectional=True).matrix(3), "t5: max_distance has"),
        (lambda q, x: pt.attention(eight(q), q, q), "attention: q has dtype torch.float8_e4m3fn; expected float16, bf"),
        (lambda q, x: pt.attention(q, q, q * x, keep=eight(q)), "attention: keep has dtype torch.float8_e4m3fn"),
        (lambda q, x: pt.alibi(eight(q)).matrix(3), "matrix: self has dtype torch.float8_e4m3fn"),
        (lambda q, x: posenc.attention(q, eight(q), q), "attention: k has type Tensor; expected an array .*Float8"),
        (lambda q, x: pt.attention(q, q, q, softcap=x.detach().expand(2)), "softcap has type Tensor; expected a nu"),
        (lambda q, x: pt.attention(q * x, q, q, causal=q), "attention: causal has type Tensor; expected True or False"),
        (lambda q, x: pt.rope(q, 6, posenc.rope_frequencies(8), layout="half", seq_axis=q), "seq_axis has type Tensor"),
        (lambda q, x: pt.attention(q, q, q, is_causal=True), "is_causal is unknown; expected causal"),
        (lambda q, x: pt.attention(q, q, q, out=q), "attention: out is unknown"),
        (lambda q, x: pt.alibi(q, slope=1), "alibi: slope is unknown; expected slopes"),
        (lambda q, x: pt.alibi(q, slopes=1), "alibi: multiple values for argument 'slopes'"),
        (lambda q, x: pt.alibi(), "alibi: missing a required argument: 'slopes'"),
        (lambda q, x: pt.combine(q, q, q), "combine: takes 2 positional arguments but 3 were given"),
        (lambda q, x: pt.alibi(torch.ones(4)) + 1, "unsupported operand"),
        (lambda q, x: pt.attention(q, q, q, bias=pt.alibi(torch.ones(3))), r"attention: bias has 3 heads \(alibi\); "),
        (lambda q, x: pt.alibi(torch.ones(4)).logits(q, q), "'PositionBias' object has no attribute 'logits'"),
        (
            lambda q, x: torch.fx.symbolic_trace(lambda x: posenc.combine(x, x)),
            "combine: x has type Proxy; expected a",
        ),
        (lambda q, x: torch.fx.symbolic_trace(lambda x: pt.combine(q, x)), PROXY),
        (lambda q, x: torch.fx.symbolic_trace(lambda x: pt.attention(q, q, q, bias=pt.alibi(x))), PROXY),
        (lambda q, x: torch.fx.symbolic_trace(lambda x: pt.attention(q, q, q, scale=x)), PROXY),
        (lambda q, x: pt.rope(q, 2**70, torch.ones(4), layout="half"), "rope: positions is 1180591620717411303424; e"),
    ],
)
def test_refused(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError), match=message):
        call(qkv()[0], torch.tensor(2.0, requires_grad=True))


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # torch.func.jvp uses it
def test_second_derivatives_and_forward_mode_are_refused() -> None:
    q, k, v = qkv()
    slopes = torch.ones(4, requires_grad=True)

    def loss(slopes: Any) -> Any:
        return pt.attention(q, k, v, bias=pt.alibi(slopes)).square().sum()

    (first,) = torch.autograd.grad(loss(slopes), slopes, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention: its gradient is differentiated; expected first deriv"):
        first.sum().backward()
    with pytest.raises(NotImplementedError, match="attention: its gradient is differentiated"):
        torch.func.grad(lambda s: torch.func.grad(loss)(s).sum())(slopes.detach())
    with pytest.raises(NotImplementedError, match="attention: a tensor has a tangent of forward mode; expected"):
        torch.func.jvp(loss, (slopes.detach(),), (slopes.detach(),))
    with pytest.raises(NotImplementedError, match="attention: its gradient is differentiated"):
        torch.autograd.functional.hessian(loss, slopes.detach(), vectorize=True)


@pytest.mark.parametrize("has_gradient", [False, True])
def test_profiles_name_the_functions(has_gradient: bool) -> None:
    q, k, v = (one.requires_grad_(has_gradient) for one in qkv())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        out = pt.attention(q, k, v, bias=pt.alibi(torch.ones(4)))
        if has_gradient:
            out.sum().backward()
    names = [event.key for event in profile.key_averages()]
    assert "posenc::attention" in names
    assert ("posenc::attention_vjp" in names) == has_gradient


# ---- functions of posenc itself ----


def test_functions_of_posenc_refuse_to_lose_a_gradient() -> None:
    table = torch.nn.Parameter(torch.ones(32, 4))
    with pytest.raises(
        TypeError, match=r"t5: table has a tensor that requires a gradient; expected posenc_bridges.torch"
    ):
        posenc.t5(table, bidirectional=True)
    with pytest.raises(TypeError, match="attention: scale has a tensor that requires a gradient"):
        posenc.attention(*qkv(), scale=torch.tensor(1.0, requires_grad=True))
    with torch.no_grad():
        assert posenc.t5(table, bidirectional=True).arrays.table.shape == (32, 4)
    with pytest.raises(TypeError, match="combine: x has a tensor on device meta; expected one on the CPU"):
        posenc.combine(torch.ones(2, device="meta"), np.ones(2))


# ---- processes ----


PREPARED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"causal": True, "align": "end", "scale": 0.3, "bias": None},
    "window": {"window": (2, 0), "align": "end", "softcap": 3.0},
    "keep": {"keep": torch.arange(9) > 2},
    "operator": {"bias": [pt.alibi(torch.ones(4))], "align": "end"},
    "Bias": {"bias": posenc.dense(np.arange(9.0)[None, None].repeat(4, 0))},
    "lse": {"return_lse": True},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PREPARED)
def test_prepared_attention(name: str, dtype: Any) -> None:
    """A prepared call returns what `attention` returns, with a gradient, without one, and in a graph."""
    options = PREPARED[name]
    attend = pt.prepare(**options)
    q, k, v = (torch.randn(2, 4, n, 8, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (1, 9, 9))
    torch.testing.assert_close(attend(q, k, v), pt.attention(q, k, v, **options), rtol=0, atol=0)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *given: attend(*given), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(q, k, v), pt.attention(q, k, v, **options), rtol=0, atol=0)
    gradients = []
    for function in (attend, lambda *given: pt.attention(*given, **options)):
        leaves = [one.clone().requires_grad_() for one in (q, k, v)]
        out = function(*leaves)
        (out[0] if name == "lse" else out).square().sum().backward()
        gradients.append([one.grad for one in leaves])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_a_prepared_call_reads_its_tensors_anew() -> None:
    slopes, (q, k, v) = torch.ones(4), torch.randn(3, 4, 9, 8, generator=torch.Generator().manual_seed(0))
    attend = pt.prepare(bias=pt.alibi(slopes))
    before = attend(q, k, v)
    slopes.zero_()
    assert torch.equal(attend(q, k, v), pt.attention(q, k, v))
    assert not torch.equal(before, attend(q, k, v))


def test_a_prepared_call_refuses_what_attention_refuses() -> None:
    attend, q = pt.prepare(causal=True), torch.ones(4, 9, 8)
    for k, error, message in (
        (q[:, :, :7], ValueError, "attention: k has 7 channels; expected 8"),
        (q[:, :7], ValueError, "attention: align is None; expected"),
        (q.to_sparse(), TypeError, "attention: k has layout torch.sparse_coo; expected layout"),
        (3, ValueError, "attention: k has 0 axes"),
    ):
        with pytest.raises(error, match=message):
            attend(q, k, k)
    with pytest.raises(TypeError, match="attention: is_causal is unknown; expected causal"):
        pt.prepare(is_causal=True)
