"""Errors of relative operators: each message names the function and the argument."""

import re

import numpy as np
import pytest

import posenc


def rows(count, heads=None, width=4):
    return np.zeros((count, width) if heads is None else (heads, count, width))


BUCKETED = {"num_buckets": 8, "max_distance": 16}
REFUSED = {
    "shaw: rel_k has even rows": ("shaw", (rows(4),)),
    "shaw: rel_k has K = 0": ("shaw", (rows(1),)),
    "shaw: rel_k has four axes": ("shaw", (np.zeros((1, 2, 3, 4)),)),
    "shaw: rel_v has other rows": ("shaw", (rows(3), rows(5))),
    "transformer_xl: r has even rows": ("transformer_xl", (rows(4, 2), rows(2), rows(2))),
    "transformer_xl: u has three axes": ("transformer_xl", (rows(3, 2), rows(2, 2), rows(2))),
    "transformer_xl: v has other heads than u": ("transformer_xl", (rows(3), rows(2), rows(3))),
    "transformer_xl: u has another width, shared": ("transformer_xl", (rows(3), np.zeros(5), np.zeros(4))),
    "shaw: rel_v has other heads": ("shaw", (rows(3, 2), rows(3, 3))),
    "deberta: rel_q has odd rows": ("deberta", (rows(3, 2), rows(3, 2))),
    "deberta: rel_k has heads, rel_q none": ("deberta", (rows(4), rows(4, 2))),
    "deberta: rel_k has another shape": ("deberta", (rows(4, 2), rows(6, 2))),
    "deberta: rel_q is None": ("deberta", (None, rows(4, 2))),
    "deberta: rel_k is None": ("deberta", (rows(4, 2), None)),
    "deberta: terms has none": ("deberta", (rows(4, 2), rows(4, 2)), {"terms": ()}),
    "deberta: terms has p2p": ("deberta", (rows(4, 2), rows(4, 2)), {"terms": ("c2p", "p2p")}),
    "deberta: terms has one twice": ("deberta", (rows(4, 2), rows(4, 2)), {"terms": ("c2p", "c2p")}),
    "deberta: terms has a string": ("deberta", (rows(4, 2), rows(4, 2)), {"terms": "c2p"}),
    "deberta: max_distance is None": ("deberta", (rows(4, 2), rows(4, 2)), {"num_buckets": 8}),
    "deberta: num_buckets is None": ("deberta", (rows(4, 2), rows(4, 2)), {"max_distance": 8}),
    "deberta: max_distance has mid + 1": ("deberta", (rows(4, 2), rows(4, 2)), {"num_buckets": 8, "max_distance": 5}),
    "deberta: num_buckets is 1": ("deberta", (rows(4, 2), rows(4, 2)), {"num_buckets": 1, "max_distance": 16}),
    "cope: table has no rows": ("cope", (rows(0),)),
    "tupe: pos_q has two axes": ("tupe", (rows(3), rows(3, 2))),
    "tupe: cls_to_any has other heads": ("tupe", (rows(3, 2), rows(3, 2)), {"cls_to_any": [1.0]}),
    "tupe: any_to_cls has a number": ("tupe", (rows(3, 2), rows(3, 2)), {"any_to_cls": 1.0}),
    "nezha_table: dim is 0": ("nezha_table", (64, 0)),
    "nezha_table: K is 0": ("nezha_table", (0, 4)),
    "xl_table: dim is 3": ("xl_table", (2, 3)),
    "shaw: rel_k is None": ("shaw", (None,)),
    "transformer_xl: u has text": ("transformer_xl", (rows(3, 2), "u", rows(2))),
    "xl_table: K has text": ("xl_table", ("2", 4)),
}  # fmt: skip


@pytest.mark.parametrize("named", REFUSED)
def test_refused(named):
    """Each message begins with the function and the argument that the key of the row names."""
    function, arrays, *options = REFUSED[named]
    is_kind = " has text" in named or named == "shaw: rel_k is None"
    with pytest.raises(TypeError if is_kind else ValueError) as caught:
        getattr(posenc, function)(*arrays, **(options or [{}])[0])
    assert re.match(rf"{re.split(' has | is ', named)[0]} (has|is) .+; expected ", str(caught.value))


def test_rows_that_no_bucket_reaches():
    """The table is longer than distances up to 2**20 need."""
    with pytest.raises(ValueError, match=r"^deberta: rel_k has 100000 rows; expected "):
        posenc.deberta(None, np.zeros((1, 100000, 1)), **BUCKETED, terms=("c2p",))


@pytest.mark.parametrize(("n", "m", "argument"), [(4, 5, "pos_q"), (5, 4, "pos_k")])
def test_tupe_of_another_length(n, m, argument):
    bias, q = posenc.tupe(rows(5, 2), rows(5, 2)), np.zeros((2, 5, 4))
    with pytest.raises(ValueError, match=rf"^tupe.matrix: {argument} has 5 positions; expected 4"):
        bias.matrix(n, m, align="end")
    with pytest.raises(ValueError, match=rf"^attention: {argument} has 5 (queries|keys) .tupe.; expected 4"):
        posenc.attention(q[:, :n], q[:, :m], q[:, :m], bias=bias)


def test_scale_of_logits_beyond_float32():
    q = np.zeros((1, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"^shaw.logits: scale is .+; expected "):
        posenc.shaw(rows(3)).logits(q, q, scale=1e39)
