"""Bugs in real modelling code of transformers: does posenc.check name them? A label says the effect of an edit.

tests/check plants the other bugs in plain code; these hypotheses are in no other test.
"""

import inspect
import types
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from settings import DYNAMIC, LLAMA3, PLAIN  # noqa: E402
from transformers import LlamaConfig  # noqa: E402
from transformers.models.gptj import modeling_gptj as gptj_code  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402

import posenc  # noqa: E402
from posenc import check  # noqa: E402

TENSORS = {"array": torch.as_tensor}


def edited(label):
    """Return the function with the change, compiled in a copy of its module."""
    edit = EDITS[label]
    module = import_module(f"transformers.{edit.module}")
    text = inspect.cleandoc("\n" + inspect.getsource(getattr(module, edit.name)))
    for old, new in edit.replaced:
        assert old in text, f"{edit.name} of this transformers has no {old!r}"
        text = text.replace(old, new)
    namespace = dict(vars(module))
    exec(compile(text, label, "exec"), namespace)
    return namespace[edit.name]


def config_of(values):
    rope = {"rope_theta": values["rope_theta"], **values.get("rope_scaling", {"rope_type": "default"})}
    lengths = {"max_position_embeddings": values.get("max_position_embeddings", 512)}
    return LlamaConfig(hidden_size=128, num_attention_heads=4, head_dim=32, rope_parameters=rope, **lengths)


def gptj(label):
    """The function that rotates sees the edit of another one."""
    namespace = {**vars(gptj_code), EDITS[label].name: edited(label)}
    rotate = types.FunctionType(gptj_code.apply_rotary_pos_emb.__code__, namespace)
    table = gptj_code.create_sinusoidal_positions(24, 32)

    def function(x, positions):  # (B, N, H, D)
        sin, cos = table[positions][None].chunk(2, -1)
        return rotate(x, sin, cos)

    return check.rope(function, dim=32, layout="interleaved", seq_axis=-3, **TENSORS)


def neox(label):
    tables = llama.LlamaRotaryEmbedding(config_of({**PLAIN, "rope_theta": 10000.0}))
    tables.inv_freq = torch.tensor(posenc.rope_frequencies(16).inv_freq, dtype=torch.float32)
    apply = edited(label)

    def function(x, positions):
        cos, sin = tables(x, positions[None])
        return apply(x, x, cos, sin)[0]

    return check.rope(function, dim=32, rotary_dim=16, layout="half", **TENSORS)


def scaling(label, values, **options):
    return check.frequencies(edited(label)(config_of(values), **options), values, **options)


def mpt(label):
    return check.slopes(lambda heads: -edited(label)(heads, 2)[:, 0, 0], 12)


class Edit(NamedTuple):
    """A replacement of text in a function of a module, and how posenc.check sees it."""

    module: str
    name: str
    replaced: tuple[tuple[str, str], ...]
    causes: tuple[str, ...]
    """Names of the causes."""
    check: Callable[[str], check.Report]


EDITS = {
    "gptj concatenates the rotated channels": Edit(
        "models.gptj.modeling_gptj",
        "rotate_every_two",
        (("torch.stack((-x2, x1), dim=-1)", "torch.cat((-x2, x1), dim=-1)"), ("x.flatten(-2)", "x")),
        ("order of rotate_half",),
        gptj,
    ),
    "gpt_neox rotates the last channels and puts them first": Edit(
        "models.gpt_neox.modeling_gpt_neox",
        "apply_rotary_pos_emb",
        (
            ("q[..., :rotary_dim], q[..., rotary_dim:]", "q[..., -rotary_dim:], q[..., :-rotary_dim]"),
            ("k[..., :rotary_dim], k[..., rotary_dim:]", "k[..., -rotary_dim:], k[..., :-rotary_dim]"),
        ),
        ("channels", "pairs"),
        neox,
    ),
    "llama3 blends the wrong way round": Edit(
        "modeling_rope_utils",
        "_compute_llama3_parameters",
        (
            (
                "(1 - smooth_factor) * inv_freq_llama / factor + smooth_factor * inv_freq_llama",
                "smooth_factor * inv_freq_llama / factor + (1 - smooth_factor) * inv_freq_llama",
            ),
        ),
        ("blend reversed",),
        lambda label: scaling(label, LLAMA3),
    ),
    "dynamic ntk forgets its exponent": Edit(
        "modeling_rope_utils",
        "_compute_dynamic_ntk_parameters",
        ((" ** (dim / (dim - 2))", ""),),
        ("ntk exponent",),
        lambda label: scaling(label, DYNAMIC, seq_len=512),
    ),
    "mpt takes the even slopes first": Edit(
        "models.mpt.modeling_mpt",
        "build_mpt_alibi_tensor",
        (("[slopes[:, 1::2, ...], slopes[:, ::2, ...]]", "[slopes[:, ::2, ...], slopes[:, 1::2, ...]]"),),
        ("halves of the next power",),
        mpt,
    ),
}


@pytest.mark.parametrize("label", EDITS)
def test_an_edit_is_named(label):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = EDITS[label].check(label)
    assert not report
    assert {cause.name for cause in report.causes} == set(EDITS[label].causes), str(report)
