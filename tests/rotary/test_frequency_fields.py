"""Functions that take frequencies apply every field of a `RopeFrequencies`, or refuse those that they would lose."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

import posenc
import posenc.analysis
from posenc import reference

W = posenc.RopeFrequencies(np.array([1.0, 0.1, 0.01, 0.001]))
CHANGED = {"attention_factor": 2.0, "softmax_factor": 3.0, "layout": "interleaved", "rotary_dim": 8}
X = np.random.default_rng(0).standard_normal((3, 5, 10))
GRID = np.arange(15.0).reshape(3, 5)


def rotations(module=posenc):
    """Calls of every function that rotates x or says how, without the options that frequencies may have."""
    wide = X[..., :8]
    return {
        "rope": lambda w, x=X, **o: module.rope(x, 5, w, **o),
        "rope with a batch": lambda w, x=X, **o: module.rope(x[None], GRID[:1], w, **o),
        "rope backwards": lambda w, x=X, **o: module.rope(x, 5, w, inverse=True, **o),
        "rope_nd": lambda w, x=X, **o: module.rope_nd(x, GRID[:2], over_axes(w), **o),
        "xpos": lambda w, x=wide, **o: module.xpos(x, 5, w, **{n: v for n, v in o.items() if n != "rotary_dim"}),
        "rerotate": lambda w, x=X, **o: module.rerotate(x, 5, GRID[0], w, **o),
        "rope_matrix": lambda w, x=X, **o: module.rope_matrix(
            3, w, **{n: v for n, v in o.items() if n != "rotary_dim"}
        ),
    }


def gradients():
    g, wide = np.ones_like(X), X[..., :8]
    return {
        "rope_vjp": lambda w, **o: posenc.rope_vjp(g, X, 5, w, **o).x,
        "rope_nd_vjp": lambda w, **o: posenc.rope_nd_vjp(g, X, GRID[:2], over_axes(w), **o).x,
        "xpos_vjp": lambda w, **o: posenc.xpos_vjp(wide, wide, 5, w, **{n: v for n, v in o.items() if n == "layout"}).x,
    }


def over_axes(w):
    """The same frequencies for two coordinates."""
    if isinstance(w, posenc.RopeFrequencies):
        return replace(w, inv_freq=np.stack([w.inv_freq, w.inv_freq / 3]))
    return np.stack([w, w / 3])


SINUSOIDS = {
    "sinusoidal": lambda w: posenc.sinusoidal(5, frequencies=w),
    "sinusoidal_vjp": lambda w: posenc.sinusoidal_vjp(np.ones((5, 8)), 5, frequencies=w).positions,
    "shift": lambda w: posenc.shift(np.ones((5, 8)), 2, frequencies=w),
    "shift_vjp": lambda w: posenc.shift_vjp(np.ones((5, 8)), np.ones((5, 8)), 2, frequencies=w).encoding,
    "shift_matrix": lambda w: posenc.shift_matrix(2, 8, frequencies=w),
    "complex_order": lambda w: posenc.complex_order(np.ones((5, 4)), w, 5),
    "complex_order_vjp": lambda w: posenc.complex_order_vjp(np.ones((5, 4), complex), np.ones((5, 4)), w, 5).amplitude,
}
ANGLES = {
    "rope_bands": lambda w: posenc.analysis.rope_bands(w, W, train_length=9).ratio,
    "rope_coverage": lambda w: posenc.analysis.rope_coverage(w, 9).unseen,
}
UNTURNED = {"rerotate"}
"""Keys of a cache contain the factor already."""


def test_every_function_with_frequencies_is_here():
    """`rope_table`, `mrope_frequencies`, `inner_product` and `attention_profile` have tests of their own."""
    parameters = {"frequencies", "frequency", "scaled"}
    found = {
        name
        for module in (posenc, posenc.analysis)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
        and parameters & {*inspect.signature(getattr(module, name)).parameters}
    }
    tested = {name.split(" ")[0] for name in [*rotations(), *gradients(), *SINUSOIDS, *ANGLES]}
    assert found == tested | {"rope_table", "mrope_frequencies", "inner_product"}


@pytest.mark.parametrize("name", [*rotations(), *gradients()])
def test_rotations_apply_all_fields(name):
    """The layout and the width are those of the frequencies; the factor multiplies; the factor of the softmax is not
    applied."""
    call = {**rotations(), **gradients()}[name]
    plain = call(W.inv_freq, layout="interleaved", rotary_dim=8)
    size = 1.0 if name in UNTURNED else 0.5 if name == "rope backwards" else 2.0
    found = call(replace(W, **CHANGED))
    scaled = [slice(None)] * (plain.ndim - 1)
    assert np.allclose(found[(*scaled, slice(0, 8))], size * plain[(*scaled, slice(0, 8))], rtol=1e-14)
    assert (found[(*scaled, slice(8, None))] == plain[(*scaled, slice(8, None))]).all()

    class Own(posenc.RopeFrequencies):
        pass

    assert (call(Own(W.inv_freq, **CHANGED)) == found).all()
    assert (call(replace(W, **{**CHANGED, "softmax_factor": 1.0})) == found).all()
    for option, value in (("layout", "half"), ("rotary_dim", 6)):
        with pytest.raises(ValueError, match=rf"^{name.split(' ')[0]}: (frequencies|{option}) (is|has) "):
            call(replace(W, **{**CHANGED, option: value}), **{option: CHANGED[option]})
    if name in rotations():
        assert np.allclose(rotations(reference)[name](replace(W, **CHANGED), layout="interleaved", rotary_dim=8), found)


def test_a_table_applies_the_factor():
    cos, sin = posenc.rope_table(5, W)
    found = posenc.rope_table(5, replace(W, **CHANGED))
    assert (found[0] == 2 * cos).all()
    assert (found[1] == 2 * sin).all()
    with pytest.raises(ValueError, match=r"^rope_table: frequencies has 4 entries; expected rotary_dim // 2 = 3"):
        posenc.rope_table(5, replace(W, rotary_dim=6))


@pytest.mark.parametrize("name", SINUSOIDS)
def test_what_rotates_nothing_refuses_fields_of_a_rotation(name):
    call = SINUSOIDS[name]
    assert (call(W) == call(W.inv_freq)).all()
    for field, value in CHANGED.items():
        with pytest.raises(
            ValueError, match=rf"^{name}: frequenc(ies|y) has {field} .*; expected frequenc(ies|y).inv_freq"
        ):
            call(replace(W, **{field: value}))


@pytest.mark.parametrize("name", ANGLES)
def test_bands_read_the_angles_alone(name):
    assert (ANGLES[name](replace(W, **CHANGED)) == ANGLES[name](W.inv_freq)).all()


def test_products_of_encodings_refuse_a_factor():
    product, options = posenc.analysis.inner_product, {"layout": "half", "rotary_dim": 8}
    assert product(3, 1, replace(W, **options)) == product(3, 1, W.inv_freq)
    with pytest.raises(ValueError, match=r"^inner_product: frequencies has attention_factor 2"):
        product(3, 1, replace(W, attention_factor=2.0))


def test_profiles_apply_the_factor():
    """Logits of rotated queries and keys have its square."""
    plain, found = (posenc.analysis.attention_profile(w, [0, 1, 5]).logits for w in (W, replace(W, **CHANGED)))
    assert np.allclose(found, 4 * plain)
