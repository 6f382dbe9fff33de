"""Time whole models of transformers with attention of posenc against eager attention and SDPA.

The models have random numbers, 512 channels, 8 heads of 64, 2048 tokens and 4 layers. T5 has 2 of them in its encoder
and 2 in its decoder, which reads 2048 tokens, too. A forward call is a prefill without a cache. A step of training is a
forward call, the loss and the backward call, without an optimiser. gpt-oss and BLOOM have no SDPA. `--only Llama` times
the lines of one model, and `--only "Llama, training, sdpa"` one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

from tools.measure import Report, check, main, peer

TOKENS = 2048
CLOSE = 1e-4  # of the largest logit; float32 through four layers. BLOOM's eager bias alone is rounded by 6e-5
SIZES = {"vocab_size": 512, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
LLAMA = {**SIZES, "intermediate_size": 1408, "num_key_value_heads": 4, "max_position_embeddings": TOKENS}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, float]]] = {
    "Llama": ("LlamaForCausalLM", LLAMA, {"sdpa": 1.1}),
    "Gemma 3": ("Gemma3ForCausalLM", {
        **LLAMA, "head_dim": 64, "sliding_window": 512,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    }, {"sdpa": 1.1}),
    "gpt-oss": ("GptOssForCausalLM", {
        **SIZES, "intermediate_size": 512, "num_key_value_heads": 2, "max_position_embeddings": TOKENS, "head_dim": 64,
        "sliding_window": 128, "num_local_experts": 4, "num_experts_per_tok": 2,
    }, {"eager": 3.0}),
    "T5": ("T5ForConditionalGeneration", {
        "vocab_size": 512, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_decoder_layers": 2,
        "num_heads": 8, "dropout_rate": 0.0, "decoder_start_token_id": 0,
    }, {"sdpa": 1.1}),
    "BLOOM": ("BloomForCausalLM", {
        "vocab_size": 512, "hidden_size": 512, "n_layer": 4, "n_head": 8, "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }, {"eager": 3.0}),
}  # fmt: skip
"""Classes, sizes and goals."""


def run(report: Report) -> None:
    for name in MODELS:
        for kind in ("forward", "training"):
            for other in ("eager", "sdpa"):
                if report.wants(f"{name}, {kind}, {other}"):
                    model(report, name, kind, other)


def model(report: Report, name: str, kind: str, other: str) -> None:
    torch: Any = peer("torch")
    transformers: Any = peer("transformers")
    if not torch or not transformers:
        return
    import posenc_bridges.transformers

    posenc_bridges.transformers.register()
    transformers.logging.set_verbosity_error()
    class_name, sizes, goals = MODELS[name]
    cls = getattr(transformers, class_name)
    if other == "sdpa" and not cls._supports_sdpa:
        return
    ids = torch.randint(1, 512, (1, TOKENS), generator=torch.Generator().manual_seed(0))

    def make(implementation: str) -> Any:
        torch.manual_seed(0)
        return cls._from_config(cls.config_class(**sizes), attn_implementation=implementation)

    def forward(made: Any, ids: Any = ids) -> Any:
        options = {"decoder_input_ids": ids} if made.config.is_encoder_decoder else {}
        with torch.no_grad():
            return made(input_ids=ids, use_cache=False, **options).logits

    def training(made: Any) -> Any:
        made.zero_grad()
        loss = made(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        return loss

    models = {one: make(one) for one in ("posenc", other)}
    found, expected = (forward(made, ids[:, :256]) for made in models.values())
    check(f"{name}, {other}", found / expected.abs().max(), expected / expected.abs().max(), CLOSE)
    step: Callable[[Any], Any] = {"forward": forward, "training": training}[kind]
    theirs = f"transformers {other}"
    works = {"posenc": lambda: step(models["posenc"]), theirs: lambda: step(models[other])}
    least = {theirs: goals[other]} if other in goals else None
    work = f"{name}, {kind}, 4 layers, {TOKENS} tokens, float32, {other}"
    report.time(work, works, least=least, turns=2)


if __name__ == "__main__":
    main(__doc__, run)
