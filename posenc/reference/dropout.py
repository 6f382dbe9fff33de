"""Dropout of attention weights: random numbers that are a function of the seed and of four indices."""

import numpy as np

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
LOW = np.uint64(2**32 - 1)


def dropout_factors(shape, dropout, seed):
    """Return the factor of each weight of `attention`: 0 if the weight is dropped, else ``1 / (1 - dropout)``.

    ``u_ij = number j % 8 of philox(j // 8, i, head, row of the batch; seed)``, dropped if ``u_ij < 65536 dropout``

    Srivastava et al. 2014 (Dropout). `shape` is that of the weights, (..., H, N, M), with all batch axes of the call.
    The numbers u have 16 bits, so `dropout` is first rounded to a multiple of 2**-16, at most 65535 / 65536.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.dropout_factors((1, 2, 6), 0.5, seed=4)
    array([[[2., 0., 0., 0., 2., 2.],
            [0., 0., 0., 2., 2., 2.]]])
    """
    *batch, heads, n, m = shape
    rows = int(np.prod(batch))
    counter = np.ogrid[:rows, :heads, :n, : -(-m // 8)][::-1]
    words = np.stack(philox(counter, seed), -1)
    numbers = np.stack([words % 2**16, words // 2**16], -1)  # word w has those of the keys 2 w and 2 w + 1
    numbers = numbers.reshape(rows, heads, n, 8 * -(-m // 8))[..., :m]
    threshold = min(np.rint(65536 * float(dropout)), 65535)
    return np.where(numbers < threshold, 0, 1 / (1 - threshold / 65536)).reshape(shape)


def philox(counter, seed, rounds=7):
    """Four random words of 32 bits for a counter of four words and a seed of 64 bits: Philox4x32.

    ``(c0, c1, c2, c3) -> (high(M1 c2) ^ c1 ^ k0, low(M1 c2), high(M0 c0) ^ c3 ^ k1, low(M0 c0))`` in each round

    Salmon et al. 2011 (Parallel random numbers: as easy as 1, 2, 3), section 3.3. A round adds constants to the key k.
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, np.uint64) & LOW for word in counter))
    keys = seed % 2**32, seed >> 32
    for step in range(rounds):
        k0, k1 = (np.uint64((key + step * weyl) % 2**32) for key, weyl in zip(keys, WEYL, strict=True))
        a, b = (np.uint64(m) * c for m, c in zip(MULTIPLIERS, (c0, c2), strict=True))
        c0, c1, c2, c3 = (b >> np.uint64(32)) ^ c1 ^ k0, b & LOW, (a >> np.uint64(32)) ^ c3 ^ k1, a & LOW
    return c0, c1, c2, c3
