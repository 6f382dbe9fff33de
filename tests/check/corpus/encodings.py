"""Sinusoidal encodings, slopes and buckets."""

import numpy as np
import plain

from posenc import check

from . import reported


def waves(angle, positions=None):
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(angle), -1)


def sinusoid(w, dim=32):
    return check.sinusoid(lambda p: waves(p[:, None] * w), dim)


@reported("shenweichen/DeepCTR#379", "one for a sine and a cosine. Channel c has the frequency base**(-2 c / dim)")
def frequency_of_each_channel():
    """Each channel has an exponent, so a sine and its cosine have different frequencies."""
    return check.sinusoid(lambda p: plain.sinusoid(p, 32, by_channel=2), 32)


@reported(
    "jadore801120/attention-is-all-you-need-pytorch#32",
    "one for a sine and a cosine. Channel c has the frequency base**(-2 c / dim)",
)
def twice_the_channel():
    """The exponent of channel c is 2 c / d; expected 2 (c // 2) / d."""

    def encoding(p):
        angle = p[:, None] / 10000.0 ** (2 * np.arange(32) / 32)
        return np.where(np.arange(32) % 2 == 0, np.sin(angle), np.cos(angle))

    return check.sinusoid(encoding, 32)


@reported("zju3dv/LoFTR#41", "The base is 7.8963e+13; expected 10000.")
def precedence():
    """a / b // 2 rounds the negative exponent of the frequencies down to -1: a base of e**32."""
    return sinusoid(np.exp(np.arange(0, 32, 2) * (-np.log(10000.0) / 32 // 2)))


@reported("maxjcohen/transformer#62", "Channels have the frequencies (1, 0.80584,", "localised")
def base_1000():
    """The base is 1000, and the exponents of the cosines are 1, 3, 5, ...; expected 0, 2, 4, ..."""

    def encoding(p):
        angle = p[:, None] / 1000.0 ** (np.arange(32) / 32)
        return np.where(np.arange(32) % 2 == 0, np.sin(angle), np.cos(angle))

    return check.sinusoid(encoding, 32)


@reported("Kyubyong/transformer#81", "All exponents are 0: they are divided as integers.")
def integer_division():
    """The exponents are divided as integers, so all are 0."""
    return sinusoid(10000.0 ** -(2 * np.arange(16) // 32).astype(float))


@reported("ivanvovk/WaveGrad#12", "The frequency of pair 0 is 0; expected 1. Wrong are pairs 0-15.", "localised")
def exponents_to_a_power():
    """Frequencies are exponents**1e-4; expected 1e-4**exponents."""
    return sinusoid((np.arange(16) / 16) ** 1e-4)


@reported("harvardnlp/annotated-transformer#131", "the reciprocals of the frequencies")
def divided():
    """The positions are divided by the frequencies; expected multiplied."""
    return sinusoid(1 / plain.frequencies(32))


@reported("tensorops/TransformerX#115", "The sines and cosines have the layout half; expected interleaved.")
def sines_before_cosines():
    """Sines and cosines are concatenated; expected interleaved."""
    return check.sinusoid(lambda p: plain.sinusoid(p, 32, layout="half"), 32)


@reported("BrianPulfer/PapersReimplementations#9", "The exponents are 4 k / dim; expected 2 k / dim.")
def every_second_of_doubled():
    """In the code that the report proposes, 1 / 10000**(2 j / d) is read at j = 0, 2, 4, ..., not 0, 1, 2, ..."""
    w = 1 / 10000.0 ** (2 * np.arange(32) / 32)
    return sinusoid(w[::2])


# ---- biases ----


@reported("ml-explore/mlx#3071", "this holds for powers of two only")
def one_sequence():
    """Slopes of ALiBi are one geometric sequence for any number of heads."""
    return check.slopes(lambda heads: 2.0 ** (-8 / heads * np.arange(1, heads + 1)), 12)


@reported("paiml/aprender#2143", "The exponents are of h - 1: the first slope is 1.")
def first_slope_1():
    """The exponent of ALiBi's slopes counts heads from 0, so the first slope is 1."""
    return check.slopes(lambda heads: 2.0 ** (-8 * np.arange(heads) / heads), 8)


@reported("huggingface/candle#1312", "The last bucket of a side is 18; expected 15.")
def no_last_bucket():
    """Buckets of far distances are not cut to the last one."""
    return check.buckets(lambda rel: plain.bucket(rel, limit=False))
