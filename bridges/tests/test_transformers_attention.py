"""Models of transformers with attention of posenc and with eager attention: logits, gradients, tokens."""

# ruff: noqa: E402 -- transformers is imported after the check that it is here
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from small_models import build, text_classes
from transformers import masking_utils

import posenc
import posenc_bridges.torch
import posenc_bridges.transformers as bridge
from posenc_bridges.transformers._lazy import LazyTensor
from posenc_bridges.transformers._masks import make_mask

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' models, about themselves
transformers.logging.set_verbosity_error()
bridge.register()

ROUNDING = 2e-6
"""Largest difference in float32, of the largest logit or gradient; or twice that of eager attention from float64."""
PADDINGS = ("none", "left", "right")


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- every text model ----


class Result(NamedTuple):
    logits: Any
    gradients: dict[str, Any]


def inputs(model: Any, padding: str) -> tuple[dict[str, Any], Any]:
    """Return the arguments of a call with two sentences, and the weights of a sum of its logits."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(4, 128, (2, 14), generator=generator)
    mask = torch.ones_like(ids)
    if padding != "none":
        mask[1, {"left": slice(5), "between": slice(4, 9), "right": slice(-5, None)}[padding]] = 0
    given = {"input_ids": ids} if padding == "none" else {"input_ids": ids, "attention_mask": mask}
    visible = mask
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids[:, :9].flip(0)
        visible = torch.ones(2, 9)
    return given, torch.randn(*visible.shape, 128, generator=generator) * visible[..., None]


def run(model: Any, padding: str) -> Result:
    """Return the logits of tokens that are not padding, and the gradient of a sum of them."""
    given, weights = inputs(model, padding)
    model.zero_grad()
    logits = model(**given).logits
    (logits * weights.to(logits.dtype)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return Result(logits.detach() * (weights != 0), gradients)


def differences(a: Result, b: Result) -> tuple[float, float]:
    """Return the largest differences of logits and gradients, of the largest of b."""
    size, difference = 0.0, 0.0
    for name in {*a.gradients, *b.gradients}:  # an expert that reads padding alone may have no gradient
        pair = [result.gradients.get(name, torch.zeros(1)) for result in (a, b)]
        if pair[0].numel():
            size = max(size, float(pair[1].abs().max()))
            difference = max(difference, float((pair[0] - pair[1]).abs().max()))
    return float((a.logits - b.logits).abs().max() / b.logits.abs().max()), difference / size


def largest(some: list[Result], others: list[Result]) -> float:
    return max(max(differences(a, b)) for a, b in zip(some, others, strict=True))


def tokens(model: Any, **options: Any) -> list[list[int]]:
    given, _ = inputs(model, "left")
    given.pop("decoder_input_ids", None)
    options |= {"decoder_start_token_id": 1} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        made = model.generate(**given, max_new_tokens=20, min_new_tokens=20, do_sample=False, pad_token_id=0, **options)
    return made.tolist()  # type: ignore[no-any-return]


def compare(name: str) -> None:
    """Compare posenc with eager attention: prefill, a batch with padding left or right, 20 tokens with a cache."""
    eager, ours = build(name, "eager"), build(name, "posenc")
    theirs, found = ([run(model, padding) for padding in PADDINGS] for model in (eager, ours))
    if largest(found, theirs) > ROUNDING:
        model = build(name, "posenc").double()  # float64 masks of eager attention overflow
        exact = [run(model, padding) for padding in PADDINGS]
        assert largest(found, exact) <= 2 * largest(theirs, exact), name
    if hasattr(eager, "generate") and not name.endswith("MaskedLM"):
        assert tokens(ours) == tokens(eager), name


PAGE = (Path(__file__).parents[1] / "docs" / "transformers.md").read_text(encoding="utf-8")


def listed(section: str) -> list[str]:
    """Return the classes that a section of the manual's page lists, in its last paragraph."""
    text = PAGE.split(f"\n### {section}\n")[1].split("\n#")[0]
    return re.findall(r"`(\w+)`", text.strip().rpartition("\n\n")[2])


SAME, OWN, NONE, NOT_COMPARED = map(listed, ("Same results", "Own attention", "No attention", "Not compared"))


def test_the_manual_lists_every_class() -> None:
    if not transformers.__version__.startswith("5.24."):
        pytest.skip(f"the page is about transformers 5.24, and {transformers.__version__} is installed")
    assert sorted([*SAME, *OWN, *NONE, *NOT_COMPARED]) == text_classes()
    for name in text_classes():
        assert getattr(transformers, name)._can_set_attn_implementation() == (name not in OWN or name in ENCODERS), name
    assert f"{len(SAME)} of {len(text_classes())} classes" in PAGE


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_every_model(name: str) -> None:
    compare(name)


FEW = (
    "BartForConditionalGeneration", "BertForMaskedLM", "BloomForCausalLM", "DebertaForMaskedLM",
    "DebertaV2ForMaskedLM", "DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM",
    "FalconForCausalLM", "GPT2LMHeadModel", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "GptOssForCausalLM",
    "GraniteSWAForCausalLM", "Llama4ForCausalLM", "LlamaForCausalLM", "MPNetForMaskedLM", "ModernBertForMaskedLM",
    "MptForCausalLM", "T5ForConditionalGeneration", "UMT5ForConditionalGeneration",
)  # fmt: skip
"""Cross attention, encoders, ALiBi, latent attention, sparse keys, keys beyond the mask, sinks, grouped heads, caps,
windows, chunks, T5: the functions that replace a module of transformers, and the arguments of the interface."""


@pytest.mark.parametrize("name", FEW)
def test_few_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    for owner, name_of in ((posenc_bridges.torch, "attention"), (posenc_bridges.torch.PreparedAttention, "__call__")):
        ours = getattr(owner, name_of)
        counted = lambda *args, ours=ours, **options: calls.append(1) or ours(*args, **options)  # noqa: E731
        monkeypatch.setattr(owner, name_of, counted)
    compare(name)
    assert calls


OF_DEBERTA: list[dict[str, Any]] = [
    {"share_att_key": False, "pos_att_type": ["p2c"]},
    {"share_att_key": False, "pos_att_type": ["c2p"]},
    {"pos_att_type": []},
    {"position_buckets": -1, "max_relative_positions": 5},
    {"relative_attention": False, "norm_rel_ebd": "none"},
]


@pytest.mark.parametrize("changes", OF_DEBERTA, ids=str)
def test_configs_of_deberta(changes: dict[str, Any]) -> None:
    eager, ours = (build("DebertaV2ForMaskedLM", which, **changes) for which in ("eager", "posenc"))
    assert max(differences(run(ours, "left"), run(eager, "left"))) <= ROUNDING


WITHOUT_WEIGHTS = ("DebertaForMaskedLM", "LlamaForCausalLM", "MPNetForMaskedLM", "MptForCausalLM")


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_weights_are_refused(name: str) -> None:
    model = build(name, "posenc")
    with pytest.raises(NotImplementedError, match=r"output_attentions of \w+ is True; expected False"):
        model(**inputs(model, "none")[0], output_attentions=True)


# ---- masks ----


LEFT = torch.ones(2, 40, dtype=torch.bool)
LEFT[1, :7] = False
PACKED = torch.tensor([[0] * 5 + [1] * 6, [0] * 8 + [1] * 3])
POSITIONS = torch.tensor([[*range(5), *range(6)], [*range(8), *range(3)]])
START = torch.tensor([0, 7])
MASKS = {
    "causal": masking_utils.causal_mask_function,
    "bidirectional": masking_utils.bidirectional_mask_function,
    "window": masking_utils.sliding_window_causal_mask_function(4),
    "window on both sides": masking_utils.sliding_window_bidirectional_mask_function(4),
    "chunks": masking_utils.chunked_causal_mask_function(4, START),
}


def make(**options: Any) -> Any:
    return make_mask(**{"batch_size": 2, "q_length": 11, "kv_length": 11, **options})


def attend(mask: Any, n: int, m: int) -> Any:
    generator = torch.Generator().manual_seed(n)
    q, k, v = (torch.randn(2, 4, length, 8, generator=generator) for length in (n, m, m))
    out, weights = bridge._attention.attention_forward(torch.nn.Module(), q, k, v, mask)
    assert weights is None
    return out


def agree(mask: Any, n: int, m: int) -> None:
    """Compare attention by the structure with attention by the mask itself; 1e-6 is a few roundings."""
    assert isinstance(mask, LazyTensor)
    torch.testing.assert_close(attend(mask, n, m), attend(mask.dense(), n, m), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("is_padded", "first", "k_first"), [(False, 0, 0), (True, 29, 0), (False, 29, 20), (True, 3, 0)]
)
@pytest.mark.parametrize("name", MASKS)
def test_structure_is_the_mask(name: str, is_padded: bool, first: int, k_first: int) -> None:
    m = 11 if first == 0 else 40 - k_first
    options = {"mask_function": MASKS[name], "attention_mask": LEFT if is_padded else None}
    mask = make(q_offset=first, kv_offset=k_first, kv_length=m, **options)
    agree(mask, 11, m)
    dense = masking_utils.eager_mask(2, 11, m, first, k_first, **options)
    assert torch.equal(mask.dense(), dense)


@pytest.mark.parametrize("name", ["causal", "window", "chunks"])
def test_packed_sequences(name: str) -> None:
    packed = masking_utils.and_masks(
        masking_utils.packed_sequence_mask_function(PACKED),
        masking_utils.remap_positions_for_packed_sequence(MASKS[name], POSITIONS),
    )
    agree(make(mask_function=packed), 11, 11)


def test_offset_of_a_static_cache_is_read_at_once() -> None:
    """A static cache counts in a tensor, and changes it before the attention is computed."""
    offset = torch.tensor(29)
    mask = make(q_offset=offset, kv_length=40)
    offset += 11
    assert mask.posenc_structure.q_offset == 29
    agree(mask, 11, 40)


def test_functions_of_the_user_are_masks_themselves() -> None:
    def even(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return k % 2 == 0

    for function in (
        even,
        *(join(MASKS["causal"], even) for join in (masking_utils.and_masks, masking_utils.or_masks)),
    ):
        mask = make(mask_function=function)
        assert not isinstance(mask, LazyTensor)
        assert torch.equal(mask, masking_utils.eager_mask(2, 11, 11, mask_function=function))


def test_no_mask_where_nothing_is_masked() -> None:
    options = {"mask_function": MASKS["bidirectional"], "allow_is_bidirectional_skip": True}
    assert make(**options) is None
    assert make(**options, attention_mask=torch.ones(2, 11, dtype=torch.bool)) is None
    assert make(**options, attention_mask=LEFT[:, :11]) is not None
    wide = masking_utils.sliding_window_bidirectional_mask_function(10)
    assert make(**{**options, "mask_function": wide}) is None
    assert make(**{**options, "mask_function": MASKS["window on both sides"]}) is not None


def test_models_may_compute_with_a_structured_mask() -> None:
    mask = make()
    dense = masking_utils.eager_mask(2, 11, 11)
    assert (mask.shape, mask.dtype, mask.device, mask.dim()) == (dense.shape, dense.dtype, dense.device, mask.ndim)
    assert "_dense" not in mask.__dict__
    assert torch.equal(mask[:, 0, :, :5], dense[:, 0, :, :5])
    assert torch.equal(torch.cat([mask, mask], -1), torch.cat([dense, dense], -1))
    assert mask.is_intact
    agree(mask, 11, 11)
    mask[:, :, :, 0] = torch.finfo(mask.dtype).min
    assert not mask.is_intact
    torch.testing.assert_close(attend(mask, 11, 11), attend(mask.dense(), 11, 11), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_masks_of_the_user(dtype: Any) -> None:
    """A mask with 4 axes reaches attention as it is; numbers in it that are not minus infinity are a bias."""
    keep = torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(0)) < 0.6
    keep |= torch.eye(11, dtype=torch.bool)
    added = torch.where(keep, 0.0, torch.finfo(torch.float32).min)
    expected = attend(keep, 11, 11)
    torch.testing.assert_close(attend(keep if dtype is torch.bool else added, 11, 11), expected, rtol=0, atol=0)
    shifted = torch.where(keep, torch.arange(11.0), torch.finfo(torch.float32).min)
    assert not torch.allclose(attend(shifted, 11, 11), expected)


# ---- nothing of size queries x keys ----


@pytest.mark.parametrize("name", ["Gemma3ForCausalLM", "GptOssForCausalLM", "T5ForConditionalGeneration"])
def test_no_mask_and_no_bias_is_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> Any:
        raise AssertionError(f"{type(self).__name__} is computed")

    monkeypatch.setattr(LazyTensor, "dense", refuse)
    model = build(name, "posenc")
    run(model, "right")
    tokens(model)  # with padding on the left
    if name == "Gemma3ForCausalLM":
        tokens(model, disable_compile=True, cache_implementation="static")


# ---- caches ----


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LlamaForCausalLM", {"use_cache": False}),
        ("MistralForCausalLM", {"cache_implementation": "static"}),
        ("Gemma3ForCausalLM", {"cache_implementation": "static"}),
    ],
)
def test_caches(name: str, options: dict[str, Any]) -> None:
    """Mistral's and Gemma 3's caches hold a window of 6 keys, in all layers or in some."""
    ours = tokens(build(name, "posenc"), disable_compile=True, **options)
    assert ours == tokens(build(name, "eager"), disable_compile=True, **options)
    assert ours == tokens(build(name, "posenc"))


# ---- packed sequences, checkpoints, half precision ----


def test_alibi_with_padding_between_words() -> None:
    """BLOOM counts words without the padding between them, so its bias is not that of distances there."""
    ours, eager = (run(build("BloomForCausalLM", which), "between") for which in ("posenc", "eager"))
    assert max(differences(ours, eager)) <= ROUNDING


@pytest.mark.parametrize("lengths", [(21,), (9, 12)])
@pytest.mark.parametrize("use_cache", [False, True])
def test_ends_of_packed_sequences(lengths: tuple[int, ...], use_cache: bool) -> None:
    """`DataCollatorWithFlattening` passes ends; transformers finds no packed sequences if there is one, or a cache."""
    model = build("LlamaForCausalLM", "posenc")
    ids = torch.randint(4, 128, (1, 21), generator=torch.Generator().manual_seed(0))
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    parts = ids.split(lengths, 1)
    given = collate([{"input_ids": part[0].tolist(), "labels": part[0].tolist()} for part in parts])
    with torch.no_grad():
        packed = model(**given, use_cache=use_cache).logits
        alone = torch.cat([model(input_ids=part, use_cache=False).logits for part in parts], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=ROUNDING * float(alone.abs().max()))


# ---- errors ----


MASK = torch.zeros(1, 1, 3, 3)
MISFITS = (
    *(make(batch_size=b, q_length=n, kv_length=m) for b, n, m in ((1, 3, 2), (1, 2, 3), (2, 3, 3))),
    *(torch.ones(shape, dtype=torch.bool) for shape in ((1, 3, 3, 3), (3, 4), (1, 1, 1, 3, 3))),
)


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        ("shape_of_the_day", "round", TypeError, "is unknown"),
        ("cu_seq_lens_q", torch.tensor([0, 2]), NotImplementedError, r"is \[0, 2\]; expected the ends of"),
        ("attention_mask", MASK.long(), TypeError, r"has dtype torch\.int64; expected torch\.bool"),
        ("position_bias", torch.ones(1, 2, 3, 5), ValueError, r"has shape \(1, 2, 3, 5\); expected 3 keys"),
        *(("attention_mask", one, ValueError, rf"has shape \({str(tuple(one.shape))[1:-1]}\); exp") for one in MISFITS),
    ],
)
def test_arguments_that_do_not_fit_are_refused(argument: str, value: Any, error: Any, message: str) -> None:
    q, attend = torch.ones(1, 2, 3, 8), bridge._attention.attention_forward
    for known in ({"use_cache": True, "shape_of_the_day": None}, {"attention_mask": MASK[0, :, :1]}):
        attend(torch.nn.Linear(1, 1), q, q, q, **{"attention_mask": None, **known})
    with pytest.raises(error, match=f"{argument} of Linear {message}"):
        attend(torch.nn.Linear(1, 1), q, q, q, **{"attention_mask": None, argument: value})


def test_a_layer_with_too_many_cached_keys_is_refused() -> None:
    """The mask is for the keys of the first layer; eager attention cannot add it to the logits of the other."""
    model, ids = build("LlamaForCausalLM", "posenc"), torch.arange(4, 11)[None]
    cache = model(ids).past_key_values
    cache.layers[1].update(*(getattr(cache.layers[1], name)[:, :, :3] for name in ("keys", "values")))
    with pytest.raises(ValueError, match=r"attention_mask of LlamaAttention has shape \(1, 1, 2, 9\); expected one th"):
        model(ids[:, :2], past_key_values=cache)


def test_models_made_with_other_tables_of_attention_are_refused() -> None:
    """SAM chooses a class of attention by the implementation when it is made."""
    parts = {"vision_config": {"num_hidden_layers": 1}, "mask_decoder_config": {"num_hidden_layers": 1}}
    model = transformers.SamModel(transformers.SamConfig(**parts))
    for choice in ("posenc", {"": "posenc", "vision_config": "posenc"}):
        with pytest.raises(
            NotImplementedError, match="SamVisionSdpaAttention computes attention itself; expected a mo"
        ):
            model.set_attn_implementation(choice)


ENCODERS: dict[str, list[tuple[dict[str, str], str]]] = {
    "BigBirdPegasusForConditionalGeneration": [({}, "BigBirdPegasusBlockSparseAttention")],
    "LongT5ForConditionalGeneration": [
        ({}, "LongT5LocalAttention"),
        ({"encoder_attention_type": "transient-global"}, "LongT5TransientGlobalAttention"),
    ],
    "PegasusXForConditionalGeneration": [({}, "PegasusXGlobalLocalAttention")],
}
"""Models whose decoders use the interface and whose encoders do not: options, and the class of attention."""


@pytest.mark.parametrize(
    ("name", "options", "inner"),
    [("LukeForMaskedLM", {}, "LukeForMaskedLM"), *((name, *row) for name, rows in ENCODERS.items() for row in rows)],
)
def test_other_models_are_refused(name: str, options: Any, inner: str) -> None:
    message = f"{inner} computes attention itself; expected a model that uses transformers' attention interface"
    with pytest.raises(NotImplementedError, match=message):
        build(name, "posenc", **options)
    for choice in ("posenc", {"": "posenc"}):
        with pytest.raises(NotImplementedError, match=message):
            build(name, **options).set_attn_implementation(choice)


def test_falcon_with_alibi_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"alibi of FalconAttention is not None"):
        run(build("FalconForCausalLM", "posenc", alibi=True), "none")


def test_implementations_can_be_changed() -> None:
    """A model may change its implementation, and a second name serves as well as the first."""
    bridge.register("streaming")
    for name in ("T5ForConditionalGeneration", "BloomForCausalLM"):
        model = build(name)
        expected = run(model, "left")
        for implementation in ("posenc", "streaming"):
            model.set_attn_implementation(implementation)
            assert model.config._attn_implementation == implementation
            assert max(differences(run(model, "left"), expected)) <= ROUNDING
        model.set_attn_implementation("eager")
        assert max(differences(run(model, "left"), expected)) == 0


def test_layers_without_a_mask() -> None:
    """Without a mask, transformers' interface asks for `is_causal` of the call or of the module."""
    module = torch.nn.Module()
    q = torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    attention = bridge._attention.attention_forward
    causal, _ = attention(module, q, q, q, None, is_causal=True)
    all_keys, _ = attention(module, q, q, q, None)
    assert not torch.allclose(causal, all_keys)
    module.is_causal = True
    assert torch.equal(attention(module, q, q, q, None)[0], causal)
    assert torch.equal(attention(module, q, q, q, None, is_causal=False)[0], all_keys)


def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The notebook asserts that results agree; the manual is built without transformers, and does not run it."""
    notebook = json.loads((Path(__file__).parents[1] / "transformers.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    threads = posenc.get_num_threads()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("TOKENS = 512", "TOKENS = 128"), names)
    posenc.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert printed.count("posenc ") == 5
    assert "other" not in printed


def test_two_names_have_two_precisions() -> None:
    """Weights of 16 bits differ from those in two parts where the instruction set multiplies 16-bit numbers."""
    bridge.register("posenc-low", precision="low")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=99
    )
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    results = {}
    with posenc.runtime.use_isa("amx-emulated"), torch.no_grad():
        for name in ("posenc", "posenc-low"):
            model.set_attn_implementation(name)
            results[name] = model(torch.arange(99)[None]).logits
    assert not torch.equal(results["posenc"], results["posenc-low"])
    assert torch.allclose(results["posenc"].float(), results["posenc-low"].float(), atol=0.1)
    with pytest.raises(ValueError, match="register: precision is 'medium'; expected one of 'high', 'low'"):
        bridge.register(precision="medium")  # type: ignore[arg-type]
