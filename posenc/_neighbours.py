"""The way from names of other libraries, of functions and of arguments, to names of posenc."""

from __future__ import annotations

from collections.abc import Iterable

NEIGHBOURS = {
    "RotaryEmbedding": "rope(x, positions, rope_frequencies(dim), layout=...), also in posenc.torch",
    "apply_rope": "rope(...)",
    "apply_rotary_emb": 'rope(..., layout="interleaved")',
    "apply_rotary_pos_emb": 'rope(..., layout="half")',
    "assert_close": "numpy.testing.assert_allclose",
    "entropy": "posenc.analysis.attention_profile(weights)",
    "flash_attention": "attention(...)",
    "get_slopes": "alibi_slopes(heads)",
    "kerple": "kerple_log(r1, r2) or kerple_power(r1, r2)",
    "ntk": 'rope_frequencies(dim, rope_type="dynamic", ...)',
    "positional_encoding": "sinusoidal(positions, dim)",
    "precompute_freqs_cis": "rope_frequencies(dim)",
    "relative_position_bias": "t5(table) or swin(table, height, width)",
    "relative_position_bucket": "t5_bucket(rel)",
    "rotate_half": 'rope(..., layout="half")',
    "scaled_dot_product_attention": "attention(q, k, v)",
    "softmax": "attention_weights(q, k)",
    "swin_index": "swin(table, height, width), which computes the index itself",
    "testing": "posenc.reference, and numpy.testing",
    "yarn": 'rope_frequencies(dim, rope_type="yarn", ...)',
}
"""The way to what other libraries have by this name."""
ARGUMENTS = {
    "alibi_slopes": "bias=alibi(slopes)",
    "attn_bias": "bias=dense(array)",
    "attn_mask": "keep for booleans, or dense(...) as bias for numbers",
    "d_model": "dim",
    "dropout_p": "dropout, with seed",
    "enable_gqa": "nothing, because heads may share keys without it",
    "freqs_cis": "frequencies, in radians per position",
    "head_dim": "dim, or no argument where an array has it",
    "inv_freq": "frequencies",
    "is_causal": 'causal, with align="start" if N != M',
    "key_padding_mask": "keep=~mask[:, None, None, :]",
    "mask": "keep, which is True where a query sees a key",
    "num_buckets": "buckets, or the rows of the table",
    "num_heads": "heads, or no argument where an array has the axis",
    "offset": "start",
    "position_ids": "positions",
    "query": "q",
    "return_softmax_lse": "return_lse",
    "rope_scaling": "rope_from_config(config), or rope_type= and its keys",
    "rope_theta": "base",
    "s_aux": "sink",
    "sm_scale": "scale",
    "softmax_scale": "scale",
    "theta": "base",
    "window_size": "window",
}
"""The same for arguments. A bridge ends its message with it; docs/guides/errors-arrays.md has the table."""


def missing(name: str, modules: Iterable[str]) -> str:
    """Return the message for a name that `posenc` does not have; it names the neighbour of a foreign name."""
    if name in modules:
        return f"posenc.{name} is not imported yet; import posenc.{name}"
    expected = f"; expected {NEIGHBOURS[name]}" if name in NEIGHBOURS else ""
    return f"module 'posenc' has no attribute '{name}'{expected}"
