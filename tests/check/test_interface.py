"""The interface of posenc.check: reports, assertions, arrays of other libraries, the command."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import plain
import pytest

import posenc
from posenc import check

W = plain.frequencies(32)
HALF = {"dim": 32, "layout": "half"}


def wrong(x, p):
    return plain.rope(x, p, W, table_pairs="interleaved")


def at(positions):
    return partial(check.rope, lambda x, p: plain.rope(x, positions(p), W), **HALF)


YARN = {
    "head_dim": 32,
    "rope_theta": 1e4,
    "max_position_embeddings": 256,
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32},
}
TABLE = np.random.default_rng(0).standard_normal((77, 3))
ALIBI = posenc.alibi([0.5])
NEAR = abs(np.arange(24) - np.arange(24)[:, None])
SENTENCES = [  # (call, sentence), with numbers that are read off the results
    (partial(check.rope, wrong, **HALF), "The tables of cos and sin have the order of pairs (2 i, 2 i + 1)"),
    (partial(check.slopes, lambda heads: 2.0 ** (-8 * np.arange(1, heads + 1) / heads), 12),
     "The slopes are 2**(-8 h / 12); this holds for powers of two only"),
    (partial(check.slopes, 2 * posenc.alibi_slopes(12), 12), "All numbers are 2 times the right ones."),
    (partial(check.buckets, lambda rel: plain.bucket(rel) + 1), "All buckets are 1 too large."),
    (partial(check.bias, TABLE[plain.swin_index(4, 6, stride=7)].transpose(2, 0, 1), posenc.swin(TABLE, 4, 6), 24),
     "The row of the table is 7 dy + 1 dx + 26 for the steps dy and dx of rows and columns"),
    (partial(check.rope, lambda x, p: plain.rope(x, p, plain.yarn(32, 1e4, 8.0, 32)), YARN, layout="half"),
     "cos and sin lack the attention factor 1.20794"),
    (partial(check.mask, NEAR <= 8, 24, causal=False, window=(4, 4)),
     "The window reaches 8 keys back and 8 ahead; expected 4 and 4."),
    (partial(check.bias, ALIBI.matrix(24) - np.triu(np.full((24, 24), np.inf), 1), ALIBI, 24),
     "Keys after the query have -inf; expected a bias on both sides."),
    (partial(check.sinusoid, lambda p: plain.sinusoid(p % 16, 32), 32),
     "Position 16 is taken for 0: position p is taken for p mod 16; expected p."),
    (partial(check.sinusoid, plain.sinusoid(np.arange(24) + 3, 32), 32),
     "Position 0 is taken for 3: position p is taken for p + 3; expected p."),
    (partial(check.rope, lambda x, p: plain.rope(x, p, plain.frequencies(32, 3e4)), **HALF),
     "The base is 30000; expected 10000."),
    (partial(check.sinusoid, plain.sinusoid(np.arange(24), 32, base=3e4), 32), "The base is 30000; expected 10000."),
    (partial(check.rope, lambda x, p: plain.rope(x, p, np.where(np.arange(16) == 5, 0.06, W)), **HALF),
     "The frequency of pair 5 is 0.06; expected 0.056234."),
]  # fmt: skip


@pytest.mark.parametrize(("run", "sentence"), SENTENCES, ids=[sentence for _, sentence in SENTENCES])
def test_a_sentence_names_the_cause(run, sentence):
    (cause,) = run().causes
    assert sentence in cause.sentence


# ---- reports ----


def test_a_report_is_true_if_right_and_cannot_be_changed():
    right = check.slopes(posenc.alibi_slopes)
    assert right
    assert (right.causes, right.where, right.right) == ((), "", True)
    assert right._repr_png_() is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        right.right = False


def test_a_report_of_a_wrong_implementation():
    report = check.rope(wrong, **HALF)
    assert not report
    (cause,) = report.causes
    assert cause.name == "tables"
    assert "leaves an error of" in cause.evidence
    assert "layout" in cause.change
    assert "channel 1 (pair 1)" in report.where
    for part in (*cause, report.where):
        assert part in str(report)
    pytest.importorskip("matplotlib")
    assert report._repr_png_().startswith(b"\x89PNG")


def test_unknown_numbers_show_where_they_differ():
    def mine(x, p):
        y = plain.rope(x, p, W)
        y[1, 2, 5, 7] += 1
        return y

    report = check.rope(mine, **HALF)
    assert report.causes == ()
    assert "No known error gives these numbers." in str(report)
    assert "First difference: batch 1, head 2, position 5, channel 7 (pair 7)" in str(report)
    assert str(report).count("#") == 2  # the legend, and the place


def test_frequencies_of_zero_and_huge_numbers_warn_of_nothing():
    """Some hypotheses divide by the frequencies. Warnings are errors in these tests."""
    w = posenc.rope_frequencies(32, rope_type="proportional", partial_rotary_factor=0.5)
    report = check.rope(lambda x, p: posenc.rope(x, p, w, layout="half"), w, layout="interleaved")
    assert [cause.name for cause in report.causes] == ["layout"]
    assert check.slopes(np.full(12, 1e308), 12).causes == ()
    assert check.gradient(lambda g, x: np.full(3, np.inf), lambda x: x**2, np.ones(3)).causes == ()
    assert (
        check.frequencies(
            np.full(16, 5e-324),
            {"head_dim": 32, "rope_theta": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        ).causes
        == ()
    )


def test_swin_hides_pairs_by_adding_minus_100():
    regions = np.repeat([0, 1, 2], [4, 5, 3])
    mask = np.where(regions[:, None] == regions, 0.0, -100.0)
    assert check.mask(mask, 12, causal=False, segments=(regions, regions))


@pytest.mark.parametrize("size", [0.0, 1e-2])
def test_a_small_error_of_a_long_bias_is_seen(size):
    """1e-2 is 33 millionths of the largest number, 299.5; float32 explains 9 millionths."""
    right = posenc.alibi(posenc.alibi_slopes(8)).matrix(600)
    wrong = right + size * (np.arange(600) % 7 == 3)
    assert bool(check.bias(wrong, posenc.alibi(posenc.alibi_slopes(8)), 600)) is (size == 0)


def test_results_of_another_shape_and_not_a_number():
    report = check.slopes(lambda heads: np.ones(heads + 1), 12)
    assert "shape (13,); expected (12,)" in str(report)
    report = check.slopes(lambda heads: np.full(heads, np.nan), 12)
    assert (report.right, report.error) == (False, np.inf)


# ---- functions that write to their arguments, and calls that cannot see ----


def shifted(x, p):
    p += 1
    return plain.rope(x, p, W)


def rotated_in_place(x, p):
    x[:] = plain.rope(x, p, W)
    return x


def negated(rel):
    rel *= -1
    return plain.bucket(rel)


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda: check.rope(rotated_in_place, **HALF), None),
        (lambda: check.buckets(lambda rel: np.copyto(rel, plain.bucket(rel)) or rel), None),
        (lambda: check.rope(lambda x, p: np.multiply(x, 0, out=x), **HALF), ["The result does not depend on x."]),
        (lambda: check.rope(shifted, **HALF), ["position p is taken for p + 1"]),
        (lambda: check.buckets(negated), ["direction"]),
    ],
)
def test_arguments_are_copies(run, names):
    report = run()
    assert report.right is (names is None)
    assert len(report.causes) == len(names or [])
    for cause, name in zip(report.causes, names or [], strict=True):
        assert name == cause.name or name in cause.sentence


@pytest.mark.parametrize("after", [-np.inf, -1e9, 0.0, 7.0])
def test_a_causal_bias_is_not_compared_after_the_query(after):
    slopes = posenc.alibi_slopes(12)

    def mine(n, m):
        rel = np.arange(m) - np.arange(n)[:, None] - (m - n)
        return np.where(rel > 0, after, slopes[:, None, None] * rel)

    assert check.bias(mine, posenc.alibi(slopes), 9, causal=True)


def test_a_report_names_what_was_not_tried():
    square = plain.causal(9, 9)
    report = check.attention(lambda q, k, v: plain.attention(q, k, v, mask=square), causal=True)
    assert report
    (more_keys,) = report.untried
    assert "more keys than queries" in more_keys
    assert f"Not tried: {more_keys}" in str(report)
    assert "no power of two" in str(check.slopes(plain.get_slopes, 8))
    assert not check.attention(lambda q, k, v: posenc.attention(q, k, v, causal=True, align="end"), causal=True).untried
    cos, sin = plain.tables(np.arange(24), W, "half")  # far positions have no row
    report = check.rope(lambda x, p: x * cos[p] + plain.rotate_half(x, "half") * sin[p], **HALF)
    assert report
    assert "the positions 4073-4096 in another order" in str(report)


@pytest.mark.parametrize("left", [3, 20])
def test_a_window_that_hides_no_pair_is_not_tried(left):
    options = {"causal": True, "window": (left, None)}
    reports = [
        check.attention(lambda *x: posenc.attention(*x, **options, align="end"), **options),
        check.softmax(lambda *x: posenc.attention_weights(*x, **options, align="end"), **options),
        check.mask(lambda n, m: np.tri(n, m, m - n) - np.tri(n, m, m - n - left - 1) > 0, 9, **options),
    ]
    for report in reports:
        assert report
        assert report.untried == ("the window, which hides no pair; pass a larger n.",) * (left == 20)


@pytest.mark.parametrize("dim", [7, 8])
def test_an_odd_sinusoid_that_is_wrong(dim):
    for layout in ("interleaved", "half"):
        options = {"layout": layout, "denominator": "half-1"}
        assert check.sinusoid(posenc.sinusoidal(24, dim, **options), dim, **options)
    right = np.asarray(posenc.sinusoidal(24, dim, dtype=np.float64))
    assert check.sinusoid(right, dim)
    (cause,) = check.sinusoid(1.5 * right, dim).causes
    assert cause.sentence == "The numbers are 1.5 times the right ones."
    assert check.sinusoid(right + (np.arange(24) == 3)[:, None], dim).causes == ()


class OnGPU:
    """An array that NumPy cannot read before it is copied to the host, as a tensor on a GPU."""

    def __init__(self, x):
        self.x, self.dtype, self.shape = x, x.dtype, x.shape

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def cpu(self):
        return self.x


def test_a_tensor_on_a_gpu():
    assert check.rope(lambda x, p: OnGPU(plain.rope(x.cpu(), p.cpu(), W)), array=OnGPU, **HALF)


def nothing(*arrays):
    return None


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: check.rope(nothing, **HALF), "check.rope: the result is None; expected one array"),
        (lambda: check.attention(lambda q, k, v: (q, k)), "check.attention: the result is tuple; expected one array"),
        (lambda: check.slopes(lambda h: np.ones(h) * 1j), "check.slopes: the result is an array of complex128"),
        (lambda: check.mask(np.ma.ones((4, 4)), 4, causal=True), "check.mask: the result is MaskedArray"),
        (lambda: check.gradient(nothing, lambda x: x**2, np.ones(3)), "check.gradient: the result is None"),
        (
            lambda: check.gradient(lambda g, a, b: g, lambda a, b: a * b, np.ones(3), np.ones(3)),
            "check.gradient: the result is ndarray; expected 2 arrays",
        ),
        (lambda: check.bias(ALIBI, ALIBI, 9), "check.bias: impl is the operator alibi"),
        (
            lambda: check.bias(TABLE, posenc.shaw(TABLE), 9),
            r"check.bias: bias is shaw; expected check.attention\(bias=",
        ),
        (lambda: check.bias(TABLE, ALIBI + ALIBI, 9), r"check.bias: bias is alibi \+ alibi; expected one operator"),
        (lambda: check.bias(TABLE, TABLE, 9), "check.bias: bias has type ndarray; expected a bias that reads"),
        (lambda: check.rope(lambda p, x: plain.rope(x, p, W), **HALF), "impl takes \\(positions, x\\)"),
    ],
)
def test_results_that_are_no_array(run, message):
    with pytest.raises(TypeError, match=message):
        run()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: check.rope(wrong, 64, layout="half"), "check.rope: frequencies has the value 64; expected an array"),
        (
            lambda: check.mask(np.ones((3, 8)), 3, 8, window=3, causal=True, align="end"),
            r"check.mask: window is 3; expected \(left, right\)",
        ),
        (lambda: check.rope(wrong, dim=32), r'check.rope: layout is None; expected "half" or "interleaved"'),
        (
            lambda: check.rope(wrong, **HALF, positions=np.ones((3, 8, 1))),
            r"check.rope: positions has shape \(3, 8, 1\); expected a number or an array \(N,\) or \(batch, N\)",
        ),
        (
            lambda: check.sinusoid(np.zeros((24, 32)), 32, layout="halves"),
            r'layout is halves; expected "interleaved" or "half"',
        ),
        (lambda: check.sinusoid(np.zeros((24, 32)), 32, order="sin"), r'order is sin; expected "sincos" or "cossin"'),
        (
            lambda: check.mask(np.ones((3, 8)), 3, 8, align="left"),
            r'align is left; expected "end" or "start"',
        ),
    ],
)
def test_a_refused_argument(run, message):
    with pytest.raises(ValueError, match=message):
        run()


FREQUENCIES = "frequencies=posenc.rope_frequencies(dim, base=...), or a config"
UNKNOWN = {  # kind, word: what is expected
    ("rope", "theta"): FREQUENCIES,
    ("rope", "base"): FREQUENCIES,
    ("rope", "rope_scaling"): "frequencies=posenc.rope_from_config(config), or the keys of rope_frequencies",
    ("rope", "position_ids"): "positions",
    ("rope", "rtol"): "nothing, because the bound follows from the dtype",
    ("sinusoid", "theta"): "base",
    ("slopes", "num_heads"): "heads, or nothing where an array has the axis",
    ("buckets", "num_buckets"): "buckets",
    ("mask", "attn_mask"): "keep (True = this key may be seen), or bias=posenc.dense(array) for numbers",
    ("attention", "is_causal"): 'causal, with align="start" if N != M',
    ("attention", "segment_ids"): "segments, a pair: those of the queries and those of the keys",
    ("attention", "num_key_value_heads"): "kv_heads",
    ("attention", "dim_"): "dim",
    ("cache", "is_causal"): "nothing, because decoding with a cache is causal",
    ("learned", "padding_idx"): "offset: padding_idx + 1 in RoBERTa",
    ("gradient", "other"): "impl, function, arguments, dtype",
    ("attention", "other"): "those of help(check.attention)",
}


@pytest.mark.parametrize("word", UNKNOWN)
def test_an_unknown_argument_is_told_what_takes_its_place(word):
    kind, argument = word
    message = f"check.{kind}: {argument} is unknown; expected {UNKNOWN[word]}"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        getattr(check, kind)(nothing, **{argument: 1})


def test_arguments_that_are_missing_or_too_many():
    with pytest.raises(TypeError, match=r"^check.bias: bias is missing; expected bias\(impl, bias, n\)$"):
        check.bias(nothing)
    with pytest.raises(TypeError, match=r"^check.slopes: 3 positional arguments were given; expected impl, heads; "):
        check.slopes(nothing, 12, "float32")


def test_the_output_of_a_tuple_with_weights_is_judged():
    """Modules of torch return (output, weights), where weights may be None, and a mean over the heads."""
    stored = plain.decoder(plain.frequencies(16))
    rotated = {"frequencies": plain.frequencies(16), "layout": "half"}
    for weights in (None, np.ones((9, 9)), np.ones((6, 9, 9)), np.ones((1, 6, 9, 9))):
        assert check.attention(lambda *given, w=weights: (plain.attention(*given), w))
        report = check.attention(lambda *given, w=weights: (plain.attention(*given, scale=1.0), w))
        assert [cause.name for cause in report.causes] == ["no scale"]
    assert check.cache(lambda q, k, v, start: (stored(q, k, v, start), None), **rotated)
    assert check.cache(lambda q, k, v, start: (stored(q, k, v, start), np.ones((q.shape[-2], 64))), **rotated)
    with pytest.raises(TypeError, match=r"check.attention: the result is tuple; expected one array"):
        check.attention(lambda q, k, v: (q, np.ones((6, 9))))  # log-sum-exps


def test_arrays_instead_of_a_function():
    x = np.random.default_rng(0).standard_normal((3, 24, 32))
    for axes in range(2, 4):
        given = {"x": x[3 - axes] if axes == 2 else x, "dim": 32, "positions": 24}
        right = plain.rope(given["x"], np.arange(24), W)
        assert check.rope(got=right, layout="half", **given)
        assert check.rope(got=right, layout="interleaved", **given).causes[0].name == "layout"


def test_an_assertion_raises_the_report():
    check.slopes(posenc.alibi_slopes).assert_right()
    report = check.rope(wrong, **HALF)
    with pytest.raises(AssertionError, match=r"Cause: tables\. The tables of cos and sin"):
        report.assert_right()
    assert repr(report).startswith("<rope: wrong: tables: the tables of cos and sin have the order of pairs")
    assert len(repr(report)) <= 205
    assert repr(check.rope(partial(plain.rope, w=W), **HALF)).startswith("<rope: right. The largest error is")
    unknown = check.rope(lambda x, p: x**2, **HALF)
    assert repr(unknown).startswith("<rope: wrong: linearity: the result is not linear in x; expected a rotation of x.")


@pytest.mark.parametrize("positions", [600, np.arange(600) + 0.25], ids=["whole", "parts"])
def test_a_conversion_to_bfloat16_keeps_the_positions(positions):
    def mine(rounded, x, p):
        p = p.astype(ml_dtypes.bfloat16) if rounded else p
        return plain.rope(x.astype(np.float64), p.astype(np.float64), W).astype(ml_dtypes.bfloat16)

    short = {"dtype": "bfloat16", "array": lambda x: x.astype(ml_dtypes.bfloat16), "positions": positions, **HALF}
    assert check.rope(partial(mine, False), **short)
    report = check.rope(partial(mine, True), **short)
    assert [cause.name for cause in report.causes] == ["positions in bfloat16"]


# ---- the command ----

MODULE = """
import numpy as np
def slopes(heads):
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
def rope(x, p, base=10000.0):
    angle = np.asarray(p)[:, None] * base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    x1, x2 = np.split(x, 2, -1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([x1 * cos - x2 * sin, x1 * sin + x2 * cos], -1)
def fails(heads):
    raise ZeroDivisionError("no heads")
"""


def run(folder, *words):
    (folder / "mine.py").write_text(MODULE)
    (folder / "config.json").write_text(json.dumps({"head_dim": 32, "rope_theta": 500000.0}))
    environment = {**os.environ, "PYTHONPATH": str(Path(posenc.__file__).parents[1])}
    command = [sys.executable, "-m", "posenc", "check", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["slopes", "mine:slopes", "--heads", "8"], 0, "slopes: right."),
        (["rope", "mine:rope", "--config", "config.json", "--layout", "half"], 1, "expected 500000."),
        (["slopes", "mine:fails"], 2, "ZeroDivisionError: no heads"),
        (["rope", "mine:rope"], 2, "--dim is None; expected a number"),
        (["slopes", "mine:nothing"], 2, "has no attribute 'nothing'"),
        (["slope", "mine:slopes"], 2, "invalid choice: 'slope'"),
    ],
)
def test_command(tmp_path, words, status, said):
    done = run(tmp_path, *words)
    assert done.returncode == status, done.stderr
    assert said in (done.stderr if status == 2 else done.stdout)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes on exceptions")
def test_an_exception_of_the_implementation_says_what_it_was_called_with():
    def fails(x, positions):
        raise IndexError("too many indices")

    with pytest.raises(IndexError, match="too many indices") as caught:
        check.rope(fails, dim=8, layout="half")
    (note,) = caught.value.__notes__
    assert note.startswith("check.rope called it with ndarray (")
    assert "seq_axis=" in note


def refuses(*arguments):
    raise IndexError("too many indices")


@pytest.mark.parametrize(
    "run",
    [
        lambda: check.rope(refuses, **HALF),
        lambda: check.sinusoid(refuses, 32),
        lambda: check.frequencies(refuses, dim=32),
        lambda: check.slopes(refuses, 12),
        lambda: check.buckets(refuses),
        lambda: check.bias(refuses, ALIBI, 9),
        lambda: check.mask(refuses, 9),
        lambda: check.softmax(refuses),
        lambda: check.attention(refuses, causal=True),
        lambda: check.cache(refuses),
        lambda: check.learned(refuses, TABLE),
        lambda: check.merge(refuses),
        lambda: check.gradient(refuses, lambda x: x**2, np.ones(3)),
    ],
)
def test_pytest_shows_the_lines_of_the_test_and_of_the_implementation(run):
    with pytest.raises(IndexError) as caught:
        run()
    assert [entry.name for entry in caught.traceback.filter(caught)][1:] == ["<lambda>", "refuses"]


def test_a_query_of_nan_is_read_as_nan():
    """The same call gives the same numbers: NaN is equal to NaN."""

    def mine(q, k, v):
        out = plain.attention(q, k, v)
        out[:, 3] = np.nan
        return out

    (one,) = check.attention(mine).readings
    assert (one.part, one.sentence) == ("numbers", "The output is NaN for the queries 3.")


def test_frequencies_that_rise_are_not_called_reversed():
    rising, reverse = (np.arange(16) / 16) ** 1e-4, plain.frequencies(32, 3e4)[::-1].copy()
    assert "reverse" not in str(check.frequencies(rising, dim=32))
    assert "reverse" in str(check.frequencies(reverse, dim=32))
