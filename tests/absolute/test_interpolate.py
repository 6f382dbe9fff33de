"""Tables resampled as PyTorch resamples them: numbers of the equations, prefix rows, and refusals."""

import numpy as np
import pytest

import posenc

SQUARES = np.array([[0.0], [1.0], [4.0], [9.0]])
PUBLISHED = {
    "cubic": ({"method": "cubic", "corners": False}, [-0.06075, 0.39025, 2.125, 5.72575, 9.30375]),
    "antialias": (
        {"method": "cubic", "corners": False, "antialias": True},
        [-0.043269, 0.505574, 2.25, 5.617063, 9.216346],
    ),
    "linear": ({"corners": False}, [0.5, 6.5]),
    "linear antialias": ({"corners": False, "antialias": True}, [1, 5.714286]),
}
"""Of 0, 1, 4, 9, resampled by PyTorch."""


@pytest.mark.parametrize(("options", "expected"), PUBLISHED.values(), ids=PUBLISHED)
def test_the_numbers_of_pytorch(options, expected):
    of_line = posenc.interpolate_table(SQUARES, len(expected), **options)
    assert np.allclose(of_line[:, 0], expected, rtol=0, atol=5e-7)  # of the printed digits
    assert np.array_equal(posenc.interpolate_table(SQUARES[:, None], (len(expected), 1), **options)[:, 0], of_line)


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("corners", [True, False])
def test_the_same_size_is_the_table_bit_for_bit(method, corners, rng):
    table = rng.standard_normal((3, 4, 5))
    table[1, 2] = [-0.0, np.nan, np.inf, -np.inf, 1e308]
    assert posenc.interpolate_table(table, (3, 4), method=method, corners=corners).tobytes() == table.tobytes()


def test_rows_before_the_positions_are_kept(rng):
    table = rng.standard_normal((2 + 3 * 4, 5))
    result = posenc.interpolate_table(table, (6, 2), grid=(3, 4), prefix=2)
    assert np.array_equal(result[:2], table[:2])
    assert np.array_equal(result[2:], posenc.interpolate_table(table[2:].reshape(3, 4, 5), (6, 2)).reshape(12, 5))
    of_line = np.concatenate([table[:2], posenc.interpolate_table(table[2:], 7)])
    assert np.array_equal(posenc.interpolate_table(table, 7, prefix=2), of_line)
    gradient = posenc.interpolate_table_vjp(np.ones((14, 5)), table, (6, 2), grid=(3, 4), prefix=2).table
    assert (gradient[:2] == 1).all()
    assert gradient[2:].sum() == pytest.approx(12 * 5)


@pytest.mark.parametrize(
    ("table", "n", "options", "message"),
    [
        ((4, 2), (2, 2), {}, r"n is \(2, 2\); expected an integer for a table"),
        ((4, 4, 2), 2, {}, "table has 3 axes"),
        ((17, 2), (5, 5), {"grid": (4, 4)}, r"table has 17 rows; expected 0 \+ 4 \* 4, prefix and grid"),
        ((4, 2), 2, {"prefix": 5}, "table has 4 rows; expected at least 5"),
        ((4, 2), 2, {"prefix": 4}, "table has no rows"),
        ((4, 2), 2, {"grid": (2, 2)}, r"grid is \(2, 2\); expected None, because n is one number"),
        ((4, 4, 2), (2, 2), {"prefix": 1}, r"prefix is 1; expected 0 for a table \(H, W, D\)"),
        ((4, 2), (2, 2, 2), {"grid": (2, 2)}, r"n is \(2, 2, 2\); expected two lengths"),
        ((4, 2), (2, 2), {"grid": 4}, "grid is 4; expected two lengths"),
        ((4, 2), 2, {"method": "nearest"}, "method is 'nearest'; expected one of 'linear', 'cubic'"),
    ],
)
def test_refusals(table, n, options, message):
    for function, arguments in ((posenc.interpolate_table, ()), (posenc.interpolate_table_vjp, (np.ones(1),))):
        with pytest.raises(ValueError, match=f"^{function.__name__}: {message}"):
            function(*arguments, np.ones(table), n, **options)
