"""A sink is a key without a value; walls, parts of the keys, extreme numbers, and its gradient."""

import numpy as np
import pytest
from cases import DTYPES, F16, F32, F64
from cases.attention import ANY, WALLS, qkv
from cases.gradient import problem
from cases.layouts import same_bits

import posenc

SINK = np.array([0.7, -3.0])


@pytest.mark.parametrize(("n", "dtype"), [(2, F32), (20, F16), (20, F64)])
def test_infinite_sink_is_no_sink(n, dtype, rng, isa):
    arguments = ANY.cast(qkv(rng, n, 50), dtype)
    ours = posenc.attention(**arguments, sink=np.full(2, -np.inf), return_lse=True)
    assert all(map(same_bits, ours, posenc.attention(**arguments, return_lse=True)))


@pytest.mark.parametrize("sink", [3e38, -3e38])
@pytest.mark.parametrize("n", [1, 20])
def test_extreme_sinks(sink, n, rng, isa):
    """A huge sink takes all weight; one below all logits takes none."""
    arguments = ANY.cast(qkv(rng, n, 50), F32)
    out, lse = posenc.attention(**arguments, sink=np.full(2, sink, F32), return_lse=True)
    wanted, wanted_lse = posenc.attention(**arguments, return_lse=True)
    assert np.array_equal(out, wanted if sink < 0 else np.zeros_like(wanted))
    assert np.array_equal(lse, wanted_lse if sink < 0 else np.full_like(lse, sink))


@pytest.mark.parametrize("kind", WALLS)
def test_wall_of_one_query(kind, rng, isa):
    """NaN in masked keys and values of a query that is decoded: it is computed again by the kernel of many queries,
    whose sums have another order."""
    m = 200
    arguments = ANY.cast(qkv(rng, 1, m), F32)
    bad = rng.random(m) > 0.5
    clean, dirty = (
        {a: np.where(bad[:, None], F32.type(number), x) if a in "kv" else x for a, x in arguments.items()}
        for number in (0, np.nan)
    )
    options = {**WALLS[kind](1, m, bad), "sink": SINK, "return_lse": True}
    expected = ANY.expect({**clean, **options})
    bounds = ANY.bounds(expected, F32, {**clean, **options})
    for result, e, bound in zip(ANY.call({**dirty, **options}), expected, bounds, strict=True):
        assert np.all(np.abs(result.astype(F64) - e) <= bound)


@pytest.mark.parametrize("owner", [0, 1])
def test_one_part_of_the_keys_has_the_sink(owner, rng):
    arguments = qkv(rng, 5, 90)
    parts = []
    for i, keys in enumerate((slice(0, 30), slice(30, 31), slice(31, 90))):
        chunk = {a: x[:, keys] if a in "kv" else x for a, x in arguments.items()}
        parts.append(posenc.attention(**chunk, sink=SINK if i == owner else None, return_lse=True))
    merged = posenc.merge_attention(*zip(*parts, strict=True))
    for ours, wanted in zip(merged, posenc.attention(**arguments, sink=SINK, return_lse=True), strict=True):
        assert np.abs(ours - wanted).max() <= 1e-14  # merging rounds numbers of size 3 some 10 times


def test_dtype_of_the_gradient(rng):
    arguments = ANY.cast(qkv(rng, 5, 40, batch=(3,)), F16)
    for dtype in DTYPES:
        found = posenc.attention_vjp(arguments["q"], **arguments, sink=SINK.astype(dtype)).sink
        assert (found.dtype, found.shape) == (dtype, (2,))


def test_gradient_without_keys(rng):
    """Without keys lse is the sink: its gradient is that of lse."""
    q, k, v = rng.standard_normal((2, 5, 8)), np.zeros((2, 0, 8)), np.zeros((2, 0, 8))
    out, lse = posenc.attention(q, k, v, sink=SINK, return_lse=True)
    grad_lse = rng.standard_normal((2, 5))
    found = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse, grad_lse=grad_lse, sink=SINK)
    assert np.abs(found.sink - grad_lse.sum(-1)).max() <= 1e-15
    assert not found.q.any()


def test_infinite_sink_has_no_gradient(rng):
    """Also where the cotangent is NaN: a weight of 0 adds nothing."""
    (grad, q, k, v), ours, _ = problem(rng, 6, 50, 2, 2, sink=np.array([-np.inf, 0.0]))
    grad[0, 0, 0] = np.nan
    found = posenc.attention_vjp(grad, q, k, v, **ours).sink
    assert found[0] == 0
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ([0, np.inf], r"has NaN or \+inf; expected finite numbers or -inf"),
        (1.0, "is 1.0; expected an array with at least 1 axis"),
        ([0], "has 1 heads; expected 2, as q"),
        ([1e39, 0], "has numbers beyond float32"),
    ],
)
def test_errors(sink, message, rng):
    with pytest.raises(ValueError, match=f"attention: sink {message}"):
        posenc.attention(**ANY.cast(qkv(rng, 3, 4), F32), sink=np.array(sink))
