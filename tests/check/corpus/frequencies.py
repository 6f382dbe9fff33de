"""Bases, scalings to longer contexts, and attention factors."""

import numpy as np
import plain

from posenc import check

from . import reported


def config(head_dim=64, base=500000.0, **scaling):
    keys = {"head_dim": head_dim, "rope_theta": base, "max_position_embeddings": 131072}
    return {**keys, **({"rope_scaling": scaling} if scaling else {})}


LLAMA3 = config(
    rope_type="llama3",
    factor=32.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)


def yarn(head_dim=32, factor=64.0, base=10000.0, **more):
    """A config whose trained length is so short that the ramp shows."""
    return config(head_dim, base, rope_type="yarn", factor=factor, original_max_position_embeddings=32, **more)


def rope(w, right, factor=1.0, **options):
    return check.rope(lambda x, p: plain.rope(x, p, w, factor=factor), right, layout="half", **options)


@reported("karpathy/llama2.c#356", "The base is 10000; expected 1000000.")
def fixed_base():
    """The base is fixed at 10000, and Code Llama has 1000000."""
    return rope(plain.frequencies(32), config(32, 1e6))


@reported("lyogavin/airllm#369", "The base is 10000; expected 500000.")
def base_not_copied():
    """Every field of the config is copied but rope_theta, so a default of 10000 takes its place."""
    return rope(plain.frequencies(64), config())


@reported("huggingface/candle#3746", "The base is 10000; expected 5000000.")
def base_of_yi():
    """The table is made with 10000, and the config's 5000000 is read nowhere."""
    return rope(plain.frequencies(128), config(128, 5e6))


@reported("vllm-project/vllm#9503", "The base is 10000; expected 50000.")
def base_of_phi():
    """The base of Phi is fixed in the code; the config is not read."""
    return check.frequencies(plain.frequencies(32), config(32, 50000.0))


@reported("jmaczan/tiny-vllm#1", "they are not scaled")
def no_llama3():
    """The kernel computes base**(-2 k / d), without the three regions of Llama 3."""
    return rope(plain.frequencies(64, 500000.0), LLAMA3)


@reported("lablup/mlxcel#1355", "they are not scaled")
def llama3_parsed_and_not_used():
    """The block rope_scaling is parsed, and the frequencies do not read it."""
    return check.frequencies(plain.frequencies(64, 500000.0), LLAMA3)


@reported("huggingface/transformers#32330", "they are not scaled")
def llama3_not_returned():
    """The frequencies are scaled in a new variable, and the old one is returned."""

    def inv_freq():
        old = plain.frequencies(64, 500000.0)
        wavelength = 2 * np.pi / old
        new = np.where(wavelength > 8192, old / 32, old)
        smooth = (8192 / wavelength - 1) / 3
        new = np.where((wavelength <= 8192) & (wavelength >= 2048), ((1 - smooth) / 32 + smooth) * new, new)
        return old

    return check.frequencies(inv_freq, LLAMA3)


@reported("ml-explore/mlx-examples#907", "Wrong are pairs 15-17.", "localised")
def ramp_of_wavelengths():
    """The blend is linear in the wavelength, and periods are blended, not frequencies."""

    def inv_freq():
        period = 1 / plain.frequencies(64, 500000.0)
        wavelength = 2 * np.pi * period
        smooth = (wavelength - 2048) / (8192 - 2048)
        middle = period * ((1 - smooth) * 32 + smooth)
        return 1 / np.where(wavelength < 2048, period, np.where(wavelength > 8192, period * 32, middle))

    return check.frequencies(inv_freq, LLAMA3)


@reported("InternLM/lmdeploy#2157", "are counted as L / 2 * pi * w; expected L w / (2 pi).")
def parentheses():
    """The turns within the trained length L are L / 2 * pi times the frequency: parentheses are missing."""

    def inv_freq():
        w = plain.frequencies(64, 500000.0)
        smooth = np.clip(8192 / 2 * np.pi * w / 3 - 1 / 3, 0, 1)
        return (1 - smooth) * w / 32 + smooth * w

    return check.frequencies(inv_freq, LLAMA3)


@reported("apache/tvm#18576", "Wrong are pairs 1-15.", "localised")
def power_of_the_factor():
    """The interpolated frequencies are (factor base)**(-2 k / d), and the ends of the ramp are rounded."""

    def inv_freq():
        plain_w, scaled = plain.frequencies(32), plain.frequencies(32, 64.0 * 10000.0)
        ends = [32 * np.log(32 / (turns * 2 * np.pi)) / (2 * np.log(10000.0)) for turns in (32, 1)]
        ramp = np.clip((np.arange(16) - max(np.floor(ends[0]), 0)) / np.ceil(ends[1]), 0, 1)
        return scaled * ramp + plain_w * (1 - ramp)

    return check.frequencies(inv_freq, yarn(truncate=False))


@reported("sgl-project/sglang#33558", "The attention factor 1.4852 is applied twice.")
def factor_of_the_factor():
    """attention_factor is multiplied with YaRN's own factor, although it is the final number."""
    factor = 0.1 * np.log(128) + 1
    right = yarn(factor=128.0, attention_factor=factor)
    return rope(plain.yarn(32, 1e4, 128.0, 32), right, factor**2)


@reported("NVIDIA/TensorRT-LLM#16379", "attention_factor is used as mscale")
def factor_as_mscale():
    """attention_factor is passed on as mscale, so 0.1 mscale ln(factor) + 1 is computed of it."""
    right = yarn(attention_factor=1.25)
    return rope(plain.yarn(32, 1e4, 64.0, 32), right, 0.1 * 1.25 * np.log(64) + 1)


@reported("ml-explore/mlx-lm#1507", "The attention factor is 0.1 ln(factor) + 1; the config sets 1.")
def factor_not_read():
    """The factor is always 0.1 ln(factor) + 1; a config may set another one, such as 1."""
    return rope(plain.yarn(32, 1e4, 64.0, 32), yarn(attention_factor=1.0), 0.1 * np.log(64) + 1)


@reported("vllm-project/vllm#48623", "The attention factor is 0.1 ln(factor) + 1; the config sets 1.")
def mscale_not_read():
    """The factor is 0.1 ln(factor) + 1, and mscale and mscale_all_dim are not read."""
    right = yarn(factor=16.0, mscale=1.0, mscale_all_dim=1.0)
    return rope(plain.yarn(32, 1e4, 16.0, 32), right, 0.1 * np.log(16) + 1)


@reported("guoqingbao/xinfer#329", "Logits are 2.0047 (the attention factor squared) times the right ones.")
def factor_in_the_scale():
    """The softmax scale is multiplied by the square of YaRN's factor, which cos and sin have already."""
    w, factor = plain.yarn(16, 1e4, 64.0, 32), 0.1 * np.log(64) + 1

    def attention(q, k, v):
        n, m = q.shape[-2], k.shape[-2]
        q, k = (plain.rope(x, p, w, factor=factor) for x, p in ((q, np.arange(m - n, m)), (k, np.arange(m))))
        return plain.attention(q, k, v, scale=factor**2 / 4)

    return check.attention(attention, frequencies=yarn(16), layout="half")


@reported("jagmarques/nexusquant#12", "All pairs are rotated; the last ones have the frequency 0.")
def all_pairs():
    """All pairs are rotated; a config of the type proportional rotates the first quarter of them."""
    scaling = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
    return rope(plain.frequencies(32, 1e6), {"head_dim": 32, "rope_parameters": scaling})


@reported("sgl-project/sglang-jax#1472", "The frequencies are rounded to bfloat16.")
def rounded_frequencies():
    """The frequencies are converted to bfloat16 before they are multiplied by the positions."""
    return rope(bfloat16(plain.frequencies(32)), None, dim=32)


@reported("huggingface/candle#3520", "Positions, frequencies and angles are rounded to bfloat16.")
def rounded_angles():
    """Frequencies and positions are converted to bfloat16, and so are their products and the tables."""

    def rotate(x, p):
        angle = bfloat16(bfloat16(p)[:, None] * bfloat16(plain.frequencies(32)))
        cos, sin = (bfloat16(np.tile(table, 2)) for table in (np.cos(angle), np.sin(angle)))
        return x * cos + plain.rotate_half(x, "half") * sin

    return check.rope(rotate, dim=32, layout="half")


@reported("nkalyanv99/UNI-D2#6", "Positions, frequencies and angles are rounded to bfloat16.")
def positions_of_the_buffer():
    """Positions get the dtype of the buffer of frequencies, which a cast of the model made bfloat16."""

    def rotate(x, p):
        angle = bfloat16(bfloat16(p)[:, None] * bfloat16(plain.frequencies(32)))
        cos, sin = (np.tile(table, 2) for table in (np.cos(angle), np.sin(angle)))
        return x * cos + plain.rotate_half(x, "half") * sin

    return check.rope(rotate, dim=32, layout="half")


@reported("NVIDIA/Megatron-LM#535", "Positions, frequencies and angles are rounded to float16.")
def positions_in_float16():
    """Positions get the dtype of the frequencies, float16, and so do the angles."""

    def rotate(x, p):
        angle = (np.float16(p)[:, None] * np.float16(plain.frequencies(32))).astype(float)
        cos, sin = (np.tile(table, 2) for table in (np.cos(angle), np.sin(angle)))
        return x * cos + plain.rotate_half(x, "half") * sin

    return check.rope(rotate, dim=32, layout="half")


@reported("KellerJordan/modded-nanogpt#39", "The tables of cos and sin are rounded to bfloat16")
def rounded_tables():
    """The tables of cos and sin are stored in bfloat16."""

    def rotate(x, p):
        cos, sin = (bfloat16(table) for table in plain.tables(p, plain.frequencies(32), "half"))
        return x * cos + plain.rotate_half(x, "half") * sin

    return check.rope(rotate, dim=32, layout="half")


def bfloat16(x):
    fraction, exponent = np.frexp(np.asarray(x, float))
    return np.ldexp(np.rint(fraction * 256) / 256, exponent)
