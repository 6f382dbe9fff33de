"""Scaled rotary frequencies."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case, ulp, ulps


def at_the_unscaled(expected, work, arguments):
    """Frequencies are a sum of two parts of w, each times a ramp with four roundings; factors are logarithms within 4
    ulps."""
    w = reference.rope_frequencies(arguments["dim"], base=arguments["base"]).inv_freq
    return (8 * ulp(w, work), *(4 * ulp(e, work) for e in expected[1:]))


def case(rope_type, label="", tolerance=None, least=1, **keys):
    def make(rng, n):
        lists = {key: value(rng, n).tolist() for key, value in keys.items() if callable(value)}
        return {"dim": 2 * n, "base": 500000.0, "rope_type": rope_type, **keys, **lists}

    return Case(
        # A power, a product and a quotient, each within an ulp. Powers of the factor have a rounded exponent.
        function="rope_frequencies",
        label=f"{rope_type}{label}",
        make=make,
        tolerance=tolerance or ulps(5),
        least=least,
    )


def factors(largest):
    """Draw a factor for each pair, as checkpoints of LongRoPE have them."""
    return lambda rng, n: np.sort(rng.uniform(1, largest, n))


L8K = {"original_max_position_embeddings": 8192}
LONGROPE = {"short_factor": factors(2), "long_factor": factors(60), "original_max_position_embeddings": 4096}
DEEPSEEK = {"mscale": 0.707, "mscale_all_dim": 1.0}


def gemma3(layer_type):
    def make(rng, n):
        scaling = {"rope_type": "linear", "factor": 8.0}
        bases = {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
        return {"config": {"head_dim": 2 * n, "rope_scaling": scaling, **bases}, "layer_type": layer_type}

    return Case(function="rope_from_config", label=layer_type, tolerance=ulps(1.5), make=make, least=1)


CASES = [
    gemma3("full_attention"),
    gemma3("sliding_attention"),
    case("linear", factor=4.0),
    case("ntk", factor=8.0, least=2),
    case("dynamic", factor=3.0, max_position_embeddings=4096, seq_len=20000, least=2),
    case("dynamic", "-within", factor=3.0, max_position_embeddings=4096, least=2),
    case("ntk_by_parts", factor=16.0, tolerance=at_the_unscaled, **L8K),
    case("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, tolerance=at_the_unscaled, **L8K),
    case("yarn", factor=40.0, tolerance=at_the_unscaled, **L8K),
    case("yarn", "-untruncated", factor=32.0, truncate=False, tolerance=at_the_unscaled, **L8K),
    case("yarn", "-mscale", factor=40.0, beta_fast=16, tolerance=at_the_unscaled, **DEEPSEEK, **L8K),
    case("yarn", "-given", factor=4.0, attention_factor=1.25, tolerance=at_the_unscaled, **DEEPSEEK, **L8K),
    case("yarn", "-step", factor=32.0, beta_fast=1, beta_slow=1, tolerance=at_the_unscaled, **L8K),
    case("yarn", "-lengths", max_position_embeddings=131072, tolerance=at_the_unscaled, **L8K),
    case("longrope", "-short", max_position_embeddings=131072, **LONGROPE),
    case("longrope", "-long", factor=32.0, seq_len=4097, **LONGROPE),
    case("longrope", "-given", attention_factor=1.5, seq_len=4096, **LONGROPE),
    case("proportional", partial_rotary_factor=0.25),
    case("proportional", "-divided", partial_rotary_factor=0.5, factor=2.0),
    case("ntk_mixed", factor=8.0),
    case("ntk_mixed", "-b", factor=8.0, b=1.0),
]
