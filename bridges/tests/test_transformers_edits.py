"""Nine bugs in real modelling code of transformers: does posenc.check name them?

A label says the effect. The list was written before the hypotheses of posenc.check.
"""

import inspect
import re
import types
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from settings import LLAMA3, PLAIN, YARN  # noqa: E402
from transformers import LlamaConfig  # noqa: E402
from transformers.models.gemma2 import modeling_gemma2 as gemma2  # noqa: E402
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402

import posenc  # noqa: E402
from posenc import check  # noqa: E402

TENSORS = {"array": torch.as_tensor}


def edited(label):
    """Return the function or class with the change, compiled in a copy of its module."""
    edit = EDITS[label]
    module = import_module(f"transformers.{edit.module}")
    *owner, name = edit.name.split(".")
    found = getattr(module, owner[0]) if owner else module
    text = inspect.cleandoc("\n" + inspect.getsource(getattr(found, name)))
    for old, new in edit.replaced:
        assert old in text, f"{edit.name} of this transformers has no {old!r}"
        text = text.replace(old, new)
    text = re.sub(r"^@(?!staticmethod|torch)[\w.]+.*\n", "", text) if owner else text
    namespace = dict(vars(module))
    exec(compile(text.replace("@staticmethod\n", "", 1) if owner else text, label, "exec"), namespace)
    return namespace[name]


def config_of(values):
    rope = {"rope_theta": values["rope_theta"], **values.get("rope_scaling", {"rope_type": "default"})}
    lengths = {"max_position_embeddings": values.get("max_position_embeddings", 512)}
    return LlamaConfig(hidden_size=128, num_attention_heads=4, head_dim=32, rope_parameters=rope, **lengths)


def rotate(module, values, embedding=None):
    """x, positions -> rotated x, by the functions of a module, some of which are edited."""
    apply = module["apply_rotary_pos_emb"]
    tables = (embedding or module["LlamaRotaryEmbedding"])(config_of(values))

    def function(x, positions):
        cos, sin = tables(x, positions[None])
        return apply(x, x, cos, sin)[0]

    return function


def with_edit(module, label):
    """The namespace of a module with one edited function, in which the other functions see the edit."""
    namespace = dict(vars(module))
    name = EDITS[label].name
    namespace[name] = edited(label)
    for other in ("apply_rotary_pos_emb", "eager_attention_forward"):
        function = namespace.get(other)
        function = getattr(function, "__wrapped__", function)
        if other != name and isinstance(function, types.FunctionType):
            namespace[other] = types.FunctionType(function.__code__, namespace, other, function.__defaults__)
    return namespace


def llama_edit(label, values, **options):
    return check.rope(rotate(with_edit(llama, label), values), values, layout="half", **TENSORS, **options)


def neox(label):
    tables = llama.LlamaRotaryEmbedding(config_of({**PLAIN, "rope_theta": 10000.0}))
    tables.inv_freq = torch.tensor(posenc.rope_frequencies(16).inv_freq, dtype=torch.float32)
    apply = with_edit(gpt_neox, label)["apply_rotary_pos_emb"]

    def function(x, positions):
        cos, sin = tables(x, positions[None])
        return apply(x, x, cos, sin)[0]

    return check.rope(function, dim=32, rotary_dim=16, layout="half", **TENSORS)


def scaling(label, values, **options):
    return check.frequencies(edited(label)(config_of(values), **options), values, **options)


def swin(label):
    module = edited(label)(3, (4, 6))
    table = torch.randn(77, 3, generator=torch.Generator().manual_seed(0))
    module.relative_position_bias_table.data = table
    return check.bias(module(), posenc.swin(table.numpy(), 4, 6), 24)


def mpt(label):
    return check.slopes(lambda heads: -edited(label)(heads, 2)[:, 0, 0], 12)


def eager(label, module, groups=1, **options):
    forward = with_edit(module, label)["eager_attention_forward"]
    self = types.SimpleNamespace(num_key_value_groups=groups, training=False, head_dim=16)

    def function(q, k, v):
        given = {"scaling": 0.25, "dropout": 0.0, **options}
        return forward(self, q, k, v, None, **given)[0].transpose(1, 2)

    return check.attention(function, batch=True, kv_heads=6 // groups, **options, **TENSORS)


def window(label):
    overlay, n = edited(label)(4), torch.arange(9)
    return check.mask(overlay(0, 0, n[:, None], n) & (n <= n[:, None]), 9, window=(3, None))


def marian(label):
    module = edited(label)(24, 32)
    return check.sinusoid(module.create_weight(), 32, layout="half")


class Edit(NamedTuple):
    """A replacement of text in a function or class of a module, and how posenc.check sees it."""

    module: str
    name: str
    replaced: tuple[tuple[str, str], ...]
    causes: tuple[str, ...]
    """Names of the cause; none where no hypothesis describes the edit."""
    check: Callable[[str], check.Report]


EDITS = {
    "llama repeats its tables by pairs": Edit(
        "models.llama.modeling_llama", "LlamaRotaryEmbedding",
        (("torch.cat((freqs, freqs), dim=-1)", "freqs.repeat_interleave(2, dim=-1)"),),
        ("tables",), lambda label: llama_edit(label, PLAIN),
    ),
    "llama scales the cosine alone": Edit(
        "models.llama.modeling_llama", "LlamaRotaryEmbedding", (("emb.sin() * self.attention_scaling", "emb.sin()"),),
        ("cos only",), lambda label: llama_edit(label, YARN),
    ),
    "gpt_neox rotates the last channels and puts them first": Edit(
        "models.gpt_neox.modeling_gpt_neox", "apply_rotary_pos_emb",
        (("q[..., :rotary_dim], q[..., rotary_dim:]", "q[..., -rotary_dim:], q[..., :-rotary_dim]"),
         ("k[..., :rotary_dim], k[..., rotary_dim:]", "k[..., -rotary_dim:], k[..., :-rotary_dim]")),
        (), neox,
    ),
    "llama3 blends the wrong way round": Edit(
        "modeling_rope_utils", "_compute_llama3_parameters",
        (("(1 - smooth_factor) * inv_freq_llama / factor + smooth_factor * inv_freq_llama",
           "smooth_factor * inv_freq_llama / factor + (1 - smooth_factor) * inv_freq_llama"),),
        ("blend reversed",), lambda label: scaling(label, LLAMA3),
    ),
    "mpt takes the even slopes first": Edit(
        "models.mpt.modeling_mpt", "build_mpt_alibi_tensor",
        (("[slopes[:, 1::2, ...], slopes[:, ::2, ...]]", "[slopes[:, ::2, ...], slopes[:, 1::2, ...]]"),),
        ("halves of the next power",), mpt,
    ),
    "gemma2 forgets to divide by the cap": Edit(
        "models.gemma2.modeling_gemma2", "eager_attention_forward", (("attn_weights / softcap", "attn_weights"),),
        ("cap without division",), lambda label: eager(label, gemma2, softcap=2.0),
    ),
    "the sliding window holds one key more": Edit(
        "masking_utils", "sliding_window_overlay", (("kv_idx > q_idx", "kv_idx >= q_idx"),),
        ("window one wider",), window,
    ),
    "marian gives each channel a frequency": Edit(
        "models.marian.modeling_marian", "MarianSinusoidalPositionalEmbedding",
        (("2 * (j // 2) / dim", "2 * j / dim"),),
        ("a frequency for each channel",), marian,
    ),
    "swin multiplies rows by the height": Edit(
        "models.swin.modeling_swin", "SwinRelativePositionBias",
        (("2 * self.window_size[1] - 1", "2 * self.window_size[0] - 1"),),
        ("rows of 2 h - 1",), swin,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("label", EDITS)
def test_an_edit_is_named(label):
    report = EDITS[label].check(label)
    assert not report
    assert {cause.name for cause in report.causes} == set(EDITS[label].causes), str(report)
