"""Tensors of PyTorch as arguments of posenc itself."""

import numpy as np
import pytest
from cases import BF16, CASES, F64, map_arrays
from cases.calls import arguments_of, refused
from cases.layouts import same_bits

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch_tensors(case):
    arguments = arguments_of(case, np.float32 if case.data else F64)
    before = map_arrays(np.copy, arguments)
    tensors = map_arrays(lambda a: torch.from_numpy(a.copy()), arguments)
    assert all(same_bits(a, b) for a, b in zip(case.call(tensors), case.call(before), strict=True))


@pytest.mark.parametrize("case", [c for c in CASES if c.data], ids=lambda case: case.name)
def test_tensors_that_numpy_cannot_take(case):
    """A tensor of bfloat16 is an array of ml_dtypes; one that requires a gradient is refused."""
    arguments, argument = arguments_of(case), case.data[0]
    halved = map_arrays(lambda a: torch.from_numpy(a.copy()).to(torch.bfloat16), arguments[argument])
    same = map_arrays(lambda a: a.astype(BF16), arguments[argument])
    results = [case.call({**arguments, argument: one}) for one in (halved, same)]
    assert all(map(same_bits, *results))
    with refused(case, TypeError):
        case.call({**arguments, argument: torch.from_numpy(arguments[argument].copy()).requires_grad_()})
