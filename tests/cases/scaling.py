"""Scaled rotary frequencies from the equations of their papers, with d channels, base b, factor s and length L."""

from __future__ import annotations

import numpy as np

from . import Case, ulp, ulps
from .sinusoid import wide


def theta(dim, base):
    """Su et al. 2021, eq. 15."""
    return wide(base) ** (-2 * wide(np.arange(dim // 2)) / dim)


def linear(dim, base, factor):
    """Chen et al. 2023: f(x, m L / L') in place of f(x, m), so the angle is m theta / s."""
    return theta(dim, base) / factor, 1.0, 1.0


def ntk(dim, base, factor):
    """Peng et al. 2023, definition 1: b' = b s**(|D| / (|D| - 2))."""
    return theta(dim, wide(base) * wide(factor) ** (wide(dim) / (dim - 2))), 1.0, 1.0


def dynamic(dim, base, factor, max_position_embeddings, seq_len=None):
    """transformers: the base of a sequence of l >= L is b (s l / L - (s - 1))**(|D| / (|D| - 2))."""
    longest = max(seq_len or 0, max_position_embeddings)
    return ntk(dim, base, wide(factor) * longest / max_position_embeddings - (factor - 1))


def ntk_by_parts(dim, base, factor, original_max_position_embeddings, beta_fast=32.0, beta_slow=1.0):
    """Peng et al. 2023, definition 2: h = (1 - gamma) theta / s + gamma theta, gamma a ramp in r = L / wavelength."""
    w = theta(dim, base)
    r = original_max_position_embeddings / (2 * wide(np.pi) / w)
    gamma = np.where(r < beta_slow, 0, np.where(r > beta_fast, 1, (r - beta_slow) / (beta_fast - beta_slow)))
    return (1 - gamma) * w / factor + gamma * w, 1.0, 1.0


def llama3(dim, base, factor, original_max_position_embeddings, low_freq_factor, high_freq_factor):
    """Llama 3.1: three bands of wavelengths, with a smooth middle band."""
    length, out = original_max_position_embeddings, []
    for w in theta(dim, base):
        wavelength = 2 * wide(np.pi) / w
        smooth = (length / wavelength - low_freq_factor) / (wide(high_freq_factor) - low_freq_factor)
        if wavelength < length / wide(high_freq_factor):
            out.append(w)
        elif wavelength > length / wide(low_freq_factor):
            out.append(w / factor)
        else:
            out.append((1 - smooth) * w / factor + smooth * w)
    return np.array(out), 1.0, 1.0


def yarn(dim, base, original_max_position_embeddings, factor=None, max_position_embeddings=None, beta_fast=32,
         beta_slow=1, truncate=True, mscale=0.0, mscale_all_dim=0.0, attention_factor=None):  # fmt: skip
    """Peng et al. 2023, section 3.4, with the ramp of their code: d ln(L / 2 pi r) / 2 ln b is the pair of r turns.

    Their temperature: sqrt(1 / t) = 0.1 ln s + 1.
    """
    length = original_max_position_embeddings
    s = wide(max_position_embeddings) / length if factor is None else wide(factor)
    low, high = (
        dim * np.log(length / (2 * wide(np.pi) * r)) / (2 * np.log(wide(base))) for r in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.array([min(max((k - low) / ((high - low) or wide("0.001")), 0), 1) for k in range(dim // 2)])

    def temperature(u):
        return float(0.1 * wide(u) * np.log(s) + 1)

    w = theta(dim, base)
    both = mscale and mscale_all_dim
    implied = temperature(mscale) / temperature(mscale_all_dim) if both else temperature(1)
    scaled = w / s * ramp + w * (1 - ramp)
    return scaled, implied if attention_factor is None else attention_factor, temperature(mscale_all_dim) ** 2


def longrope(dim, base, short_factor, long_factor, original_max_position_embeddings, factor=None,
             max_position_embeddings=None, attention_factor=None, seq_len=None):  # fmt: skip
    """Ding et al. 2024: theta_i / lambda_i; Phi-3 adds sqrt(1 + ln s / ln L)."""
    length = original_max_position_embeddings
    if attention_factor is None:
        s = wide(max_position_embeddings) / length if factor is None else wide(factor)
        attention_factor = float(np.sqrt(1 + np.log(s) / np.log(wide(length))))
    factors = long_factor if seq_len is not None and seq_len > length else short_factor
    return theta(dim, base) / wide(factors), attention_factor, 1.0


def proportional(dim, base, partial_rotary_factor=1.0, factor=1.0):
    """Barbero et al. 2024, p-RoPE: only the highest frequencies are kept; exponents are those of the whole head."""
    w = theta(dim, base) / factor
    w[int(partial_rotary_factor * dim // 2) :] = 0
    return w, 1.0, 1.0


def ntk_mixed(dim, base, factor, b=0.625):
    """Su 2023: theta_m / (lambda_1 ... lambda_m) = theta_m / exp(a m**b), m from 1, a such that the last is s."""
    m = wide(np.arange(dim // 2) + 1)
    a = np.log(wide(factor)) / wide(dim // 2) ** b
    return theta(dim, base) / np.exp(a * m**b), 1.0, 1.0


ORACLES = {
    "linear": linear, "ntk": ntk, "dynamic": dynamic, "ntk_by_parts": ntk_by_parts, "yarn": yarn,
    "longrope": longrope, "llama3": llama3, "proportional": proportional, "ntk_mixed": ntk_mixed,
}  # fmt: skip


def rope_frequencies(dim, *, base=10000.0, rope_type, **keys):
    return ORACLES[rope_type](dim, base, **keys)


def rope_from_config(config, *, layer_type=None):
    """The frequencies of a Gemma 3 config: layers of full attention are interpolated."""
    scaled = layer_type == "full_attention"
    base = config["rope_theta" if scaled else "rope_local_base_freq"]
    return linear(config["head_dim"], base, config["rope_scaling"]["factor"] if scaled else 1)


def at_the_unscaled(expected, work, arguments):
    """Frequencies are a sum of two parts of w, each times a ramp with four roundings; factors are logarithms within 4
    ulps."""
    w = theta(arguments["dim"], arguments["base"]).astype(np.float64)
    return (8 * ulp(w, work), *(4 * ulp(e, work) for e in expected[1:]))


def case(rope_type, label="", tolerance=None, least=1, **keys):
    def make(rng, n):
        lists = {key: value(rng, n).tolist() for key, value in keys.items() if callable(value)}
        return {"dim": 2 * n, "base": 500000.0, "rope_type": rope_type, **keys, **lists}

    return Case(
        # A power, a product and a quotient, each within an ulp. Powers of the factor have a rounded exponent.
        function="rope_frequencies", label=f"{rope_type}{label}", oracle=rope_frequencies, make=make,
        tolerance=tolerance or ulps(5), real=lambda rng: make(rng, 256), least=least,
    )  # fmt: skip


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

    return Case(
        function="rope_from_config", label=layer_type, oracle=rope_from_config, tolerance=ulps(1.5), make=make, least=1,
        real=lambda rng: make(rng, 256),
    )  # fmt: skip


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
    case("yarn", "-lengths", max_position_embeddings=131072, tolerance=at_the_unscaled, **L8K),
    case("longrope", "-short", max_position_embeddings=131072, **LONGROPE),
    case("longrope", "-long", factor=32.0, seq_len=4097, **LONGROPE),
    case("longrope", "-given", attention_factor=1.5, seq_len=4096, **LONGROPE),
    case("proportional", partial_rotary_factor=0.25),
    case("proportional", "-divided", partial_rotary_factor=0.5, factor=2.0),
    case("ntk_mixed", factor=8.0),
    case("ntk_mixed", "-b", factor=8.0, b=1.0),
]
