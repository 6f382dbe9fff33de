"""Calls of `attention` with plain arguments are one call of the binding. It gives what the checks of Python give."""

import numpy as np
import pytest
from cases import F16, F32, F64
from cases.layouts import byte_swapped, reversed_axes, same_bits, step_two, unaligned

import posenc
from posenc import _core
from posenc._core_api.constants import FEWEST_KEYS, MOST_WIDTH


@pytest.fixture
def plain_calls(monkeypatch):
    """For each call of `attention`, whether its arguments were plain."""
    calls, plain = [], _core.attention_plain

    def watched(*arguments):
        result = plain(*arguments)
        calls.append(result is not None)
        return result

    monkeypatch.setattr(_core, "attention_plain", watched)
    return calls


def long_way(*arrays, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "attention_plain", lambda *arguments: None)
        return posenc.attention(*arrays, **options)


def heads(rng, n, m, *batch, dtype=F32, width=8):
    return [rng.standard_normal((*batch, 2, length, width)).astype(dtype) for length in (n, m, m)]


def check_alike(arrays, **options):
    out, lse = long_way(*arrays, return_lse=True, **options)
    found = posenc.attention(*arrays, **options)
    assert type(found) is np.ndarray
    assert found.flags.c_contiguous
    assert same_bits(found, out)
    both = posenc.attention(*arrays, return_lse=True, **options)
    assert type(both) is tuple
    assert same_bits(both[0], out)
    assert same_bits(both[1], lse)
    buffer = np.empty_like(out)
    assert posenc.attention(*arrays, out=buffer, **options) is buffer
    assert same_bits(buffer, out)


@pytest.mark.parametrize("dtypes", [(F16,) * 3, (F32,) * 3, (F64,) * 3, (F32, F16, F16), (F16, F32, F16)])
@pytest.mark.parametrize("lengths", [(1, 5), (5, 5), (70, 70), (70, 130)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
def test_results_are_those_of_the_long_way(dtypes, lengths, batch, rng, isa, plain_calls):
    arrays = [a.astype(dtype) for a, dtype in zip(heads(rng, *lengths, *batch), dtypes, strict=True)]
    for invariant in (False, True):
        check_alike(arrays, invariant=invariant)
        if lengths[0] == lengths[1]:
            check_alike(arrays, invariant=invariant, causal=True)
    assert all(plain_calls)


@pytest.mark.parametrize("layout", [reversed_axes, step_two, unaligned, np.asfortranarray])
def test_operands_of_any_layout_are_plain(layout, rng, plain_calls):
    arrays = heads(rng, 6, 9)
    check_alike([layout(a) for a in arrays])
    assert all(plain_calls)


def test_a_masked_value_may_be_nan(rng, plain_calls):
    q, k, v = heads(rng, 4, 4)
    v[:, 3] = np.nan
    check_alike((q, k, v), causal=True)
    assert all(plain_calls)


@pytest.mark.parametrize(("n", "m", "width"), [(0, 3, 4), (3, 3, 0), (0, 0, 0)])
def test_empty_arrays(n, m, width, rng, plain_calls):
    arrays = heads(rng, n, m, width=width)
    assert same_bits(posenc.attention(*arrays), long_way(*arrays))
    assert plain_calls == [True]


def unusual_calls():
    """(arrays, options) that the binding leaves to Python: they need a conversion, a rule or a message."""
    rng = np.random.default_rng(0)
    q, k, v = heads(rng, 4, 4)
    longer = rng.standard_normal((2, 6, 8)).astype(F32)
    yield "no_array", (q.tolist(), k, v), {}
    yield "subclass", (q, k.view(np.recarray), v), {}
    yield "masked_array", (q, k, np.ma.MaskedArray(v)), {}
    yield "integers", (q, k, np.ones((2, 4, 8), np.int8)), {}
    yield "text", (q, k, v.astype(str)), {}
    yield "double_keys", (q, k.astype(F64), v), {}
    yield "double_values", (q, k, v.astype(F64)), {}
    yield "double_queries", (q.astype(F64), k, v), {}
    yield "byte_swapped", (byte_swapped(q), k, v), {}
    yield "two_axes", (q[0], k[0], v[0]), {}
    yield "other_axes", (q, k[None], v[None]), {}
    yield "shared_keys", (q, k[:1], v[:1]), {}
    yield "batch_broadcasts", (q[None], np.stack([k, k]), np.stack([v, v])), {}
    yield "other_heads", (q, np.concatenate([k, k]), np.concatenate([v, v])), {}
    yield "other_width", (q[..., :6], k, v), {}
    yield "other_values", (q, k, v[..., :6]), {}
    yield "other_length", (q, k, longer), {}
    yield "causal_needs_align", (q, longer, longer), {"causal": True}
    yield "too_wide", (np.broadcast_to(F32.type(1), (1, 1, MOST_WIDTH + 1)),) * 3, {}
    yield "integer_causal", (q, k, v), {"causal": 1}
    yield "numpy_causal", (q, k, v), {"causal": np.True_}
    yield "integer_invariant", (q, k, v), {"invariant": 1}
    yield "dropout_and_seed", (q, k, v), {"dropout": 0.5, "seed": 1}
    yield "wrong_precision", (q, k, v), {"precision": "highest"}
    yield "no_precision", (q, k, v), {"precision": None}
    yield "no_bias", (q, k, v), {"bias": None}
    yield "bias", (q, k, v), {"bias": (posenc.alibi([0.5, 0.25]),)}
    yield "wrong_bias", (q, k, v), {"bias": (3,)}
    for option, value in {
        "keep": np.tri(4, dtype=bool), "align": "middle", "window": (1, 0), "q_positions": 4,
        "k_positions": [1, 0, 5, 3], "q_segments": [0, 0, 1, 1], "k_segments": [0, 0, 1, 1], "scale": 0.25,
        "softcap": 2.0, "sink": [1.0, 0.0], "dropout": 0, "seed": 1, "precision": "low",
    }.items():  # fmt: skip
        yield option, (q, k, v), {option: value}
    yield "out_no_array", (q, k, v), {"out": 3}
    yield "out_shape", (q, k, v), {"out": np.empty((2, 4, 7), F32)}
    yield "out_dtype", (q, k, v), {"out": np.empty((2, 4, 8), F16)}
    yield "out_byte_swapped", (q, k, v), {"out": byte_swapped(np.empty((2, 4, 8), F32))}
    yield "out_strided", (q, k, v), {"out": np.empty((4, 2, 8), F32).swapaxes(0, 1)}
    yield "out_subclass", (q, k, v), {"out": np.empty((2, 4, 8), F32).view(np.recarray)}
    readonly = np.empty((2, 4, 8), F32)
    readonly.flags.writeable = False
    yield "out_readonly", (q, k, v), {"out": readonly}


UNUSUAL = [pytest.param(arrays, options, id=name) for name, arrays, options in unusual_calls()]


def outcome(call, *arrays, **options):
    """The result, or the type and the message of the error."""
    try:
        return call(*arrays, **options)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(("arrays", "options"), UNUSUAL)
def test_unusual_arguments_go_the_long_way(arrays, options, plain_calls):
    found, wanted = outcome(posenc.attention, *arrays, **options), outcome(long_way, *arrays, **options)
    assert plain_calls == [False]
    if isinstance(wanted, tuple):
        assert found == wanted
    else:
        assert same_bits(np.asarray(found), np.asarray(wanted))


@pytest.mark.parametrize("operand", range(3))
@pytest.mark.parametrize("offset", [-9, 0, 9])
def test_out_may_overlap_an_operand(operand, offset, rng, plain_calls):
    """Also if it only begins, or only ends, in the memory of the operand."""
    arrays = heads(rng, 4, 4)
    size = arrays[operand].size
    memory = rng.standard_normal(3 * size).astype(F32)
    arrays[operand], out = (memory[at : at + size].reshape(2, 4, 8) for at in (size, size + offset))
    wanted = long_way(*map(np.copy, arrays))
    assert posenc.attention(*arrays, out=out) is out
    assert same_bits(out.copy(), wanted)
    assert plain_calls == [False]


def test_out_may_lie_beside_an_operand(rng, plain_calls):
    memory = rng.standard_normal((4, 2, 4, 8)).astype(F32)
    wanted = long_way(*memory[[0, 1, 3]])
    assert same_bits(posenc.attention(memory[0], memory[1], memory[3], out=memory[2]).copy(), wanted)
    assert plain_calls == [True]


@pytest.mark.parametrize(("n", "m"), [(1, 2 * FEWEST_KEYS), (2 * FEWEST_KEYS, 1)])
def test_many_keys_go_the_long_way(n, m, rng, plain_calls):
    """There Python may split them into parts, and refuses more than 2**53."""
    arrays = heads(rng, n, m, width=1)
    assert same_bits(posenc.attention(*arrays), long_way(*arrays))
    assert posenc.attention(*(a[:, :-1] if a.shape[1] > 1 else a for a in arrays)).shape == (2, max(n - 1, 1), 1)
    assert plain_calls == [False, True]


def test_the_binding_counts_its_arguments():
    with pytest.raises(TypeError, match=r"^_core\.attention_plain takes 22 arguments$"):
        _core.attention_plain("attention", 1, 2, 3)
