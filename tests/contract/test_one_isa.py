"""A public call runs all its kernels on one instruction set, whatever other threads choose meanwhile."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from cases import CASES
from cases.attention import AttentionCase
from cases.deviation import cotangents
from cases.layouts import same_bits

import posenc
from posenc import _core

ROWS = [pytest.param(case, id=case.name) for case in CASES]


@pytest.fixture
def used(monkeypatch):
    """Instruction sets of the kernels that ran, in their order. After each kernel another thread changes the choice."""
    found = []
    names = posenc.isas()

    def watched(kernel):
        def run(*arguments, **operands):
            isa = _core.isa()
            result = kernel(*arguments, **operands)
            if result is NotImplemented:  # no kernel ran
                return result
            found.append(isa)
            other = names[(names.index(found[-1]) + 1) % len(names)]
            thread = threading.Thread(target=_core.set_isa, args=(other,))
            thread.start()
            thread.join()
            return result

        return run

    for row in _core.table():
        if hasattr(_core, row):
            monkeypatch.setattr(_core, row, watched(getattr(_core, row)))
    with posenc.use_isa(names[-1]):
        yield found


two_sets = pytest.mark.skipif(len(posenc.isas()) < 2, reason="this machine has one instruction set")


@two_sets
@pytest.mark.parametrize("case", ROWS)
def test_all_kernels_of_a_call(case, used):
    arguments = case.arguments(max(5, case.least))
    case.call(arguments)
    assert len(set(used)) <= 1, used
    if case.gradients:
        grads = cotangents(case, arguments)
        used.clear()
        case.vjp(grads, arguments)
        calls = 2 if isinstance(case, AttentionCase) else 1  # attention, and then its gradient
        assert sum(a != b for a, b in pairwise(used)) < calls, used


@two_sets
def test_the_choice_of_another_thread_is_for_the_next_call(used):
    x, w = np.ones((4, 8), np.float32), posenc.rope_frequencies(8)
    before = posenc.isa()
    result = posenc.xpos(x, 4, w, layout="half")
    assert posenc.isa() != before
    with posenc.use_isa(before):
        assert same_bits(posenc.xpos(x, 4, w, layout="half"), result)


def test_a_failed_call_holds_no_instruction_set():
    with pytest.raises(ValueError, match="rope: x has last axis 3"):
        posenc.rope(np.ones((4, 3)), 4, np.ones(1), layout="half")
    for name in posenc.isas():
        with posenc.use_isa(name):
            assert posenc.isa() == name
