"""What posenc.check reads off a wrong implementation by chosen inputs: each case is an error that no list has."""

from functools import partial

import numpy as np
import plain
import pytest
from plain import softmax

import posenc
from posenc import check
from posenc.check._laws import law, listed, number, runs, solved, versus

W = plain.frequencies(32)
HALF = {"dim": 32, "layout": "half"}
ALIBI = posenc.alibi(plain.get_slopes(6))
COARSE = np.where(np.arange(16) < 4, W, W[3])


def at(change):
    """A rotation by changed positions."""
    return lambda x, p: plain.rope(x, change(np.asarray(p)), W)


def by_head(x, p):
    """The second head counts positions from 7."""
    return np.stack([plain.rope(x[:, h], p + 7 * (h == 1), W) for h in range(x.shape[1])], 1)


def mirrored(x, p):
    """Channel i is paired with channel 31 - i."""
    order = np.append(np.arange(16), np.arange(31, 15, -1))
    y = np.empty(x.shape)
    y[..., order] = plain.rope(x[..., order], p, W)
    return y


def half_angle(x, p):
    """The second channel of a pair keeps its own cosine, and gets no sine."""
    cos, sin = plain.tables(p, W, "half")
    turned = plain.rotate_half(x, "half") * sin
    turned[..., 16:] = 0
    return x * cos + turned


def shared_buffer(x, p):
    """Token t is written to row (t + 1) mod N."""
    return np.roll(plain.rope(x, p, W), 1, axis=-2)


W16 = plain.frequencies(16)


def rows_and_columns(x, p, shift=0, of_columns=W16):
    """Rows turn channels 0-15, columns 16-31; columns begin at `shift`."""
    parts = [plain.rope(x[..., :16], p[0], W16), plain.rope(x[..., 16:], p[1] + shift, of_columns)]
    return np.concatenate(parts, -1)


ROPE = {
    "min": (at(lambda p: np.minimum(p, 2047)), HALF, "positions", "position p is taken for min(p, 2047); expected p"),
    "mod": (at(lambda p: p % 1024), HALF, "positions", "position p is taken for p mod 1024; expected p"),
    "index": (at(lambda p: np.arange(len(p))), HALF, "positions", "token n is rotated by n, not by its position"),
    "blocks": (at(lambda p: p // 5), HALF, "positions", "position p is taken for p // 5"),
    "line": (at(lambda p: 3 * p + 2), HALF, "positions", "position p is taken for 3 p + 2"),
    "backwards": (at(lambda p: 23 - p), HALF | {"positions": 24}, "positions", "position p is taken for 23 - p"),
    "head": (by_head, HALF, "positions", "position p is taken for p + 7; expected p. Only in heads 1"),
    "mirrored": (mirrored, HALF, "pairs", "Pairs of channels are (i, 31 - i); expected (i, i + 16) for i in 0-15"),
    "half angle": (half_angle, HALF, "formula", "x (cos) + y (-sin), x (0) + y (cos); expected"),
    "doubled sine": (partial(plain.rope, w=W, sin_factor=2.0), HALF, "formula", "x (cos) + y (-2 sin), x (2 sin)"),
    "rows": (shared_buffer, HALF, "rows", "batch row 0, head 0, token 0 is the rotated batch row 0, head 0, token 23"),
    "index of pairs": (
        lambda x, p: plain.rope(x, p, COARSE),
        HALF,
        "order of frequencies",
        "min(k, 3); expected of pair k",
    ),
    "columns": (
        partial(rows_and_columns, of_columns=W[8:]),
        HALF | {"axes": "blocks"},
        "frequencies",
        "coordinate 1 have the frequencies 0.01 * 100**(-k / 8); expected 10000**(-k / 8).",
    ),
    "slow columns": (
        partial(rows_and_columns, of_columns=W16 / 100),
        HALF | {"axes": "blocks"},
        "frequencies",
        "Cause: frequencies. The pairs 8-15 of coordinate 1 have 0.01 times the right frequencies.",
    ),
    "coordinates": (partial(rows_and_columns, shift=3), HALF | {"axes": "concat"}, "coordinates", "has the offset 3"),
}


@pytest.mark.parametrize("name", ROPE)
def test_a_rotation_is_read(name):
    impl, options, part, sentence = ROPE[name]
    report = check.rope(impl, **options)
    assert not report
    assert part in [one.part for one in report.readings], str(report)
    assert sentence in str(report)
    assert "Cause: unknown" not in str(report)


def test_two_errors_in_two_parts_are_two_readings():
    """Adjacent pairs, and positions from 4."""
    report = check.rope(lambda x, p: plain.rope(x, p + 4, W, pairs="interleaved"), **HALF)
    assert [one.part for one in report.readings] == ["pairs", "positions"]
    assert "(2 i, 2 i + 1); expected (i, i + 16)" in report.readings[0].sentence
    assert "p + 4; expected p" in report.readings[1].sentence


def test_a_reading_stands_beside_a_known_error():
    report = check.rope(lambda x, p: plain.rope(x, p, W, pairs="interleaved"), **HALF)
    assert [cause.name for cause in report.causes] == ["layout"]
    assert "Read: pairs." in str(report)


SLOW = plain.frequencies(64, 1e7) / 8
"""Frequencies down to 2e-8: the slowest pairs turn by 1e-4 at position 4096."""


@pytest.mark.parametrize(
    ("errors", "names"),
    [
        ({"sign": (1, -1)}, ["direction"]),
        ({"sin_factor": 1.1}, ["formula"]),
        ({"pairs": "interleaved"}, ["layout"]),
        ({"w": 2 * np.pi * SLOW}, ["factor of the frequencies"]),
        ({"w": np.where(np.arange(32) == 30, 0.0, SLOW)}, ["channels"]),
    ],
)
def test_slow_pairs_do_not_stand_still(errors, names):
    report = check.rope(partial(plain.rope, **{"w": SLOW, **errors}), SLOW, layout="half")
    assert [cause.name for cause in report.causes] == names, str(report)
    assert ("Channels 0-29, 31-61, 63 are rotated; expected 0-63." in str(report)) is ("channels" in names)


def test_queries_and_keys_are_read_apart():
    of_keys = at(lambda p: np.minimum(p, 9))
    (reading,) = check.rope(lambda q, k, p: (plain.rope(q, p, W), of_keys(k, p)), inputs=("q", "k"), **HALF).readings
    assert reading.sentence.startswith("Of k: Position 10 is taken for 9")


def test_nothing_is_read_of_a_right_rotation():
    calls = []

    def right(x, p):
        calls.append(p)
        return plain.rope(x, p, W)

    report = check.rope(right, **HALF)
    assert report
    assert report.readings == ()
    assert len(calls) == 2  # near and far positions


def test_frequencies_by_the_length_are_no_error_at_other_positions():
    """Dynamic scaling computes the base from the largest position."""
    config = {
        "head_dim": 32,
        "rope_theta": 1e4,
        "max_position_embeddings": 64,
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    }

    def right(x, p):
        stretch = max(2.0 * (max(p) + 1) / 64 - 1, 1.0)
        return plain.rope(x, p, plain.frequencies(32, 1e4 * stretch ** (32 / 30)))

    report = check.rope(right, config, layout="half")
    assert report
    assert report.untried[0].endswith("in another order: the result may depend on the length of the sequence.")


def test_an_implementation_that_takes_no_other_inputs_is_still_judged():
    """It counts its calls, and raises an error at the second one."""
    calls = []

    def once(x, p):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError
        return plain.rope(x, p, W)[..., ::-1]

    report = check.rope(once, **HALF)
    assert not report
    assert report.readings == ()


def test_laws():
    x = np.arange(12.0)
    assert law(x, x + 3, "p") == "p + 3"
    assert law(x, x / 4, "p") == "p / 4"
    assert law(x, np.minimum(x, 5), "p") == "min(p, 5)"
    assert law(x, x**2, "p") is None
    assert law(x[:3], x[:3] + 1, "p") is None  # too few numbers
    assert (runs([4, 1, 2, 3, 9]), listed([1, 0.5]), number(np.nan)) == ("1-4, 9", "(1, 0.5)", "NaN")
    assert versus(np.arange(20.0), x) == "(0, 1, 2, 3, 4, 5, 6, 7, ...); expected (0, 1, 2, 3, 4, 5, 6, 7, ...)"
    assert (versus(1.5, 2), versus(1.00003, 1)) == ("1.5; expected 2", "1.00003; expected 1")
    assert versus(x + (x > 9), x) == "(..., 8, 9, 11, 12); expected (..., 8, 9, 10, 11)"
    np.testing.assert_allclose(solved(np.angle(np.exp(1j * 17.0 * W))[None], W), 17, rtol=1e-9)


# ---- attention ----


def logits_of(q, k):
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])


def delayed(q, k, v):
    """Query i is answered in row i + 1."""
    return np.roll(softmax(logits_of(q, k)) @ v, 1, axis=-2)


def stale_value(q, k, v):
    """The last value is not written: the one before it is read twice."""
    return softmax(logits_of(q, k)) @ np.concatenate([v[:, :-1], v[:, -2:-1]], -2)


def averaged_parts(q, k, v):
    """Two parts of keys are averaged, whatever their sums are."""
    outs = [softmax(logits_of(q, k[:, part])) @ v[:, part] for part in (slice(0, 5), slice(5, None))]
    return (outs[0] + outs[1]) / 2


def base_2_parts(q, k, v):
    """Logarithms of base 2 are joined as natural ones."""
    parts = [logits_of(q, k[:, part]) for part in (slice(0, 3), slice(3, None))]
    share = softmax(np.stack([np.log2(np.exp(part).sum(-1)) for part in parts], -1))
    outs = [softmax(part) @ v[:, at] for part, at in zip(parts, (slice(0, 3), slice(3, None)), strict=True)]
    return share[..., :1] * outs[0] + share[..., 1:] * outs[1]


def two_rows_of_zeros(q, k, v):
    """Keys and values are padded, and the padding is seen."""
    return plain.attention(q, *(np.pad(x, ((0, 0), (0, 2), (0, 0))) for x in (k, v)))


def early_keys(q, k, v):
    """Query i reads keys up to i - 1, and at least key 0."""
    return plain.attention(q, k, v, mask=np.arange(k.shape[-2]) <= np.maximum(np.arange(q.shape[-2])[:, None] - 1, 0))


def moved_rows(change, masked="v"):
    """Causal attention that reads other rows of the values, or of the keys."""

    def function(q, k, v):
        n, m = q.shape[-2], k.shape[-2]
        k, v = (
            x[:, np.clip(change(np.arange(m), m), 0, m - 1)] if name == masked else x
            for x, name in ((k, "k"), (v, "v"))
        )
        return plain.attention(q, k, v, mask=plain.causal(n, m))

    return function


CAUSAL = {"causal": True}


def other_heads(q, k, v):
    """Values are those of the other kv head."""
    return plain.attention(q, np.repeat(k, 3, 0), np.repeat(v[::-1], 3, 0))


def steep(q, k, v):
    """The slopes of each two heads are the ones of the first."""
    at = np.arange(q.shape[-2])
    return plain.attention(q, k, v, bias=-np.repeat(plain.get_slopes(6)[::2], 2)[:, None, None] * abs(at - at[:, None]))


ATTENTION = {
    "delayed": (delayed, {}, "queries", "Row 0 of the output depends on the query 8; expected 0 alone."),
    "stale": (stale_value, {}, "keys", "Query 0 reads the keys 0-8, but the values 0-7; expected 0-8."),
    "averaged": (averaged_parts, {}, "parts of keys", "is the same for all queries: parts are averaged."),
    "base 2": (base_2_parts, {}, "parts of keys", "is 1.4427 times the right one (log2(e))"),
    "zeros": (two_rows_of_zeros, {}, "sum of weights", "The denominator holds 2 more than the sum over the keys"),
    "early": (early_keys, {"causal": True}, "keys", "Query 1 reads the keys 0; expected 0-1."),
    "heads": (other_heads, {"kv_heads": 2}, "heads", "reads the values of head (1, 1, 1, 0, 0, 0); expected h // 3."),
    "slopes": (steep, {"bias": ALIBI}, "bias", "The heads 0-1 and 2-3 and 4-5 have the same bias."),
    "values": (lambda q, k, v: softmax(logits_of(q, k)) @ k, {}, "values", "sum of the keys: keys are used as values."),
    "order": (
        lambda q, k, v: softmax(logits_of(q, k)) @ v[:, ::-1], {}, "values", "multiplies the value 8 - j; expected j.",
    ),
    "flipped": (moved_rows(lambda j, m: m - 1 - j), CAUSAL, "values", "key j multiplies the value 8 - j; expected j."),
    "rolled": (moved_rows(lambda j, m: (j - 1) % m), CAUSAL, "values", "the value (j + 8) mod 9; expected j."),
    "next": (moved_rows(lambda j, m: j + 1), CAUSAL, "values", "The weight of key j multiplies the value j + 1;"),
    "previous": (moved_rows(lambda j, m: j - 1), CAUSAL, "values", "multiplies the value j - 1; expected j."),
    "rolled keys": (moved_rows(lambda j, m: (j - 1) % m, "k"), CAUSAL, "values", "the value (j + 1) mod 9;"),
    "previous key": (moved_rows(lambda j, m: j - 1, "k"), CAUSAL, "keys", "the values 0-1, but the keys none;"),
    "scale": (
        lambda q, k, v: softmax(3 * logits_of(q, k)) @ v, {}, "scale", "Logits are 3 times the right ones.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_read(name):
    impl, options, part, sentence = ATTENTION[name]
    report = check.attention(impl, **options)
    assert not report
    assert part in [one.part for one in report.readings], str(report)
    assert sentence in str(report)
    assert "Hidden keys" not in str(report)
    assert "the mask multiplies" not in str(report)


def test_weights_that_are_logarithms_are_read():
    report = check.softmax(lambda q, k: np.log(softmax(logits_of(q, k))))
    assert "The weights are the logarithms of the right ones." in str(report)


def test_the_values_of_a_cache_that_are_lost_are_read():
    """Decoding stores keys and forgets values, so it reads the last value again."""
    stored = {}

    def step(q, k, v, start):
        new = {"k": k, "v": v if start == 0 else stored["v"][:, -1:].repeat(v.shape[-2], -2)}
        for name, x in new.items():
            stored[name] = x if start == 0 else np.concatenate([stored[name], x], -2)
        mask = plain.causal(q.shape[-2], stored["k"].shape[-2])
        return plain.attention(q, stored["k"], stored["v"], mask=mask)

    report = check.cache(step)
    assert "Query 4 reads the keys 0-4, but the values 0-3; expected 0-4." in str(report)


def test_a_cap_of_the_sum_is_not_read_as_products_too():
    at = np.arange(9)
    bias = -np.array(plain.get_slopes(6))[:, None, None] * abs(at - at[:, None])
    report = check.attention(
        lambda q, k, v: softmax(2 * np.tanh((logits_of(q, k) + bias) / 2)) @ v, bias=ALIBI, softcap=2.0
    )
    assert [one.part for one in report.readings] == ["bias"]
    assert "The cap is applied to the sum with the bias" in report.readings[0].sentence


@pytest.mark.parametrize("chunks", [(4, 1, 1, 3), (3, 2, 2)])
def test_cached_values_in_another_order_are_read(chunks):
    """The newest values are stored first."""
    stored = {}

    def step(q, k, v, start):
        stored["k"] = k if start == 0 else np.concatenate([stored["k"], k], -2)
        stored["v"] = v if start == 0 else np.concatenate([v, stored["v"]], -2)
        return plain.attention(q, *stored.values(), mask=plain.causal(q.shape[-2], stored["k"].shape[-2]))

    (cause,) = check.cache(step, chunks=chunks).causes
    order = {9: "(6, 7, 8, 5, 4, 0, 1, 2, ...)", 7: "(5, 6, 3, 4, 0, 1, 2)"}[sum(chunks)]
    assert cause.sentence.startswith(f"For query {sum(chunks) - 1}, the weight of key j multiplies the value {order};")


def test_nothing_is_read_of_right_attention():
    report = check.attention(lambda q, k, v: softmax(logits_of(q, k)) @ v)
    assert report
    assert report.readings == ()


HALF32 = {"dim": 32, "layout": "half"}


def test_a_table_that_is_kept_by_its_length_is_read():
    kept = {}

    def mine(x, p):
        w = posenc.rope_frequencies(32)
        table = kept.setdefault(x.shape[-2], posenc.rope_table(p, w))
        return posenc.rope_by_table(x, *table, layout="half")

    report = check.rope(mine, **HALF32)
    assert report.causes[0].name == "state between calls"
    kept.clear()
    assert "reverse order only" in check.rope(mine, **HALF32, positions=np.arange(100, 124)).where


@pytest.mark.parametrize(
    ("cos_of", "sin_of", "words"),
    [
        (lambda c: c, lambda s: np.roll(s, -1, -1), "Cos is right; sin of pair k is that of pair (k + 1) mod 16."),
        (lambda c: np.roll(c, -1, -2), lambda s: s, "Cos is that of the next token; sin is right."),
    ],
)
def test_cosines_and_sines_are_read_apart(cos_of, sin_of, words):
    def mine(x, p):
        cos, sin = posenc.rope_table(p, posenc.rope_frequencies(32), dtype=x.dtype)
        return posenc.rope_by_table(x, cos_of(cos), sin_of(sin), layout="half")

    assert words in [cause.sentence for cause in check.rope(mine, **HALF32, positions=24).causes]


def test_a_few_pairs_of_another_coordinate_are_listed():
    wrong = posenc.mrope_frequencies(posenc.rope_frequencies(32), (8, 4, 4))
    right = np.array(wrong)
    right[:, 8], right[:, 12] = right[::-1, 8].copy() * 0, right[:, 12]
    right[0, 8] = np.array(wrong)[1, 8]
    report = check.rope(lambda x, p: posenc.rope_nd(x, p, wrong, layout="half"), right, layout="half")
    assert report.causes[0].sentence == "The pairs 8 read the coordinates (1); expected (0)."


def test_tokens_of_nan_are_named():
    report = check.rope(lambda x, p: np.where(p[:, None] == 3, np.nan, plain.rope(x, p, W)), **HALF)
    assert [one.sentence for one in report.readings] == ["The result is NaN for the tokens 3."]


def test_rows_that_are_zero_are_named():
    table = np.array(posenc.sinusoidal(24, 32, dtype=np.float64))
    table[1] = 0
    (cause,) = check.sinusoid(table, 32).causes
    assert cause.sentence.startswith(
        "The rows of the positions (1) are wrong, the others are right. That of 1 is (0, 0, "
    )


def test_segments_that_begin_elsewhere_are_read():
    right, wrong = (np.repeat([0, 1, 2], lengths) for lengths in ([5, 4, 3], [4, 4, 4]))
    mine = (wrong == wrong[:, None]) & np.tri(12, dtype=bool)
    (cause,) = check.mask(mine, 12, causal=True, segments=(right, right)).causes
    assert cause.sentence.endswith("Segments begin at 0, 4, 8; expected at 0, 5, 9.")


def test_keys_that_no_query_reads_are_named():
    def mine(q, k, v):
        options = {"causal": True, "window": (3, 0), "q_positions": np.arange(5, 14), "k_positions": np.arange(5, 14)}
        return posenc.attention(q, k[:, 5:], v[:, 5:], **options)

    report = check.attention(mine, causal=True, window=(3, 0), m=14)
    assert "No query reads the keys 2-4; all other pairs are right." in report.causes[0].sentence


def test_a_distance_that_wraps_is_read():
    far = abs(np.subtract.outer(np.arange(150), np.arange(150)))
    wrapped = np.where(far > 128, 256 - far, far)
    report = check.bias(-posenc.alibi_slopes(4)[:, None, None] * wrapped, posenc.alibi(4), 150)
    assert report.causes[0].sentence.endswith("From 129 on, distance d has the bias of distance 256 - d.")


def test_slopes_in_16_bits_are_named():
    wrong = (posenc.alibi_slopes(12).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    (cause,) = check.slopes(wrong, 12).causes
    assert (cause.name, cause.sentence) == (
        "bfloat16",
        "The numbers are within the bound of bfloat16, but not of float32.",
    )


def bfloat16(x):
    """Round an array of float32 to bfloat16."""
    return ((x.view(np.uint32) + 0x7FFF + (x.view(np.uint32) >> 16 & 1)) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (
            lambda q, k, v: posenc.attention(bfloat16(q), k, v),
            "Queries are rounded to bfloat16; expected float32.",
        ),
        (
            lambda q, k, v: posenc.attention(*map(bfloat16, (q, k)), v),
            "Queries and keys are rounded to bfloat16; expected float32.",
        ),
        (
            lambda q, k, v: posenc.attention(np.roll(q, 1, 0), k, v),
            "Row 0 of head 0 has the query 0 of head 5, and the keys of head 0: the heads of q are in another order.",
        ),
        (
            lambda q, k, v: posenc.attention(q.swapaxes(0, 1).reshape(q.shape), k, v),
            "q (queries, heads, dim) is reshaped to (heads, queries, dim); expected transpose(0, 1).",
        ),
        (
            lambda q, k, v: posenc.attention(q * (1 + np.arange(9)[:, None] / 9), k, v),
            "Logits of the queries are (1, 1.1111, 1.2222, 1.3333, 1.4444, 1.5556, 1.6667, 1.7778, ...) times",
        ),
        (lambda q, k, v: posenc.attention(q, k, v, scale=1 / 3), "(sqrt(the width of heads over the number of"),
    ],
)
def test_products_are_read(mine, words):
    sentences = [cause.sentence for cause in check.attention(mine).causes]
    assert any(words in one for one in sentences), sentences


@pytest.mark.parametrize("base", [9900.0, 9990.0, 10100.0, 10200.0])
def test_a_base_that_is_slightly_wrong_is_read(base):
    w = posenc.rope_frequencies(64, base=base)
    report = check.rope(lambda x, p: posenc.rope(x, p, w, layout="half"), dim=64, layout="half")
    assert [cause.sentence.partition(" (")[0] for cause in report.causes] == [
        f"The base is {base:.5g}; expected 10000."
    ]


def test_slopes_in_another_order_are_those_of_other_heads():
    report = check.bias(posenc.alibi(6).matrix(12)[::-1], posenc.alibi(6), 12)
    assert report.causes[0].sentence == "Head h has the bias of head 5 - h; expected of head h."


def test_a_cache_of_one_batch_row():
    stored = {}

    def mine(q, k, v, start):
        for name, new in (("k", k), ("v", v)):
            stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
        one = (np.broadcast_to(stored[name][:1], stored[name].shape) for name in "kv")
        return posenc.attention(q, *one, causal=True, align="end")

    assert "a second batch row only" in check.cache(mine, batch=True).where


def test_the_ends_of_a_ramp_are_read():
    keys = {"base": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    config = {"head_dim": 64, "rope_theta": 10000.0, "max_position_embeddings": 16384}
    config["rope_parameters"] = {name: x for name, x in keys.items() if name != "base"}
    plain_w, pair = 10000.0 ** (-np.arange(32) / 32), np.arange(32)
    share = np.clip((pair - 12) / 9, 0, 1)
    (cause,) = check.frequencies(plain_w * (1 - share * 0.75), config).causes
    assert cause.sentence.startswith("The ramp of YaRN goes from pair 12 to 21; expected from pair ")
