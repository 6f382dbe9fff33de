"""Decode one token at a time from caches of rotated keys, in float32 and in int8, and compare with one call over the
whole text.

python examples/decode.py
"""

import numpy as np

import posenc

HEADS, GROUPS, WORDS, WIDTH = 8, 2, 64, 64  # four query heads share a key head
rng = np.random.default_rng(0)
q = rng.standard_normal((HEADS, WORDS, WIDTH), np.float32)
k, v = rng.standard_normal((2, GROUPS, WORDS, WIDTH), np.float32)
frequencies = posenc.rope_frequencies(WIDTH)


def rotate(x, start=0):
    return posenc.rope(x, x.shape[-2], frequencies, layout="half", start=start)


whole = posenc.attention(rotate(q), rotate(k), v, causal=True)

# Token by token: each key is rotated once, when it arrives, and then stays in the cache.
# The int8 caches hold codes and a scale for each token and head.
keys, values = np.empty_like(k), np.empty_like(v)
caches = [(np.empty(x.shape, np.int8), np.empty(x.shape[:-1], np.float32)) for x in (k, v)]
largest_difference = largest_of_int8 = 0.0
for t in range(WORDS):
    new, seen = slice(t, t + 1), slice(0, t + 1)
    keys[:, new], values[:, new] = rotate(k[:, new], t), v[:, new]
    out = posenc.attention(rotate(q[:, new], t), keys[:, seen], values[:, seen], causal=True, q_positions=[t])
    largest_difference = max(largest_difference, float(np.abs(out[:, 0] - whole[:, t]).max()))

    for (codes, scale), x in zip(caches, (keys, values), strict=True):
        token = posenc.quantize(x[:, new])
        codes[:, new], scale[:, new] = token.codes, token.scale
    cached = [posenc.Quantized(codes[:, seen], scale[:, seen]) for codes, scale in caches]
    out = posenc.attention(rotate(q[:, new], t), *cached, causal=True, q_positions=[t])
    largest_of_int8 = max(largest_of_int8, float(np.abs(out[:, 0] - whole[:, t]).max()))

# The rotated keys are equal bit for bit. The outputs differ by rounding: one query has a kernel of its own.
assert np.array_equal(keys, rotate(k))
assert largest_difference < 8 * np.finfo(np.float32).eps * np.abs(v).max()
assert largest_of_int8 < np.abs(v).max() / 50
print(
    f"{WORDS} steps of decoding: keys equal bit for bit, outputs within {largest_difference:.1e} of one call over the "
    f"whole text, and within {largest_of_int8:.1e} with int8 caches of a quarter of the size"
)
