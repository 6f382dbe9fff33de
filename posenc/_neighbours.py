"""The way from names of other libraries to names of posenc."""

from __future__ import annotations

NEIGHBOURS = {
    "RotaryEmbedding": "rope(x, positions, rope_frequencies(dim), layout=...), also in posenc_bridges.torch",
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
NEIGHBOURS |= {
    bridge: f"posenc_bridges.{bridge}, a module of the distribution posenc-bridges"
    for bridge in ("autograd", "dask", "jax", "torch", "transformers")
}


def missing(name: str) -> str:
    """Return the message for a name that `posenc` does not have; it names the neighbour of a foreign name."""
    expected = f"; expected {NEIGHBOURS[name]}" if name in NEIGHBOURS else ""
    return f"module 'posenc' has no attribute '{name}'{expected}"
