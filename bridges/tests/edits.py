"""Twenty bugs in modelling code of transformers, as replacements of text. A label says the effect.

The list was written before the hypotheses of posenc.check. `edited` compiles the changed source at run time.
"""

import inspect
import re
from importlib import import_module
from typing import NamedTuple


class Edit(NamedTuple):
    module: str
    name: str
    replaced: tuple[tuple[str, str], ...]


EDITS = {
    "llama rotates clockwise": Edit("models.llama.modeling_llama", "rotate_half", (("(-x2, x1)", "(x2, -x1)"),)),
    "llama repeats its tables by pairs": Edit(
        "models.llama.modeling_llama", "LlamaRotaryEmbedding",
        (("torch.cat((freqs, freqs), dim=-1)", "freqs.repeat_interleave(2, dim=-1)"),),
    ),
    "llama scales the cosine alone": Edit(
        "models.llama.modeling_llama", "LlamaRotaryEmbedding", (("emb.sin() * self.attention_scaling", "emb.sin()"),),
    ),
    "llama divides the exponent by half of the width": Edit(
        "models.llama.modeling_llama", "LlamaRotaryEmbedding",
        (("dtype=torch.float) / dim)", "dtype=torch.float) / (dim // 2))"),),
    ),
    "gptj concatenates the rotated channels": Edit(
        "models.gptj.modeling_gptj", "rotate_every_two",
        (("torch.stack((-x2, x1), dim=-1)", "torch.cat((-x2, x1), dim=-1)"), ("x.flatten(-2)", "x")),
    ),
    "gpt_neox rotates the last channels and puts them first": Edit(
        "models.gpt_neox.modeling_gpt_neox", "apply_rotary_pos_emb",
        (("q[..., :rotary_dim], q[..., rotary_dim:]", "q[..., -rotary_dim:], q[..., :-rotary_dim]"),
         ("k[..., :rotary_dim], k[..., rotary_dim:]", "k[..., -rotary_dim:], k[..., :-rotary_dim]")),
    ),
    "cohere counts positions from one": Edit(
        "models.cohere.modeling_cohere", "CohereRotaryEmbedding",
        (("position_ids[..., None].float()", "(position_ids[..., None] + 1).float()"),),
    ),
    "yarn swaps beta_fast and beta_slow": Edit(
        "modeling_rope_utils", "_compute_yarn_parameters",
        (("find_correction_range(beta_fast, beta_slow,", "find_correction_range(beta_slow, beta_fast,"),),
    ),
    "llama3 blends the wrong way round": Edit(
        "modeling_rope_utils", "_compute_llama3_parameters",
        (("(1 - smooth_factor) * inv_freq_llama / factor + smooth_factor * inv_freq_llama",
          "smooth_factor * inv_freq_llama / factor + (1 - smooth_factor) * inv_freq_llama"),),
    ),
    "dynamic ntk forgets its exponent": Edit(
        "modeling_rope_utils", "_compute_dynamic_ntk_parameters", ((" ** (dim / (dim - 2))", ""),),
    ),
    "t5 gives the upper buckets to the keys before the query": Edit(
        "models.t5.modeling_t5", "T5Attention._relative_position_bucket",
        (("relative_position > 0", "relative_position < 0"),),
    ),
    "t5 divides by the logarithm of max_distance": Edit(
        "models.t5.modeling_t5", "T5Attention._relative_position_bucket",
        (("math.log(max_distance / max_exact)", "math.log(max_distance)"),),
    ),
    "t5 forgets the past": Edit("models.t5.modeling_t5", "T5Attention.compute_bias", ((" + past_seen_tokens", ""),)),
    "bloom takes every slope of the next power": Edit(
        "models.bloom.modeling_bloom", "_get_alibi_slopes",
        (("1 + 2 * num_remaining_heads, 2,", "1 + num_remaining_heads,"),),
    ),
    "mpt takes the even slopes first": Edit(
        "models.mpt.modeling_mpt", "build_mpt_alibi_tensor",
        (("[slopes[:, 1::2, ...], slopes[:, ::2, ...]]", "[slopes[:, ::2, ...], slopes[:, 1::2, ...]]"),),
    ),
    "gemma2 forgets to divide by the cap": Edit(
        "models.gemma2.modeling_gemma2", "eager_attention_forward", (("attn_weights / softcap", "attn_weights"),),
    ),
    "llama repeats the heads in blocks": Edit(
        "models.llama.modeling_llama", "repeat_kv",
        (("hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)",
          "hidden_states[:, None].expand(batch, n_rep, num_key_value_heads, slen, head_dim)"),),
    ),
    "the sliding window holds one key more": Edit(
        "masking_utils", "sliding_window_overlay", (("kv_idx > q_idx", "kv_idx >= q_idx"),),
    ),
    "marian gives each channel a frequency": Edit(
        "models.marian.modeling_marian", "MarianSinusoidalPositionalEmbedding",
        (("2 * (j // 2) / dim", "2 * j / dim"),),
    ),
    "swin multiplies rows by the height": Edit(
        "models.swin.modeling_swin", "SwinRelativePositionBias",
        (("2 * self.window_size[1] - 1", "2 * self.window_size[0] - 1"),),
    ),
}  # fmt: skip


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
