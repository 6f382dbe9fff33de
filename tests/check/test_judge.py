"""The engine of posenc.check: its models agree with the reference, and its inputs tell hypotheses apart."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from settings import MODULES, SETTINGS, judged

from posenc.check.judge import EXPLAINED, FACTORS, FLOAT32, ROUNDOFF, ROWS, Hypothesis, altered, in_bounds

SAME = {
    *((kind, "cos and sin exchanged", "direction") for kind in ("attention", "cache")),  # the same products q.k
    *(
        (kind, *pair)
        for kind in ("frequencies", "rope")
        for pair in (
            ("length ignored", "scaling ignored"),  # dynamic NTK
            ("attention factor squared", "attention factor without its root"),  # of LongRoPE
            ("long and short factor", "original length"),  # LongRoPE then takes the other list, too
            ("length of longrope ignored", "long and short factor"),
            ("length of longrope ignored", "original length"),
        )
    ),
}
"""Hypotheses of one kind that no setting tells apart."""


def test_each_row_is_a_hypothesis():
    tables = [one for name in MODULES for one in vars(import_module(f"posenc.check.{name}")).values()]
    found = [h for table in tables if isinstance(table, list | tuple) for h in table if isinstance(h, Hypothesis)]
    assert {h.sentence for h in [FLOAT32, *FACTORS, *found]} == {sentence for _, _, sentence, *_ in ROWS}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_model_of_a_right_implementation_is_the_reference(name, monkeypatch):
    report = judged(name, monkeypatch, lambda kind, case: kind.model(case))
    assert report
    assert report.error < 1e-13


def predicted(kind, case):
    """The numbers of each hypothesis that has an effect, in float64, and their bound."""
    wanted = kind.truth(case)
    bound = kind.bound(case, wanted, ROUNDOFF["float32"])
    found = {}
    for hypothesis in kind.hypotheses:
        with np.errstate(all="ignore"):
            changed = altered(case, [hypothesis])
            answer = None if changed is None else kind.model(changed)
        if answer is not None and answer.shape == wanted.shape and in_bounds(answer, wanted, bound).max() > 1:
            found[hypothesis.name] = (answer, kind.bound(changed, answer, ROUNDOFF["float32"]))
    return found


def seen_in(name, monkeypatch):
    """The kind, the right answer and the predictions of a setting."""
    seen = {}

    def answer(kind, case):
        wanted = kind.truth(case)
        if not seen:  # not the other sizes that are tried after the first
            seen.update(kind=kind, wanted=wanted, predicted=predicted(kind, case))
        return wanted

    judged(name, monkeypatch, answer)
    return seen


def fits(x, y, bound, wanted):
    before, after = (np.where(x == other, 0, abs(x - other)).mean() for other in (wanted, y))
    return in_bounds(x, y, bound).max() <= 1 and after <= EXPLAINED * before


@np.errstate(invalid="ignore")
def test_inputs_tell_hypotheses_apart(monkeypatch, capsys):
    """Each two hypotheses of a kind differ in some setting so much that the numbers of one do not fit the other, unless
    they are one error with two names."""
    active, alike, told = set(), set(), set()
    for name in SETTINGS:
        seen, kind = seen_in(name, monkeypatch), name.split()[0]
        active |= {(kind, one) for one in seen["predicted"]}
        for (a, (x, _)), (b, (y, bound)) in itertools.permutations(seen["predicted"].items(), 2):
            pair = (kind, frozenset((a, b)))
            if pair not in told:
                (alike if fits(x, y, bound, seen["wanted"]) else told).add(pair)
    with capsys.disabled():
        print(f"\n{len(active)} hypotheses with an effect, {len(told)} pairs told apart")
    left = {(kind, *sorted(pair)) for kind, pair in alike - told}
    print(*sorted(left), sep="\n")
    assert left == SAME


@pytest.mark.slow
def test_each_hypothesis_is_named_when_it_is_planted(monkeypatch):
    """The engine names every hypothesis whose own numbers it gets."""
    missed = []
    for name in SETTINGS:
        for planted, (answer, _) in seen_in(name, monkeypatch)["predicted"].items():
            report = judged(name, monkeypatch, lambda kind, case, answer=answer: answer)
            if planted not in [cause.name for cause in report.causes]:
                missed.append((name, planted, [cause.name for cause in report.causes]))
    assert not missed
