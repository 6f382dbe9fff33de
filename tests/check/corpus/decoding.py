"""Caches of keys and values."""

import numpy as np
import plain

from posenc import check

from . import reported

W16 = plain.frequencies(16)
DECODER = {"frequencies": W16, "layout": "half"}


def decoder(**errors):
    return check.cache(plain.decoder(W16, **errors), **DECODER)


def stored():
    """A function that appends to a cache, and empties it at start 0."""
    kept = {}

    def append(start, **new):
        for name, x in new.items():
            kept[name] = x if start == 0 else np.concatenate([kept[name], x], -2)
        return [kept[name] for name in new]

    return append


@reported("lucidrains/rotary-embedding-torch#11", "Each chunk is rotated from position 0")
def table_by_its_length():
    """The table of angles is cached by its length, without the offset."""
    tables, append = {}, stored()

    def step(q, k, v, start):
        places = tables.setdefault(q.shape[-2], np.arange(q.shape[-2]) + start)
        keys, values = append(start, k=plain.rope(k, places, W16), v=v)
        mask = plain.causal(q.shape[-2], keys.shape[-2])
        return plain.attention(plain.rope(q, places, W16), keys, values, mask=mask)

    return check.cache(step, chunks=(3, 3, 3), **DECODER)


@reported("fla-org/flash-linear-attention#766", "After the first chunk the positions are one too large")
def counted_too_early():
    """The count of cached tokens grows before later layers read it, so decoding rotates by one position too much."""
    return decoder(offset=lambda start: start + (start > 0))


@reported("skyzh/tiny-llm#46", "After the first chunk the positions are larger by its length")
def prompt_counted_twice():
    """After the prompt, the offset grows by the length of the prompt once more."""
    return decoder(offset=lambda start: start + 4 * (start > 0))


@reported("Blaizzy/mlx-vlm#1983", "Each chunk is rotated from position 0")
def always_0():
    """Positions are 0 .. n-1 of each call, so each generated token has the position 0."""
    return decoder(offset=lambda start: 0)


@reported("RobertCsordas/moeut#6", "The queries of each chunk are rotated from position 0; the keys are right.")
def queries_at_0():
    """The offset of the queries is computed before the cached keys are joined, so it is 0."""
    return decoder(offset=lambda start: 0, key_offset=lambda start: start)


@reported("kvcache-ai/sglang#66", "its queries read them as they were.")
def raw_new_keys():
    """The rotated keys go to the cache alone, and attention reads the keys of the chunk as they were."""
    append = stored()

    def step(q, k, v, start):
        places = start + np.arange(q.shape[-2])
        keys, values = append(start, k=plain.rope(k, places, W16), v=v)
        keys = np.concatenate([keys[..., :start, :], k], -2)
        mask = plain.causal(q.shape[-2], keys.shape[-2])
        return plain.attention(plain.rope(q, places, W16), keys, values, mask=mask)

    return check.cache(step, **DECODER)


@reported("MemTensor/MemOS#2315", "The keys of each chunk are rotated from position 0; the queries are right.")
def fragments():
    """Fragments of a cache are joined, whose keys are rotated from position 0 each."""
    return decoder(key_offset=lambda start: 0)


@reported("pytorch/executorch#21749", "Query 6 reads the keys 0; expected 0-6.", "localised")
def upper_left():
    """The mask of a later chunk of several tokens begins at key 0: a query does not see the cached keys."""
    append = stored()

    def step(q, k, v, start):
        keys, values = append(start, k=k, v=v)
        mask = plain.causal(q.shape[-2], keys.shape[-2], 0) if q.shape[-2] > 1 else None
        return plain.attention(q, keys, values, mask=mask)

    return check.cache(step)


@reported("karpathy/nanochat#452", "A single query reads all cached keys, without the window.")
def one_token_without_a_window():
    """A single query reads all cached keys, without the window."""
    append = stored()

    def step(q, k, v, start):
        keys, values = append(start, k=k, v=v)
        mask = plain.causal(q.shape[-2], keys.shape[-2], left=3) if q.shape[-2] > 1 else None
        return plain.attention(q, keys, values, mask=mask)

    return check.cache(step, window=(3, None))


@reported("pytorch/executorch#20346", "A chunk sees only its own keys.")
def chunk_overflows_the_ring():
    """A ring of twice the window is overwritten by a chunk as long as it, whose first queries lose earlier keys."""
    append = stored()

    def step(q, k, v, start):
        keys, values = append(start, k=k, v=v)
        mask = plain.causal(q.shape[-2], keys.shape[-2], left=3)
        mask[:, : max(0, keys.shape[-2] - 8)] = False
        return plain.attention(q, keys, values, mask=mask)

    return check.cache(step, window=(3, None), chunks=(8, 8))


@reported("Lightning-AI/litgpt#2182", "Query 0 reads the keys 4; expected 0.", "localised")
def ring_and_prompt():
    """A prompt longer than the window overwrites rows of the ring, and the mask counts rows as positions."""
    rows = {}

    def step(q, k, v, start):
        n, ring = q.shape[-2], 4
        for name, x in (("k", k), ("v", v)):
            if start == 0:
                rows[name] = np.zeros((*x.shape[:-2], ring, x.shape[-1]))
            for i in range(n):
                rows[name][..., (start + i) % ring, :] = x[..., i, :]
        seen = np.arange(ring) <= (start + np.arange(n))[:, None]
        return plain.attention(q, rows["k"], rows["v"], mask=seen)

    return check.cache(step, window=(3, None), chunks=(6, 1, 1, 1))
