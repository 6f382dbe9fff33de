"""What to pass or to call here for the names that other libraries and the papers use.

Three tables of sentences, and what reads them when a call does not fit a signature or a module lacks a name. The
manual has the first two as a page.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
EMPTY: Any = inspect.Parameter.empty
"""The default of a required parameter of a function that refuses by itself what is missing."""

_GRAD = "grad, the first argument"
_WEIGHTS = "a call of attention_weights, which returns them"
_LENGTHS = "keep, which is True where a key may be seen: np.arange(M) < lengths[:, None, None, None]"
_MASK = "keep (True = this key may be seen), or bias=dense(array) for numbers"
_SEGMENTS = "q_segments and k_segments, the number of a sequence for each token"
_CONFIG = "frequencies=rope_from_config(config), or the keys of rope_frequencies"

ARGUMENTS: Mapping[str, str] = {
    "alibi_slopes": "bias=alibi(slopes)",
    "attention_bias": "bias=dense(array)",
    "attention_mask": _MASK,
    "AttentionMask": "causal=True, or keep (True = this key may be seen)",
    "attn_bias": "bias=dense(array)",
    "attn_mask": _MASK,
    "block_mask": "keep, window or causal",
    "cache_seqlens": _LENGTHS,
    "causal_mask": "causal=True",
    "cos": "a call of rope_by_table(x, cos, sin)",
    "cotangent": _GRAD,
    "ct": _GRAD,
    "cu_seqlens": _SEGMENTS,
    "cu_seqlens_k": _SEGMENTS,
    "cu_seqlens_q": _SEGMENTS,
    "d_model": "dim",
    "dO": _GRAD,
    "do": _GRAD,
    "dout": _GRAD,
    "downscale_freq_shift": 'denominator: 0 is "dim", 1 is "half-1"',
    "dropout_p": "dropout, with seed",
    "dropout_rate": "dropout, with seed",
    "dropout_rng": "seed",
    "embed_dim": "dim",
    "embedding_dim": "dim",
    "enable_gqa": "nothing, because heads may share keys without it",
    "flip_sin_to_cos": 'order="cossin"',
    "freqs": "frequencies, in radians per position",
    "freqs_cis": "frequencies, in radians per position",
    "g": _GRAD,
    "grad_out": _GRAD,
    "grad_output": _GRAD,
    "head_dim": "dim, or nothing where an array has it",
    "interleaved": 'layout="interleaved" for True, layout="half" for False',
    "inv_freq": "frequencies",
    "is_causal": 'causal, with align="start" if N != M',
    "is_decoder": "bidirectional=False",
    "is_neox_style": 'layout="half" for True, layout="interleaved" for False',
    "key": "k",
    "key_lengths": _LENGTHS,
    "key_padding_mask": "keep=~mask[:, None, None, :], where True is a key that may be seen",
    "key_value_seq_lengths": _LENGTHS,
    "lengths": _LENGTHS,
    "local_window_size": "window=(left, right), numbers of keys or None",
    "logits_soft_cap": "softcap",
    "mask": _MASK,
    "max_len": "positions: an int n means 0..n-1",
    "max_position_embeddings": "positions: an int n means 0..n-1",
    "max_seq_len": "positions: an int n means 0..n-1",
    "n_heads": "heads, or nothing where an array has the axis",
    "need_weights": _WEIGHTS,
    "num_attention_heads": "heads, or nothing where an array has the axis",
    "num_buckets": "nothing, because the rows of the table are the buckets",
    "num_heads": "heads, or nothing where an array has the axis",
    "offset": "start",
    "out": "nothing, because the result is a new array",
    "output_attentions": _WEIGHTS,
    "partial_rotary_factor": "rotary_dim, a number of channels",
    "past_key_values": 'align="end" with the cached keys and the new ones in k',
    "pos": "positions",
    "position_bias": "bias, an operator such as t5(table, bidirectional=...) or dense(array)",
    "position_ids": "positions",
    "position_offset": "start",
    "query": "q",
    "query_seq_lengths": _LENGTHS,
    "return_attn_probs": _WEIGHTS,
    "return_softmax_lse": "return_lse",
    "rope_base": "base",
    "rope_scaling": _CONFIG,
    "rope_theta": "base",
    "rotary_percent": "rotary_dim, a number of channels",
    "rotate_half": 'layout="half"',
    "s_aux": "sink",
    "scaling": "scale, or for rotations " + _CONFIG,
    "score_mod": "bias: an operator, or distance_function(...) for your own",
    "segment_ids": _SEGMENTS,
    "seq_dim": "seq_axis",
    "seq_len": "positions: an int n means 0..n-1",
    "seq_length": "positions: an int n means 0..n-1",
    "seqlens_k": _LENGTHS,
    "sequence_length": "positions: an int n means 0..n-1",
    "sliding_window": "window=(sliding_window - 1, 0), where the query itself is not counted",
    "slopes": "bias=alibi(slopes)",
    "sm_scale": "scale",
    "softmax_scale": "scale",
    "theta": "base",
    "unsqueeze_dim": "seq_axis: -2 for (..., H, N, D), -3 for (..., N, H, D)",
    "use_causal_mask": "causal",
    "value": "v",
    "window_size": "window=(left, right), numbers of keys or None",
    "xpos_scale_base": "scale_base",
}
"""A keyword -> what to pass in its place. A sentence counts if it names no argument that the function lacks."""

POSITIONAL: Mapping[str, str] = {
    "alibi": "lengths go to its method matrix(n, m)",
    "attention": "options go by name: bias=, keep=, causal=True",
    "attention_vjp": "options go by name: bias=, keep=, causal=True",
    "rope": "k is rotated by a second call, and layout goes by name",
    "rope_nd": "k is rotated by a second call, and layout goes by name",
    "t5": "lengths go to its method matrix(n, m)",
}
"""A function -> what is meant by one positional argument more than it takes."""

NAMES: Mapping[str, str] = {
    "absolute_positions": "learned(table, positions)",
    "alibi_bias": "alibi(alibi_slopes(H)), whose matrix(N) is the array",
    "alibi_matrix": "alibi(alibi_slopes(H)), whose matrix(N) is the array",
    "apply_rope": "rope(x, positions, frequencies), once for q and once for k",
    "apply_rotary": "rope(x, positions, frequencies), once for q and once for k",
    "apply_rotary_emb": "rope(x, positions, frequencies), once for q and once for k",
    "apply_rotary_pos_emb": "rope(x, positions, frequencies), once for q and once for k",
    "apply_rotary_pos_emb_2d": "rope_nd(x, positions, axial_frequencies(dims))",
    "attn": "attention(q, k, v)",
    "build_alibi_tensor": "alibi(alibi_slopes(H)), whose matrix(N) is the array",
    "causal_mask": "attention(..., causal=True)",
    "dot_product_attention": "attention(q, k, v)",
    "dynamic_ntk": 'rope_frequencies(D, rope_type="dynamic", ...)',
    "flash_attention": "attention(q, k, v)",
    "flash_attn_func": "attention(q, k, v) with axes (..., H, N, D)",
    "flex_attention": "attention(q, k, v, bias=...), with distance_function for your own scores",
    "get_2d_sincos_pos_embed": "sinusoidal(positions, dim), for rows and for columns",
    "get_alibi_slopes": "alibi_slopes(H)",
    "get_slopes": "alibi_slopes(H)",
    "get_timestep_embedding": "sinusoidal(t, dim)",
    "inv_freq": "rope_frequencies(D)",
    "kerple": "kerple_log(r1, r2) or kerple_power(r1, r2)",
    "learned_positional_embedding": "learned(table, positions)",
    "memory_efficient_attention": "attention(q, k, v) with axes (..., H, N, D)",
    "mrope": "rope_nd(x, positions, mrope_frequencies(w, sections))",
    "multi_head_attention": "attention(q, k, v)",
    "MultiheadAttention": "attention(q, k, v), for projections of your own",
    "MultiHeadAttention": "attention(q, k, v), for projections of your own",
    "ntk": 'rope_frequencies(D, rope_type="ntk", ...)',
    "position_bias": "t5(table, bidirectional=...) or another operator, whose matrix(N) is the array",
    "position_embedding": "learned(table, positions)",
    "positional_encoding": "sinusoidal(n, dim)",
    "PositionalEncoding": "sinusoidal(n, dim)",
    "precompute_freqs_cis": "rope_frequencies(D), or rope_table(positions, frequencies) for cos and sin",
    "relative_position_bias": "t5(table, bidirectional=...), whose matrix(N) is the array",
    "relative_position_bucket": "t5_bucket(rel, bidirectional=...)",
    "relative_positions_bucket": "t5_bucket(rel, bidirectional=...)",
    "RoPE": "rope(x, positions, frequencies)",
    "rope_2d": "rope_nd(x, positions, axial_frequencies(dims))",
    "rope_freqs": "rope_frequencies(D)",
    "rope_scaling": "rope_from_config(config)",
    "rotary": "rope(x, positions, frequencies)",
    "rotary_embedding": "rope(x, positions, frequencies)",
    "RotaryEmbedding": "rope_frequencies(D), for rope(x, positions, frequencies)",
    "rotate_half": 'rope(x, positions, frequencies, layout="half")',
    "scaled_dot_product_attention": "attention(q, k, v)",
    "sdpa": "attention(q, k, v)",
    "self_attention": "attention(q, k, v)",
    "shaw_bias": "shaw(rel_k, rel_v)",
    "sin_cos": "sinusoidal(n, dim)",
    "sinusoid": "sinusoidal(n, dim)",
    "sinusoidal_embedding": "sinusoidal(n, dim)",
    "sinusoidal_encoding": "sinusoidal(n, dim)",
    "sinusoidal_position_encoding": "sinusoidal(n, dim)",
    "sinusoidal_positional_encoding": "sinusoidal(n, dim)",
    "sliding_window": "attention(..., window=(left, right))",
    "sliding_window_attention": "attention(..., window=(left, right))",
    "softmax": "attention_weights(q, k), which has the weights",
    "t5_bias": "t5(table, bidirectional=...), whose matrix(N) is the array",
    "t5_buckets": "t5_bucket(rel, bidirectional=...)",
    "T5RelativePositionBias": "t5(table, bidirectional=...), whose matrix(N) is the array",
    "timestep_embed": "sinusoidal(t, dim)",
    "timestep_embedding": "sinusoidal(t, dim)",
    "xformers": "attention(q, k, v)",
    "xpos_scale": "xpos(x, positions, frequencies)",
    "yarn": 'rope_frequencies(D, rope_type="yarn", ...)',
}
"""A name that `posenc` has not -> the call that does it."""

MOST_LISTED = 6
"""Arguments that a message lists; of a function with more, it names help()."""


def expected_argument(function: str, word: str, keywords: Sequence[str]) -> str:
    """Return what a function, with these keywords, expects in place of an unknown one."""
    from difflib import get_close_matches  # importing it takes too long for `import posenc`

    sentence = ARGUMENTS.get(word, "")
    named = re.match(r"\w+", sentence)
    if named and named[0] in (*keywords, "nothing", "a"):
        return sentence
    close = get_close_matches(word, keywords, 1)
    return close[0] if close else ", ".join(keywords) if len(keywords) <= MOST_LISTED else f"those of help({function})"


def missing_name(module: str, word: str, names: Sequence[str], table: Mapping[str, str]) -> AttributeError:
    """Return the error for a name that a module has not. Python adds what is spelt alike when it prints it."""
    vjp = re.sub(r"_(backward|bwd|grad|gradient)$", "_vjp", word)
    expected = table.get(word) or (vjp if vjp in names else "")
    hint = f"; expected {module}.{expected}" if expected else ""
    return AttributeError(f"module {module!r} has no attribute {word!r}{hint}", name=word, obj=sys.modules[module])


def explain(name: str, function: Callable[..., Any], args: Sequence[object], options: Mapping[str, object]) -> str:
    """Return what is wrong with a call that does not fit the signature of a function, as a message; "" if it fits."""
    parameters = dict(inspect.signature(function).parameters)
    args = args[1:] if parameters.pop("self", None) else args
    own = name.rpartition(".")[2]
    places = [k for k, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    unknown = [word for word in options if word not in parameters]
    given = {*places[: len(args)], *options}
    absent = [k for k, p in parameters.items() if p.default is p.empty and k not in given]
    if unknown:
        return f"{name}: {unknown[0]} is unknown; expected {expected_argument(name, unknown[0], list(parameters))}"
    if len(args) > len(places):
        others = "others go by name" if len(parameters) > len(places) else "no more"
        more = POSITIONAL.get(own, others)
        return f"{name}: {len(args)} positional arguments were given; expected {', '.join(places)}; {more}"
    if absent:
        needed = [k for k, p in parameters.items() if p.default is p.empty]
        return f"{name}: {absent[0]} is missing; expected {own}({', '.join(needed)})"
    twice = [k for k in places[: len(args)] if k in options]
    return f"{name}: {twice[0]} is given twice, by place and by name" if twice else ""


def refuse(name: str, function: Callable[..., Any], args: Sequence[object], options: Mapping[str, object]) -> NoReturn:
    """Raise what `explain` says."""
    raise TypeError(explain(name, function, args, options)) from None


def refuse_rest(
    name: str,
    function: Callable[..., Any],
    given: Mapping[str, object],
    more: Sequence[object],
    rest: Mapping[str, object],
) -> NoReturn:
    """Raise what is wrong with a call of a function that `take_all` decorates; of `given`, EMPTY was left out."""
    if more:
        refuse(name, function, [*given.values(), *more], rest)
    refuse(name, function, (), {**{k: value for k, value in given.items() if value is not EMPTY}, **rest})


def take_all(function: Function) -> Function:
    """Decorate a function that takes all arguments, ``*more`` and ``**unknown``, so that its signature has its own.

    It refuses them itself, because the wrapper of `door` takes a fifth of its small calls.
    """
    plain = inspect.signature(function)
    own = [p for p in plain.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    function.__signature__ = plain.replace(parameters=own)  # type: ignore[attr-defined]
    return function
