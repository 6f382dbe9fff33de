"""Positions of published models, read from their classes in transformers."""

import pytest

pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import BertConfig, BertModel, DebertaConfig, LlamaConfig, LlamaModel, RoFormerConfig, RoFormerModel
from transformers.models.bloom import modeling_bloom
from transformers.models.llama import modeling_llama
from transformers.models.mpt import modeling_mpt
from transformers.models.roformer import modeling_roformer

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 8}


def test_bert_base_has_512_positions_of_768_channels() -> None:
    config = BertConfig()
    assert (config.max_position_embeddings, config.hidden_size) == (512, 768)


def test_bert_trains_its_positions() -> None:
    weight = BertModel(BertConfig(**SMALL)).embeddings.position_embeddings.weight
    assert weight.requires_grad
    assert tuple(weight.shape) == (512, 32)


def test_bloom_and_mpt_have_alibi() -> None:
    assert callable(modeling_bloom.build_alibi_tensor)
    assert callable(modeling_mpt.build_mpt_alibi_tensor)


def test_roformer_and_llama_rotate(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    called = []
    for name, of, function in (
        ("llama", modeling_llama, "apply_rotary_pos_emb"),
        ("roformer", modeling_roformer.RoFormerSelfAttention, "apply_rotary_position_embeddings"),
    ):
        original = getattr(of, function)

        def noted(*arguments, name=name, original=original):  # type: ignore[no-untyped-def]
            called.append(name)
            return original(*arguments)

        monkeypatch.setattr(of, function, noted if name == "llama" else staticmethod(noted))
    ids = torch.tensor([[1, 2, 3]])
    LlamaModel(LlamaConfig(**SMALL))(ids)
    RoFormerModel(RoFormerConfig(**SMALL))(ids)
    assert called == ["llama", "roformer"]


def test_deberta_base_has_12_layers() -> None:
    assert DebertaConfig().num_hidden_layers == 11 + 1
