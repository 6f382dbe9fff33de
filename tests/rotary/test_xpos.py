"""xPos: scores decay with the distance alone, and refused distances."""

import numpy as np
import pytest
from cases import F64
from cases.rope import W, heads

import posenc


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_xpos_scores_decay_alike_everywhere(dtype, rng, isa):
    """A score depends on the distance, whatever the center and the first position are."""
    q, k = heads(rng, 60, dtype), heads(rng, 60, dtype)
    scores = []
    for start, center in ((0, 0), (0, 30), (3000, 3000), (3000, 2000)):
        where, options = np.arange(60) + start, {"layout": "half", "center": center}
        rotated = posenc.xpos(q, where, W, **options), posenc.xpos(k, where, W, downscale=True, **options)
        scores.append(np.einsum("bhnd,bhmd->bhnm", *(x.astype(F64) for x in rotated)))
    norms = np.linalg.norm(q, axis=-1)[..., :, None] * np.linalg.norm(k, axis=-1)[..., None, :]
    # 12 half ulps, as rope, times the largest zeta**(distance / 512); in float64 the exponent has an error, too
    allowed = (12 if dtype == np.float32 else 50) * np.finfo(dtype).eps / 2 * norms * 1.16
    assert all((np.abs(other - scores[0]) <= allowed).all() for other in scores)


@pytest.mark.parametrize(("dtype", "furthest"), [(np.float16, 3966), (np.float32, 35694), (np.float64, 289519)])
def test_xpos_refuses_what_a_dtype_cannot_hold(dtype, furthest):
    """No result is 0 or infinite because of its scale; the documented distances are the largest."""
    x, w = np.ones((1, 512), dtype), posenc.rope_frequencies(512)
    for sign in (1, -1):
        for downscale in (False, True):
            result = posenc.xpos(x, [sign * furthest], w, layout="half", downscale=downscale)
            assert np.isfinite(result).all()
            assert np.hypot(*np.split(result.astype(F64), 2, -1)).all()
            with pytest.raises(ValueError, match=r"^xpos: positions has -?\d+; expected at most \d+ from center"):
                posenc.xpos(x, [sign * (furthest + 1)], w, layout="half", downscale=downscale)
    assert posenc.xpos(x, [furthest + 1], w, layout="half", center=furthest).shape == x.shape
