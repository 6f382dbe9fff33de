"""The engine of posenc.check: its inputs tell known errors apart, and each row of the table can occur."""

from importlib import import_module

import numpy as np
import pytest
from settings import SETTINGS, judged

from posenc.check._judge import ROUNDOFF, ROWS, altered, in_bounds, known
from posenc.check._report import Reading, Report, with_readings

biases, frequencies, mask, merge, read_attention, read_rope = (
    import_module(f"posenc.check._{name}")
    for name in ("biases", "frequencies", "mask", "merge", "read_attention", "read_rope")
)
SAME = {
    ("attention", "w", "turns times pi", "turns without 2 pi"),  # of DeepSeek: both are beyond the ramp
    *(
        (kind, "factor", "attention factor squared", "attention factor without its root")  # of LongRoPE
        for kind in ("frequencies", "rope")
    ),
    *(
        (kind, "w", *pair)
        for kind in ("frequencies", "rope")
        for pair in (
            ("length ignored", "scaling ignored"),  # dynamic NTK
            ("long and short factor", "original length"),  # LongRoPE then takes the other list, too
            ("length of longrope ignored", "long and short factor"),
            ("length of longrope ignored", "original length"),
        )
    ),
}
"""Known errors of one part that no setting tells apart."""


def side(c):
    """The buckets of the keys before the query."""
    count = c["buckets"] // 2 if c["bidirectional"] else c["buckets"]
    own = {"n": np.arange(1.0, 2 * c["max_distance"]), "last": count - 1, "side": count}
    return biases.side_of({"exact": count // 2, **own, **c})


W = (frequencies.FREQUENCIES, lambda c: np.asarray(c["w"], float))
FACTOR = (frequencies.FACTORS, lambda c: np.array([c["factor"]]))
TURNS = (read_attention.TURNS, lambda c: 1.0 * np.broadcast_to(read_attention.distances_of(c), (c["n"], c["m"])))
KEYS = (mask.MASKS, lambda c: 1.0 * mask.visible(c))
PARTS = {
    "frequencies": {"w": W, "factor": FACTOR},
    "rope": {
        "w": W,
        "factor": FACTOR,
        "channels": (read_rope.CHANNELS, read_rope.channels_of),
        "formula": (read_rope.FORMULAS, read_rope.formula_of),
        "angles": (read_rope.ANGLES, lambda c: read_rope.waves_of({"p": np.arange(4073.0, 4097), **c})),
    },
    "sinusoid": {"w": W},
    "slopes": {"slopes": (biases.SLOPES, lambda c: c["slopes"])},
    "buckets": {"buckets": (biases.BUCKETS, biases.true_buckets), "side": (biases.SIDES, side)},
    "mask": {"keys": KEYS},
    "softmax": {"keys": KEYS},
    "attention": {"keys": KEYS, "w": W, "turns": TURNS},
    "cache": {"keys": KEYS, "turns": TURNS},
    "merge": {"weights": (merge.WEIGHTS, lambda c: c["w"]), "lse": (merge.LSES, lambda c: c["lse"])},
}
"""The parts of each check that known errors are about, besides the whole: a table, and the numbers of a case."""


def cases():
    """(kind of check, part, table, function of the case, case, bound) of all settings."""
    found = []

    def answer(kind, case):
        if case["setting"] not in [one[0] for one in found]:  # not the other sizes that are tried after the first
            found.append((case["setting"], kind, case))
        return kind.truth(case)

    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            judged(name, patch, answer)
    for name, kind, case in found:
        check = name.split()[0]
        yield (
            check,
            "",
            kind.hypotheses,
            kind.truth,
            case,
            lambda c, x, kind=kind: kind.bound(c, x, ROUNDOFF["float32"]),
        )
        for part, (table, compute) in PARTS.get(check, {}).items():
            if part not in ("w", "turns") or case.get("w") is not None:
                yield check, part, table, compute, case, lambda c, x: 1e-4 * np.maximum(abs(x), 1e-3)


@np.errstate(all="ignore")
def predicted(table, compute, case, bound):
    """The numbers of each hypothesis that has an effect."""
    wanted, found = compute(case), {}
    for h in table:
        changed = altered(case, h)
        numbers = wanted if changed is None else compute(changed)
        if numbers.shape == wanted.shape and in_bounds(numbers, wanted, bound(case, wanted)).max() > 1:
            found[h.name] = numbers
    return found


def test_inputs_tell_hypotheses_apart(capsys):
    """Each known error has an effect in some setting, is named whose numbers are planted, and differs from each other
    one of its part in some setting, unless they are one error with two names."""
    active, missed, alike, told = set(), set(), set(), set()
    for check, part, table, compute, case, bound in cases():
        numbers = predicted(table, compute, case, bound)
        active |= {name.removesuffix(" (bias)") for name in numbers}
        for planted, of_it in numbers.items():
            names = {cause.name for cause in known(table, case, compute, of_it, bound)}
            missed |= {(check, part, planted)} - {(check, part, name) for name in names}
            for other in numbers.keys() - {planted}:
                (alike if other in names else told).add((check, part, *sorted((planted, other))))
    with capsys.disabled():
        print(f"\n{len(active)} known errors with an effect, {len(told)} pairs told apart")
    silent = {name for table, name, *_ in ROWS if table != "any"} - active
    print(*sorted(alike - told), sep="\n")
    assert (missed, silent, alike - told) == (set(), set(), SAME)


def test_sentences_and_changes_end_with_a_full_stop():
    assert [row for row in ROWS if not (row[2].endswith(".") and row[3].endswith("."))] == []


@pytest.mark.parametrize(
    ("sentence", "says_nothing"),
    [
        ("The base is 10000; expected 10000. (Or the exponents are 1 times the right ones.)", True),
        ("The slopes are (0.5, 0.25, ...); expected (0.5, 0.25, ...).", True),
        ("Position 1 is taken for 2: position p is taken for 2 p; expected p.", False),
        ("Query 4 reads the keys 0, 4; expected 4.", False),
        ("The base is 100000; expected 10000.", False),
        ("The base is 10000; expected 100000.", False),
        ("The first is 10; expected 10.5.", False),
    ],
)
def test_no_reading_says_that_a_number_is_the_expected_one(sentence, says_nothing):
    report = Report("rope", False, 0.0, 1.0, "float32", got=np.zeros(1))
    found = with_readings(report, lambda: [Reading("base", sentence, True)])
    assert (len(found.readings), len(found.causes)) == (int(not says_nothing),) * 2
