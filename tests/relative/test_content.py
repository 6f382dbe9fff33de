"""Every relative operator: default scales, pickling, immutability, and gradients over several tiles."""

import copy
import math
import pickle

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc


def logit(bias, **options):
    """The logit of a query and a key with 4 channels whose product is 12, with operators that add 0."""
    q, k = np.full((1, 1, 4), 3.0), np.ones((1, 1, 4))
    return posenc.attention(q, k, k, bias=bias, return_lse=True, **options)[1][0, 0]


ZERO = np.zeros((1, 2, 4))
DEBERTA = posenc.deberta(ZERO, ZERO)
C2P = posenc.deberta(None, ZERO, terms=("c2p",))
P2C = posenc.deberta(ZERO, None, terms=["p2c"])
TUPE = posenc.tupe(ZERO[:, :1], ZERO[:, :1])
SHAW = posenc.shaw(np.zeros((3, 4)))
XL = posenc.transformer_xl(np.zeros((1, 3, 4)), np.zeros((1, 4)), np.zeros((1, 4)))
COPE = posenc.cope(np.zeros((3, 4)))


@pytest.mark.parametrize(("bias", "parts"), [
    (DEBERTA, 3), (C2P, 2), (P2C, 2), (TUPE, 2), (SHAW, 1), (XL, 1), (COPE, 1), ([C2P, P2C, TUPE], 2),
    ([SHAW, DEBERTA], 3), ([DEBERTA, DEBERTA, posenc.alibi([1.0])], 3), ([COPE, TUPE], 2),
], ids=lambda x: "+".join(one.name for one in x) if isinstance(x, list) else getattr(x, "name", str(x)))  # fmt: skip
def test_default_scale(bias, parts):
    """The default scale is 1 / sqrt(D times the number of parts), if all operators with a scale of their own agree."""
    assert logit(bias) == pytest.approx(12 / math.sqrt(4 * parts), rel=1e-15)
    assert logit(bias, scale=0.25) == 3


@pytest.mark.parametrize(
    "pair", [(DEBERTA, C2P), (TUPE, DEBERTA), (P2C, SHAW, DEBERTA)], ids=["deberta", "tupe", "three"]
)
def test_scales_that_disagree(pair):
    with pytest.raises(ValueError, match=r"^attention: scale is None; expected a number, .*deberta"):
        logit(pair)
    assert logit(pair, scale=1.0) == 12


def drawn():
    """Each operator with random numbers, for two heads with 4 channels and 5 tokens."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    return {
        "shaw": posenc.shaw(normal((3, 4)).astype(np.float16), normal((2, 3, 4))),
        "shaw_keys": posenc.shaw(normal((2, 3, 4)).astype(">f4")),
        "transformer_xl": posenc.transformer_xl(normal((2, 3, 4)), normal((2, 4)), normal((2, 4))),
        "deberta": posenc.deberta(normal((2, 4, 4)), normal((2, 4, 4)), buckets=8, max_position=16, p2c_index="paper"),
        "deberta_c2p": posenc.deberta(None, normal((2, 4, 4)), terms=("c2p",)),
        "cope": posenc.cope(normal((3, 4))),
        "tupe": posenc.tupe(normal((2, 5, 4)), normal((2, 5, 4)), any_to_cls=normal(2)),
        "tupe_relative": posenc.tupe(normal((2, 5, 4)), normal((2, 5, 4)), relative=posenc.alibi([0.5, 0.1])),
    }  # fmt: skip


def pickled(bias):
    return pickle.loads(pickle.dumps(bias))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("name", drawn())
def test_round_trip(name, copied, rng):
    bias = drawn()[name]
    again = copied(bias)
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    assert again.name == bias.name
    assert type(again.arrays).__name__ == type(bias.arrays).__name__
    for a, b in zip(again.arrays, bias.arrays, strict=True):
        assert not isinstance(a, np.ndarray) or (same_bits(a, b) and not a.flags.writeable)
    assert same_bits(posenc.attention(q, k, v, bias=again), posenc.attention(q, k, v, bias=bias))


@pytest.mark.parametrize("name", drawn())
def test_immutable(name):
    bias = drawn()[name]
    for attribute in ("name", "arrays", "rows", "other"):
        with pytest.raises(AttributeError):
            setattr(bias, attribute, None)
    for array in bias.arrays:
        if isinstance(array, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    with pytest.raises(AttributeError):
        bias.arrays.none_of_them  # noqa: B018


def test_tables_are_copied():
    """Writing to the caller's table later does not change the operator, and the table remains writeable."""
    table = np.ones((3, 4))
    biases = (posenc.shaw(table, table), posenc.cope(table))
    table[...] = 7
    assert all((array == 1).all() for bias in biases for array in bias.arrays)
    assert table.flags.writeable


def test_arrays_keep_their_dtypes_and_names():
    made = drawn()
    assert made["shaw"].arrays._fields == ("rel_k", "rel_v")
    assert made["shaw"].arrays.rel_k.dtype == np.float16
    assert made["shaw_keys"].arrays.rel_k.dtype == np.float32
    assert made["shaw_keys"].arrays.rel_v is None
    assert made["transformer_xl"].arrays._fields == ("r", "u", "v")
    assert made["deberta_c2p"].arrays._fields == ("rel_q", "rel_k")
    assert made["deberta_c2p"].arrays.rel_q is None
    assert made["cope"].arrays._fields == ("table",)
    assert made["tupe"].arrays._fields == ("pos_q", "pos_k", "cls_to_any", "any_to_cls", "relative")
    assert "shaw" in repr(made["shaw"])


@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta", "cope"])
@pytest.mark.parametrize("placed", [False, True])
def test_logits_vjp_over_several_tiles(name, placed, rng, isa):
    """Central differences along a random direction of each argument, of float64 sums of size 1000."""
    heads, n, m, width, last = 4, 130, 300, 5, 7
    tables = {
        "shaw": {"rel_k": rng.standard_normal((heads, 2 * last + 1, width))},
        "transformer_xl": {
            "r": rng.standard_normal((heads, 2 * last + 1, width)), "u": rng.standard_normal((heads, width)),
            "v": rng.standard_normal((heads, width)),
        },
        "deberta": {a: rng.standard_normal((heads, 2 * last, width)) for a in ("rel_q", "rel_k")},
        "cope": {"table": rng.standard_normal((9, width))},
    }[name]  # fmt: skip
    arguments = {"q": rng.standard_normal((2, heads, n, width)), "k": rng.standard_normal((2, 2, m, width)), **tables}
    where = {"q_positions": np.sort(rng.integers(0, 99, n)), "k_positions": rng.uniform(0, 99, m)} if placed else {}
    grad = rng.standard_normal((2, heads, n, m))

    def result(q, k, **arrays):
        return getattr(posenc, name)(**arrays).logits(q, k, **where)

    gradients = getattr(posenc, name)(**tables).logits_vjp(grad, arguments["q"], arguments["k"], **where)._asdict()
    for argument, array in arguments.items():
        direction, step = rng.standard_normal(array.shape), 1e-6
        up, down = (result(**{**arguments, argument: array + s * direction}) for s in (step, -step))
        wanted = (grad * (up - down)).sum() / (2 * step)
        assert abs((gradients[argument] * direction).sum() - wanted) <= 1e-6 * max(1, abs(wanted))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_vjp_keeps_what_is_not_finite(bad):
    """A query or key that is not finite makes the gradients of the tables not finite, too."""
    q, k = np.ones((1, 3, 2)), np.ones((1, 3, 2))
    q[0, 1, 0] = bad
    grad = np.tri(3)[None]  # query 1 reads rows 0 and 1
    found = posenc.shaw(np.ones((3, 2))).logits_vjp(grad, q, k).rel_k
    np.testing.assert_array_equal(found, [[bad, 3], [bad, 3], [0, 0]])
    bias = posenc.deberta(np.ones((1, 4, 2)), np.ones((1, 4, 2)))
    for gradient in bias.logits_vjp(grad, q, k).rel_k, bias.logits_vjp(grad, k, q).rel_q:
        assert np.isfinite(gradient[0, :, 1]).all()
        assert not np.isfinite(gradient[0, 2, 0])
