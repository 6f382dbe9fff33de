"""docs/explanations/claims.md: claims of S0 to S4 that no other test shows, and the counts at the top of the page."""

import re
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc import analysis, reference

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanations" / "claims.md").read_text("utf-8")
VERDICTS = ("reproduced", "refuted", "untestable")


def rows():
    """(document, claim, verdict, evidence) of every row of the tables of claims."""
    found = []
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        table = re.findall(r"^\| (.+?) \| ([a-z]+)[^|]* \| (.+?) \|$", section, flags=re.MULTILINE)
        found += [(section[:2], *row) for row in table if row[1] in VERDICTS]
    return found


# ---- the page ----


def test_counts():
    """The counts at the top of the page are those of its tables."""
    claims = rows()
    documents = ("S0", "S1", "S2", "S3", "S4")
    lines = []
    for document in (*documents, "all"):
        own = [verdict for name, _, verdict, _ in claims if document in (name, "all")]
        lines.append(" | ".join([document, *(str(own.count(verdict)) for verdict in VERDICTS), str(len(own))]))
    assert all(f"| {line} |" in PAGE for line in lines), "docs/explanations/claims.md needs\n" + "\n".join(lines)
    assert {name for name, *_ in claims} == set(documents)


def test_every_claim_has_evidence():
    """A test that exists, a page, or a command of the list; or for untestable claims the reason."""
    tests = set()
    for file in ROOT.glob("tests/**/test_*.py"):
        tests |= set(re.findall(r"^def (test_\w+)", file.read_text("utf-8"), flags=re.MULTILINE))
    commands = set(re.findall(r"^- \((\w)\) `", PAGE, flags=re.MULTILINE))
    missing = []
    for document, claim, verdict, evidence in rows():
        named, pages = re.findall(r"`(\w+)`", evidence), re.findall(r"\]\((\S+?\.md)", evidence)
        letters = re.findall(r"command \((\w)\)", evidence)
        exist = [name in tests for name in named] + [letter in commands for letter in letters]
        exist += [(ROOT / "docs" / "explanations" / page).exists() for page in pages]
        if not all(exist) or (verdict != "untestable" and not exist):
            missing.append(f"{document}: {claim}: {evidence}")
    assert not missing, "\n".join(missing)
    assert all(len(cell) <= 60 for row in rows() for cell in row)


def test_every_refuted_claim_has_a_note():
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        marked = re.findall(r"^\| .+? \| [a-z]+ \((\d+)\) \| ", section, flags=re.MULTILINE)
        assert marked == re.findall(r"^(\d+)\. ", section, flags=re.MULTILINE)
        assert not re.search(r"\| refuted \|", section)


# ---- S0, S3: the sinusoid ----


def test_positions_are_distinct():
    """S0: each position has its own vector. Of 2048 positions with 64 channels no two are closer than 0.8."""
    p = posenc.sinusoidal(2048, 64, dtype=np.float64)
    squared = 64 - 2 * p @ p.T
    assert np.sqrt(squared[~np.eye(2048, dtype=bool)].min()) > 0.8


def test_equal_offsets_have_unequal_differences():
    """S0 says that the difference of two encodings depends on the offset alone. Only its length does."""
    p = posenc.sinusoidal(512, 64, dtype=np.float64)
    difference = p[3:] - p[:-3]
    assert np.abs(difference - difference[0]).max() > 1
    assert np.ptp(np.linalg.norm(difference, axis=1)) <= 1e-13


def test_projections_let_absolute_positions_in(rng):
    """S0 and S3: a prefix does not change how two words attend to each other. With projections of sinusoids it does;
    with rotary embeddings it does not."""
    d = 64
    p, w = posenc.sinusoidal(512, d, dtype=np.float64), rng.standard_normal((2, d, d)) / np.sqrt(d)
    logits = np.diag(p @ w[0] @ (p @ w[1]).T, 3)
    assert np.ptp(logits) > 0.5 * np.abs(logits).max()
    q, k = np.broadcast_to(rng.standard_normal((2, 1, d)), (2, 512, d))
    q, k = (posenc.rope(x, 512, posenc.rope_frequencies(d), layout="half") for x in (q, k))
    rotated = np.diag(q @ k.T, 3)
    assert np.ptp(rotated) <= 1e-12 * d


def test_padding_is_masked(rng):
    """S3: positions beyond the words of a sequence do not matter, because they are masked."""
    q, k, v = rng.standard_normal((3, 2, 9, 8))
    keep = np.arange(9) < 6
    changed = v.copy()
    changed[:, 6:] = np.nan
    assert np.array_equal(posenc.attention(q, k, changed, keep=keep), posenc.attention(q, k, v, keep=keep))
    short = posenc.attention(q, k[:, :6], v[:, :6])
    assert np.abs(posenc.attention(q, k, v, keep=keep) - short).max() <= 1e-15 * 9


# ---- S1: equations 7 to 10 ----


def test_equations_7_to_10():
    """p_m p_n* is a function q of m - n; the absolute values are constant and the angles an arithmetic progression."""
    p = posenc.sinusoidal(99, 2, frequencies=[0.3], order="cossin", dtype=np.float64) @ [1, 1j]
    products = p[:, None] * p.conj()
    m, n = np.indices(products.shape)
    assert np.abs(products - np.exp(0.3j * (m - n))).max() <= 4e-15 * 99
    assert np.abs(np.abs(p) - 1).max() <= 4e-16
    steps = np.angle(p[1:] / p[:-1])
    assert np.abs(steps - 0.3).max() <= 1e-14


def test_any_frequencies_solve_equation_5(rng):
    """S1: the solution is not unique; any frequencies, in any order, are one."""
    p = posenc.sinusoidal(60, 14, frequencies=rng.uniform(0, 2, 7), dtype=np.float64)[:, rng.permutation(14)]
    gram = p @ p.T
    assert max(np.ptp(np.diag(gram, offset)) for offset in range(59)) <= 1e-13


# ---- S4 ----


def test_expansion_of_the_logits(rng):
    """S4: (x + p) W_Q W_K' (x + p)' is the sum of input-input, input-position, position-input and position-position."""
    x, p = rng.standard_normal((2, 6, 8))
    w_q, w_k = rng.standard_normal((2, 8, 8))
    whole = (x + p) @ w_q @ w_k.T @ (x + p).T
    parts = [a @ w_q @ w_k.T @ b.T for a in (x, p) for b in (x, p)]
    assert np.abs(whole - sum(parts)).max() <= 1e-12


def test_t5_keeps_input_input_and_adds_a_number(rng):
    """S4: T5 drops the mixed terms, and a learned number replaces position-position."""
    x, table = rng.standard_normal((1, 6, 8)), rng.standard_normal((32, 1))
    bias = posenc.t5(table, unscaled=True)
    logits = x @ x.swapaxes(-1, -2) + bias.matrix(6, dtype=np.float64)
    expected = reference.attention(x, x, x, bias=posenc.dense(logits), scale=0.0)
    assert np.abs(posenc.attention(x, x, x, bias=bias) - expected).max() <= 1e-13


def test_rows_beyond_a_learned_table(rng):
    """S4: a table of 512 rows has no position 512, unless rows are added to it."""
    table = rng.standard_normal((512, 4))
    with pytest.raises(IndexError, match="learned: positions"):
        posenc.learned(table, [512])
    longer = np.concatenate([table, rng.standard_normal((512, 4))])
    assert np.array_equal(posenc.learned(longer, 1024)[:512], table)


def test_digits_in_smaller_bases():
    """S4: a smaller base makes each digit smaller, and more digits necessary."""
    for base, width in ((10, 3), (8, 4), (6, 4), (2, 10)):
        digits = posenc.digits(np.arange(1000), base=base, width=width)
        assert digits.max() == base - 1
        with pytest.raises(ValueError, match="digits: numbers"):
            posenc.digits(999, base=base, width=width - 1)


def test_interpolation_divides_positions():
    """S4: to read 2000 positions with 1000, divide by 2: neighbours are 0.5 apart, in every pair of channels alike."""
    x = np.random.default_rng(0).standard_normal((5, 8))
    w = posenc.rope_frequencies(8, rope_type="linear", factor=2.0)
    at = np.array([0, 1, 2, 1000, 1749])
    halved = posenc.rope(x, at / 2, posenc.rope_frequencies(8), layout="half")
    assert np.abs(posenc.rope(x, at, w, layout="half") - halved).max() <= 1e-12


def test_ntk_is_a_change_of_base():
    """S4: NTK-aware RoPE writes positions in a larger base: base * factor**(d / (d - 2))."""
    d, factor = 64, 8.0
    ntk = posenc.rope_frequencies(d, rope_type="ntk", factor=factor).inv_freq
    larger = posenc.rope_frequencies(d, base=10000.0 * factor ** (d / (d - 2))).inv_freq
    np.testing.assert_allclose(ntk, larger, rtol=1e-13)


def test_attention_spreads_over_more_keys(rng):
    """S4: with more keys the entropy of attention grows; for independent logits by about log(512 / 64)."""
    entropies = []
    for m in (64, 512):
        q, k = rng.standard_normal((1, 64, 32)), rng.standard_normal((1, m, 32))
        weights = posenc.attention_weights(q, k)
        entropies.append(float(-(weights * np.log(weights)).sum(-1).mean()))
    assert entropies[1] - entropies[0] == pytest.approx(np.log(8), abs=0.2)


def test_alibi_needs_no_training():
    """S4: ALiBi's matrix is fixed, and its slopes are powers of 2 for 8 heads."""
    exponents = np.log2(posenc.alibi_slopes(8))
    assert np.array_equal(exponents, -np.arange(1.0, 9.0))


def test_a_dominant_diagonal_keeps_the_distance(rng):
    """S1: if the diagonal of H dominates, the products of one offset stay close to each other; for a full H they do
    not."""
    w, n = posenc.frequencies(32), np.arange(64)
    spread = []
    for other in (0.0, 0.02, 1.0):
        h = np.eye(32) + other * rng.standard_normal((32, 32))
        products = np.diag(analysis.inner_product(n[:, None], n, w, weights=h), 3)
        spread.append(np.ptp(products) / np.abs(products).max())
    assert spread[0] <= 1e-13 < spread[1] < 0.1 < 0.5 < spread[2]


def test_s4_recursion_counts_positions():
    """S4: a recursion can count. With W = 1, b = 0 and a small start, tanh leaves each position a vector of its own."""
    rows = posenc.recurrent(np.array([1.0, 0.5]), np.array([[0.0, -1.0], [1.0, 0.0]]), np.zeros(2), 64)
    distances = np.linalg.norm(rows[:, None] - rows, axis=-1)
    assert distances[~np.eye(64, dtype=bool)].min() > 1e-4


def test_zero_padding_tells_attention_nothing(rng):
    """S4: zeros at the border tell a convolution its positions. Attention over zeros stays symmetric."""
    x, zeros = rng.standard_normal((7, 8)), np.zeros((2, 8))

    def padded(x):
        keys = np.concatenate([zeros, x, zeros])[None]
        return posenc.attention(x[None], keys, keys)[0]

    kernel = rng.standard_normal((8, 3))
    assert analysis.order_sensitivity(padded, x).max() <= 1e-14
    assert analysis.order_sensitivity(lambda x: posenc.conv_position(x, kernel), x).min() > 0.1
