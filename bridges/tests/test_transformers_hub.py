"""A kernel of the Hub that imports posenc, as the manual's page shows it, loaded from a local folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

kernels = pytest.importorskip("kernels", reason="the kernels library of Hugging Face is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def test_a_model_with_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    page = (Path(__file__).parents[1] / "docs" / "transformers.md").read_text("utf-8")
    section = page.split("\n## The Hub\n")[1].split("\n## ")[0]
    code, metadata = (section.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "json"))
    folder = tmp_path / "build" / "torch-cpu"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)
    (folder / "metadata.json").write_text(json.dumps(json.loads(metadata)))
    kernels.get_local_kernel(tmp_path, backend="cpu")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=99
    )
    logits: list[Any] = []
    for implementation in ("eager", "posenc"):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
        with torch.no_grad():
            logits.append(model(torch.arange(50)[None]).logits)
    assert float((logits[0] - logits[1]).abs().max() / logits[0].abs().max()) <= 2e-6
