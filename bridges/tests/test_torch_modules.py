"""Modules of posenc_bridges.torch: their numbers, state dicts, and all that replaces or moves parameters."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")

HEADS, N, D = 4, 6, 8


class Row(NamedTuple):
    make: Callable[[], Any]
    shapes: dict[str, tuple[int, ...]]
    """The state dict."""


BIASES = {
    "ALiBi": Row(lambda: pt.ALiBi(HEADS), {}),
    "ALiBi, trained": Row(lambda: pt.ALiBi(HEADS, trainable=True), {"slopes": (4,)}),
    "T5": Row(lambda: pt.T5(HEADS, 8, 9), {"weight": (8, 4)}),
    "Swin": Row(lambda: pt.Swin((2, 3), HEADS), {"relative_position_bias_table": (15, 4)}),
    "BEiT": Row(lambda: pt.BEiT((1, 5), HEADS), {"relative_position_bias_table": (12, 4)}),
    "KerpleLog": Row(lambda: pt.KerpleLog(HEADS), {"bias_p": (4, 1, 1), "bias_a": (4, 1, 1)}),
    "KerplePower": Row(lambda: pt.KerplePower(HEADS), {"bias_a": (4, 1, 1), "bias_p": (4, 1, 1)}),
    "Tisa": Row(lambda: pt.Tisa(HEADS, 3), {"a": (4, 3), "b": (4, 3), "c": (4, 3)}),
    "Fire": Row(lambda: pt.Fire(HEADS, 5, length=3.0), {
        "c": (), "L_multiplier": (), "init_L": (), "mlp.0.weight": (5, 1), "mlp.0.bias": (5,), "mlp.2.weight": (4, 5),
        "mlp.2.bias": (4,),
    }),
    "Shaw": Row(lambda: pt.Shaw(D, 2), {"rel_k": (5, 8)}),
    "Shaw, values": Row(lambda: pt.Shaw(D, 2, values=True, k_min=1), {"rel_k": (4, 8), "rel_v": (4, 8)}),
    "RotaryEmbedding": Row(lambda: pt.RotaryEmbedding(D, layout="half"), {}),
    "RotaryEmbedding, learned": Row(lambda: pt.RotaryEmbedding(D, layout="half", learned=True), {"freqs": (4,)}),
}  # fmt: skip
LEARNED = [name for name, row in BIASES.items() if row.shapes]


class Layer(torch.nn.Module):
    """Attention with a module of posenc, under a name of its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner = BIASES[name].make()

    def forward(self, q: Any) -> Any:
        if isinstance(self.inner, pt.RotaryEmbedding):
            q = self.inner(q)
            return pt.attention(q, q, q, causal=True)
        return pt.attention(q, q, q, bias=self.inner(), causal=True)


def layer(name: str) -> Any:
    torch.manual_seed(0)
    return Layer(name)


def query() -> Any:
    return torch.randn(2, HEADS, N, D, generator=torch.Generator().manual_seed(1))


def other_state(module: Any) -> dict[str, Any]:
    """Numbers of the same shapes and other values."""
    return {name: one.detach() * 0.5 + 0.25 for name, one in module.state_dict().items()}


def loss(module: Any, q: Any) -> Any:
    return module(q).square().sum()


@pytest.mark.parametrize("name", BIASES)
def test_state_dict(name: str) -> None:
    module = BIASES[name].make()
    assert {key: tuple(one.shape) for key, one in module.state_dict().items()} == BIASES[name].shapes
    assert all(torch.isfinite(one).all() for one in module.state_dict().values())
    documented = type(module).__doc__
    assert all(f"``{key}``" in documented or not BIASES[name].shapes for key in BIASES[name].shapes)
    assert type(module).__name__ in repr(module)


@pytest.mark.parametrize("name", LEARNED)
def test_replaced_parameters_are_read(name: str) -> None:
    """`load_state_dict(assign=True)`, `functional_call` and copies give the numbers of the new parameters."""
    q, module = query(), layer(name)
    before = module(q)
    state = other_state(module)
    expected = copy.deepcopy(module)
    expected.load_state_dict(state)
    wanted = expected(q)
    assert not torch.equal(wanted, before)
    assert torch.equal(torch.func.functional_call(module, state, q), wanted)
    assert torch.equal(module(q), before)
    assert torch.equal(pickle.loads(pickle.dumps(expected))(q), wanted)
    module.load_state_dict(state, assign=True)
    assert torch.equal(module(q), wanted)
    loss(module, q).backward()
    assert all(one.grad is not None for one in module.parameters() if one.requires_grad)


@pytest.mark.parametrize("name", BIASES)
def test_meta_modules(name: str) -> None:
    """A module that was made on the meta device has its numbers after `to_empty` and `load_state_dict`."""
    q, module = query(), layer(name)
    with torch.device("meta"):
        empty = Layer(name)
    assert all(one.is_meta for one in empty.parameters())
    empty.to_empty(device="cpu").load_state_dict(module.state_dict())
    assert torch.equal(empty(q), module(q))
    for one in (empty.inner, *empty.inner.modules()):
        if hasattr(one, "reset_parameters"):
            one.reset_parameters()
    assert bool(torch.isfinite(empty(q)).all())


@pytest.mark.parametrize("name", ["ALiBi", "Fire", "Shaw, values", "RotaryEmbedding, learned"])
def test_compiled(name: str) -> None:
    q, module = query(), layer(name)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q), module(q))


def test_fixed_numbers() -> None:
    assert np.array_equal(pt.ALiBi(6)().matrix(N), posenc.alibi(posenc.alibi_slopes(6)).matrix(N))
    x = query()
    w = posenc.rope_frequencies(D, base=500.0)
    rotary = pt.RotaryEmbedding(D, base=500.0, layout="interleaved").bfloat16()
    assert np.array_equal(rotary(x), posenc.rope(x, N, w, layout="interleaved"))
    assert np.array_equal(rotary(x, torch.arange(3, 9)), posenc.rope(x, N, w, layout="interleaved", start=3))
    encode = pt.SinusoidalEmbedding(D, layout="half", dtype=torch.float64)
    assert np.array_equal(encode(N), posenc.sinusoidal(N, D, layout="half", dtype=np.float64))
    assert np.array_equal(encode(torch.tensor([2.5])), posenc.sinusoidal([2.5], D, layout="half", dtype=np.float64))
    assert not [*encode.state_dict(), *rotary.state_dict()]


def test_clamped_numbers_of_kerple() -> None:
    module = pt.KerplePower(2)
    of_authors = {"bias_a": torch.tensor([-1.0, 3.0]), "bias_p": torch.tensor([5.0, 0.0])}
    module.load_state_dict({name: one.view(2, 1, 1) for name, one in of_authors.items()})
    expected = posenc.kerple_power(np.float32([0.01, 3]), np.float32([2, 0.01]))
    assert np.array_equal(module().matrix(N).detach(), expected.matrix(N))


def test_configs() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "rope_theta": 500.0, "head_dim": 8}
    x, w = query(), posenc.rope_from_config(config)
    assert np.array_equal(pt.RotaryEmbedding(config)(x), posenc.rope(x, N, w))
    with pytest.raises(ValueError, match="RotaryEmbedding: layout is None; expected 'half' or 'interleaved'"):
        pt.RotaryEmbedding(D)
    with pytest.raises(TypeError, match=r"RotaryEmbedding: base is 3\.0; expected None, because the config has it"):
        pt.RotaryEmbedding(config, base=3.0)
    with pytest.raises(TypeError, match="sinusoidal: layer is unknown"):
        pt.SinusoidalEmbedding(8, layer="half")


def test_state_dicts_of_models() -> None:
    """A table of a model of transformers loads into the module, and gives the model's bias."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    t5 = transformers.models.t5.modeling_t5
    config = transformers.T5Config(d_model=32, d_kv=8, num_heads=HEADS, relative_attention_num_buckets=8)
    config.is_decoder = False
    theirs = t5.T5Attention(config, has_relative_attention_bias=True)
    ours = pt.T5(HEADS, 8)
    ours.load_state_dict(theirs.relative_attention_bias.state_dict())
    assert torch.equal(ours().matrix(N), theirs.compute_bias(N, N)[0].detach())
    theirs = transformers.models.swin.modeling_swin.SwinRelativePositionBias(HEADS, (2, 3))
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    window = pt.Swin((2, 3), HEADS)
    window.load_state_dict(theirs.state_dict())
    assert torch.equal(window().matrix(N), theirs()[0])


# ---- dynamic lengths ----


class Lengths(torch.nn.Module):
    """Positions given as the length of the data, in each way."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary, self.bias = pt.RotaryEmbedding(D, layout="half"), pt.T5(HEADS)

    def forward(self, q: Any) -> Any:
        n = q.shape[2]
        q = self.rotary(q) + pt.rope(q, n, torch.ones(4, dtype=torch.float64), layout="half", start=3)
        q = q + pt.sinusoidal(n, D)
        return pt.attention(q, q, q, bias=self.bias(), causal=True) + self.bias().matrix(n).sum()


def test_exported_lengths_are_dynamic() -> None:
    torch._dynamo.reset()
    module, n = Lengths(), torch.export.Dim("n", min=2, max=512)
    exported = torch.export.export(module, (query(),), dynamic_shapes=({2: n},)).module()
    for length in (2, 9, 33):
        q = torch.randn(2, HEADS, length, D)
        assert torch.equal(exported(q), module(q))


# ---- memory and threads ----


@pytest.mark.parametrize("name", ["T5", "Fire"])
def test_the_memory_of_parameters_can_be_resized(name: str) -> None:
    """FSDP frees the memory of gathered parameters after each use; `Tensor.numpy` would forbid it."""
    q, module = query(), layer(name)
    loss(module, q).backward()
    with torch.no_grad():
        module(q)
    assert all(one.untyped_storage().resizable() for one in module.parameters())


def test_threads_are_those_of_torch(run_python: Any) -> None:
    """Until the user chooses a number for posenc, its calls from torch use torch's."""
    code = """
import os
os.environ.pop("POSENC_NUM_THREADS", None)
import torch, posenc, posenc_bridges.torch as pt
q = torch.ones(1, 2, 4, 8)
for n in (3, 1, 2):
    torch.set_num_threads(n)
    pt.attention(q, q, q)
    assert posenc.get_num_threads() == n
with posenc.threads(4):
    pt.attention(q, q, q)
    assert posenc.get_num_threads() == 4
torch.set_num_threads(1)
pt.attention(q, q, q)
assert posenc.get_num_threads() == 1
posenc.set_num_threads(3)
pt.attention(q, q, q)
assert posenc.get_num_threads() == 3
"""
    done = run_python(code, warnings="ignore")
    assert done.returncode == 0, done.stderr


def test_strict_export_refuses_arrays_of_numpy() -> None:
    """torch puts a tensor without numbers into the program."""

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return pt.rope(x, x.shape[-2], FREQUENCIES, layout="half")

    x = torch.randn(2, HEADS, N, D)
    assert torch.equal(torch.export.export(Module(), (x,)).module()(x), Module()(x))
    with pytest.raises(Exception, match=r"a NumPy array is in torch.export\(strict=True\); expected a tensor, or"):
        torch.export.export(Module(), (x,), strict=True)


FREQUENCIES = posenc.rope_frequencies(D)
