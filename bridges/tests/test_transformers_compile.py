"""Whole models of transformers with attention of posenc in one graph of torch.compile."""

# ruff: noqa: E402 -- transformers is imported after the check that it is here
from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from small_models import build

import posenc_bridges.transformers

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' models, about themselves
posenc_bridges.transformers.register()

MODELS = {
    "BloomForCausalLM": 'bias=["list", [], [["alibi", ',
    "Gemma3ForCausalLM": 'window=["tuple", [], [1, 1]]',
    "GptOssForCausalLM": "sink=0",
    "LlamaForCausalLM": "causal=true",
    "T5ForConditionalGeneration": 'bias=["list", [], [["t5", ',
}
"""For each model a part of the text of its attention, which a mask or a bias of queries x keys would not have."""
ROUNDING = 2e-6
"""As in test_transformers_attention.py."""


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def inputs(model: Any, is_padded: bool) -> dict[str, Any]:
    ids = torch.randint(4, 128, (2, 14), generator=torch.Generator().manual_seed(3))
    given = {"input_ids": ids, "use_cache": False}
    if is_padded:
        given["attention_mask"] = torch.ones_like(ids)
        given["attention_mask"][1, -5:] = 0
    return {**given, "decoder_input_ids": ids[:, :9]} if model.config.is_encoder_decoder else given


def run(model: Any, forward: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return the logits of words that are not padding, and the gradient of the sum of their squares."""
    model.zero_grad()
    logits = forward(**given).logits
    if "attention_mask" in given and not model.config.is_encoder_decoder:
        logits = logits * given["attention_mask"][..., None]
    logits.square().sum().backward()
    gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return logits.detach(), torch.cat(gradients)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_one_graph(name: str, is_padded: bool) -> None:
    graphs: list[Any] = []

    def keep_graph(graph: Any, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    model = build(name, "posenc")
    given = inputs(model, is_padded)
    found = run(model, torch.compile(model.forward, fullgraph=True, backend=keep_graph), given)
    assert len(graphs) == 1
    calls = [node.args[0] for node in graphs[0].graph.nodes if node.target is torch.ops.posenc.attention.default]
    specs = [zip(*json.loads(call)[1:], strict=True) for call in calls]
    calls = [" ".join(f"{option}={json.dumps(value)}" for option, value in spec) for spec in specs]
    layers = 6 if name == "T5ForConditionalGeneration" else 2
    assert len(calls) == layers
    # with padding BLOOM counts words, so its bias differs from that of distances if padding is between words
    if not (is_padded and name == "BloomForCausalLM"):
        assert any(MODELS[name] in call for call in calls), calls
        assert is_padded or not any('["dense", ' in call or "keep=0" in call for call in calls), calls
    for ours, theirs in zip(found, run(model, model, given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=ROUNDING * float(theirs.abs().max()))
