"""Twenty bugs in real modelling code of transformers (edits.py): does posenc.check name them?"""

import types
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from edits import EDITS, edited  # noqa: E402
from settings import DYNAMIC, LLAMA3, PLAIN, YARN  # noqa: E402
from transformers import LlamaConfig  # noqa: E402
from transformers.models.cohere import modeling_cohere as cohere  # noqa: E402
from transformers.models.gemma2 import modeling_gemma2 as gemma2  # noqa: E402
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402

import posenc  # noqa: E402
from posenc import check  # noqa: E402

TENSORS = {"array": torch.as_tensor}


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


def gptj(label):
    import transformers.models.gptj.modeling_gptj as module

    namespace = with_edit(module, label)
    table = module.create_sinusoidal_positions(24, 32)

    def function(x, positions):  # (B, N, H, D)
        sin, cos = table[positions][None].chunk(2, -1)
        return namespace["apply_rotary_pos_emb"](x, sin, cos)

    return check.rope(function, dim=32, layout="interleaved", seq_axis=-3, **TENSORS)


def neox(label):
    tables = llama.LlamaRotaryEmbedding(config_of({**PLAIN, "rope_theta": 10000.0}))
    tables.inv_freq = torch.tensor(posenc.rope_frequencies(16).inv_freq, dtype=torch.float32)
    apply = with_edit(gpt_neox, label)["apply_rotary_pos_emb"]

    def function(x, positions):
        cos, sin = tables(x, positions[None])
        return apply(x, x, cos, sin)[0]

    return check.rope(function, dim=32, rotary_dim=16, layout="half", **TENSORS)


def cohere_edit(label):
    from transformers import CohereConfig

    config = CohereConfig(hidden_size=128, num_attention_heads=4, rope_parameters={"rope_theta": 500000.0,
                                                                                   "rope_type": "default"})  # fmt: skip
    tables = edited(label)(config)

    def function(x, positions):
        cos, sin = tables(x, positions[None])
        return cohere.apply_rotary_pos_emb(x, x, cos, sin)[0]

    return check.rope(function, PLAIN, layout="interleaved", **TENSORS)


def scaling(label, values, **options):
    return check.frequencies(edited(label)(config_of(values), **options), values, **options)


def buckets(label):
    return check.buckets(edited(label), **TENSORS)


def t5_bias(label):
    from transformers.models.t5.modeling_t5 import T5Attention

    table = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
    embedding = torch.nn.Embedding.from_pretrained(torch.as_tensor(table))
    module = types.SimpleNamespace(
        relative_attention_bias=embedding, is_decoder=True, relative_attention_num_buckets=32,
        relative_attention_max_distance=128, _relative_position_bucket=T5Attention._relative_position_bucket,
    )  # fmt: skip
    compute = edited(label)
    operator = posenc.t5(table, bidirectional=False)
    return check.bias(lambda n, m: compute(module, n, m, past_seen_tokens=m - n), operator, 5, 40, causal=True)


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


# label: (names of the cause, check). No name where no hypothesis describes the edit.
EXPECTED = {
    "llama rotates clockwise": (("direction",), lambda label: llama_edit(label, PLAIN)),
    "llama repeats its tables by pairs": (("tables",), lambda label: llama_edit(label, PLAIN)),
    "llama scales the cosine alone": (("cos only",), lambda label: llama_edit(label, YARN)),
    "llama divides the exponent by half of the width": (("exponent doubled",), lambda label: llama_edit(label, PLAIN)),
    "gptj concatenates the rotated channels": (("order of rotate_half",), gptj),
    "gpt_neox rotates the last channels and puts them first": ((), neox),
    "cohere counts positions from one": (("offset +1",), cohere_edit),
    "yarn swaps beta_fast and beta_slow": (("beta_fast and beta_slow",), lambda label: scaling(label, YARN)),
    "llama3 blends the wrong way round": (("blend reversed",), lambda label: scaling(label, LLAMA3)),
    "dynamic ntk forgets its exponent": (("ntk exponent",), lambda label: scaling(label, DYNAMIC, seq_len=512)),
    "t5 gives the upper buckets to the keys before the query": (("direction",), buckets),
    "t5 divides by the logarithm of max_distance": (("divisor",), buckets),
    "t5 forgets the past": (("alignment",), t5_bias),
    "bloom takes every slope of the next power": (
        ("consecutive places",), lambda label: check.slopes(lambda heads: edited(label)(heads, "cpu"), 12)),
    "mpt takes the even slopes first": (("halves of the next power",), mpt),
    "gemma2 forgets to divide by the cap": (
        ("cap without division",), lambda label: eager(label, gemma2, softcap=2.0)),
    "llama repeats the heads in blocks": (("groups of heads",), lambda label: eager(label, llama, groups=3)),
    "the sliding window holds one key more": (("window one wider",), window),
    "marian gives each channel a frequency": (("a frequency for each channel",), marian),
    "swin multiplies rows by the height": (("rows of 2 h - 1",), swin),
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("label", sorted({*EDITS, *EXPECTED}))
def test_an_edit_is_named(label):
    names, run = EXPECTED[label]
    report = run(label)
    assert not report
    assert {cause.name for cause in report.causes} == set(names), str(report)
