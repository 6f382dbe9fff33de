"""The checks of rotations and of sinusoidal encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import reference
from ._frequencies import angles
from ._inputs import FAR, SEED, Precision, ToArray, call, choice, converted, draw, parts, places
from ._judge import Case, Kind, angle_roundoff, as_numbers, coarser, judge
from ._read_rope import Probe, read_numbers, read_rope, read_sinusoid
from ._report import Array, Float64, Reading, Report, further, with_readings

__tracebackhide__ = True  # pytest shows the line of the implementation

FAR_POSITIONS = "the positions 4073-4096 in another order"


def in_16_bits(report: Report) -> bool:
    """Far positions show numbers in 16 bits; frequencies by the length of the sequence are no error."""
    return any("float16" in cause.sentence for cause in report.causes)


OTHER = {"half": "interleaved", "interleaved": "half"}
PAIRS = {"half": "(i, i + {0})", "interleaved": "(2 i, 2 i + 1)"}


def channels(pairs: Float64, layout: str) -> Float64:
    """Numbers of pairs as numbers of both channels."""
    return np.repeat(pairs, 2, -1) if layout == "interleaved" else np.concatenate([pairs, pairs], -1)


def _blocks(r: int) -> npt.NDArray[np.intp]:
    """The channels of two blocks of halves, in the order of halves of all channels."""
    return np.arange(r).reshape(2, 2, -1).swapaxes(0, 1).ravel()


def _decay(positions: Float64, c: Case) -> Float64 | float:
    """The factor of xPos; for keys its reciprocal."""
    if c["decay"] is None:
        return 1.0
    zeta = (np.arange(len(c["w"])) / len(c["w"]) + 0.4) / 1.4
    return np.asarray(zeta ** (np.where(c["is_key"], -1.0, 1.0) * positions / c["decay"])[..., None])


def true_rotation(x: Float64, positions: Float64, c: Case) -> Float64:
    given = c["given_w"] if c["of_axes"] is None else c["of_axes"]
    w = replace(reference.RopeFrequencies(given), attention_factor=c["factor"])
    options = {name: c[name] for name in ("layout", "rotary_dim", "rotary_offset", "out_layout")}
    if c["decay"] is not None:
        placed = {name: options[name] for name in ("layout", "rotary_dim", "rotary_offset")}
        turned = [
            reference.xpos(x, positions, w, **placed, scale_base=c["decay"], downscale=downscale)
            for downscale in (False, True)
        ]
        return np.asarray(np.where(c["is_key"][..., None], turned[1], turned[0]))
    if c["axes"] == "blocks":
        half = c["rotary_dim"] // 2
        for offset, places in zip((0, half), positions, strict=True):
            x = reference.rope(x, places, w, **{**options, "rotary_dim": half, "rotary_offset": offset})
        return x
    rotate: Any = reference.rope if c["of_axes"] is None else reference.rope_nd
    return np.asarray(rotate(x, positions, w, **options))


def layouts(subject: str, layout: str | None, case: Case, out_layout: str | None = None) -> Case:
    """The fields of a layout, and of the other one for sentences."""
    layout, r = choice(subject, "layout", layout, *PAIRS), case["rotary_dim"]
    other, out_layout = OTHER[layout], choice(subject, "out_layout", out_layout or layout, *PAIRS)
    names = {"other": other, "pairs": PAIRS[layout].format(r // 2), "other_pairs": PAIRS[other].format(r // 2)}
    none = dict.fromkeys(("axis", "axes", "decay"))
    given = {"given_w": case["w"], "blocks": False, "rotary_offset": 0}
    return {"layout": layout, "out_layout": out_layout, **given, **names, **none}


def coordinates(c: Case, axes: str | None, sections: Sequence[int] | None, interleaved: bool) -> Case:
    """The fields of rotations by several coordinates."""
    w, plain, of_axes = c["w"], c["plain"], c["of_axes"]
    if sections is not None:
        if len(sections) != 3 or sum(sections) != len(w):
            raise ValueError(f"check.rope: sections is {sections}; expected three numbers that add up to {len(w)}")
        of_axes = np.asarray(reference.mrope_frequencies(w, sections, interleaved=interleaved))
    if axes is None:
        return {} if of_axes is None else {"of_axes": of_axes, "axis": abs(of_axes).argmax(0)}
    choice("rope", "axes", axes, "concat", "blocks", "alternate")
    order = np.concatenate([np.arange(0, len(w), 2), np.arange(1, len(w), 2)])
    w, plain = (one[order] if axes == "alternate" else np.tile(one, 2) for one in (w, plain))
    axis = np.repeat(np.arange(2), len(w) // 2)
    if axes != "blocks":
        of_axes = w * (np.arange(2)[:, None] == axis)
    blocks = axes == "blocks" and c["layout"] == "half"
    given = {"axis": axis, "axes": axes, "of_axes": of_axes, "blocks": blocks}
    return {**given, "w": w, "plain": plain, "rotary_dim": 2 * len(w)}


def angle_error(c: Case, positions: Float64, u: float) -> Float64:
    """The largest error of each angle p w, (..., N, pairs): that of the frequency, and one rounding of the product.

    A frequency may be a power, whose error grows with the logarithm of the base, or a product of its number of factors.
    The frequency 1 is exact.
    """
    w = np.maximum(abs(c["w"]), np.minimum(c["plain"], abs(c["w"]).max(initial=0)))
    roundings = 16 + 4 * np.arange(len(w)) + 2 * abs(np.log(np.maximum(w, 1e-300)))
    roundings[abs(c["w"]) == 1] = 4  # no power and no product is rounded; a share of whole turns is
    at = positions[..., None] if c["axis"] is None else np.moveaxis(positions[c["axis"]], 0, -1)
    return np.asarray(angle_roundoff(u) * abs(at) * w * roundings)


def rotation_error(c: Case, positions: Float64, u: float) -> Float64:
    """Error of a rotated number, as a share of the largest: of the angle, of the tables and of the products."""
    return np.asarray(np.sqrt(2) * c["factor"] * _decay(positions, c) * (angle_error(c, positions, u) + 4 * u))


def _rope_bound(c: Case, wanted: Float64, u: float) -> Float64:
    error = channels(rotation_error(c, c["positions"], u), c["out_layout"])
    error = error[..., np.argsort(_blocks(c["rotary_dim"]))] if c["blocks"] else error
    found = np.full(wanted.shape, 4 * u)
    found[..., c["rotary_offset"] : c["rotary_offset"] + c["rotary_dim"]] = error
    return found * float(abs(c["x"]).max(initial=0))


def _pair(channel: int, c: Case) -> str:
    r, channel = c["rotary_dim"], channel - c["rotary_offset"]
    pair = channel % (r // 2) if c["layout"] == "half" else channel // 2
    return f" (pair {pair})" if 0 <= channel < r else ""


def _labels(c: Case) -> dict[str, list[str]]:
    names = {"channel": [f"channel {i}{_pair(i, c)}" for i in range(c["width"])]}
    at = c["positions"]
    if c["axis"] is not None or at.ndim > 1:
        return {**names, "position": [f"token {i}" for i in range(at.shape[-1])]}
    return {**names, "position": [f"position {p:g}" + f" (token {i})" * bool(p != i) for i, p in enumerate(at)]}


AXES = ("batch", "head", "position", "channel")
ROPE = Kind("rope", lambda c: true_rotation(c["x"], c["positions"], c), AXES, _rope_bound, labels=_labels)
READ_TOKENS = 48
"""Most tokens whose rotation is read."""


def rope(
    impl: Callable[..., object] | None = None,
    frequencies: object = None,
    *,
    dim: int | None = None,
    layout: str | None = None,
    out_layout: str | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inputs: Sequence[str] = ("x",),
    positions: npt.ArrayLike | None = None,
    seq_axis: int = -2,
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
    seq_len: int | None = None,
    layer_type: str | None = None,
    axes: str | None = None,
    sections: Sequence[int] | None = None,
    interleaved: bool = False,
    scale_base: float | None = None,
    got: object = None,
    x: npt.ArrayLike | None = None,
) -> Report:
    """Check a rotary embedding.

    Parameters
    ----------
    impl : callable
        ``impl(x, positions)`` returns the rotated x of shape (batch, heads, N, dim). With ``inputs=("q", "k")`` it is
        ``impl(q, k, positions)``, which returns both; k has fewer heads than q.
    frequencies : RopeFrequencies, array, dict or path, optional
        The right frequencies; a dict or a path is a config.json, whose keys let the check try errors of the scaling. By
        default the frequencies of base 10000. An array (A, pairs) is for A coordinates, as those of
        `posenc.axial_frequencies`; each pair turns with one of them.
    dim : int, optional
        Width of x; by default the head's in a config, or the number of rotated channels. If `impl` gets the rotated
        channels of a head without the others, pass their number.
    layout : {"half", "interleaved"}, optional
        The pairs of channels; needed if `frequencies` has none.
    out_layout : {"half", "interleaved"}, optional
        The pairs of the result; by default `layout`.
    rotary_dim : int, optional
        Number of rotated channels, if `frequencies` is None; by default `dim`.
    rotary_offset : int
        The first rotated channel.
    inputs : ("x",) or ("q", "k")
        The arguments of `impl`.
    positions : int or array (N,) or (batch, N), optional
        An int n means 0 .. n-1. By default 0 .. 23, and then 4073 .. 4096 in another order, where numbers in 16 bits
        and a count of tokens in place of positions show. An array (batch, N) has the positions of each row of x. With
        several coordinates an array (A, N), by default drawn from 0 .. 23. An array is passed in reverse order, too;
        n is for an implementation that takes no other positions.
    seq_axis : int
        The axis of positions in the arrays that `impl` takes: -2 is (batch, heads, N, dim), -3 is
        (batch, N, heads, dim).
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of x. "float64" demands angles in float64. Numbers of bfloat16 are passed in an array of float32, for
        `array` to convert.
    array : callable
        Converts the inputs, such as ``torch.as_tensor``. Positions are not rounded to 16 bits.
    seq_len : int, optional
        Length of the sequence, for the types dynamic and longrope of a config.
    layer_type : str, optional
        The layers of a config with several kinds, as in `posenc.rope_from_config`.
    axes : {"concat", "blocks", "alternate"}, optional
        If `impl` rotates by row and column: "concat" rotates the first half of the pairs by the row and the second half
        by the column, with the same `frequencies`. "alternate" does so with frequencies 0, 2, ... for the row and 1, 3,
        ... for the column (Pixtral). "blocks" is two calls of `posenc.rope`, for the first half of the channels by the
        row and for the second half by the column (Gemma 4).
    sections, interleaved : optional
        As in `posenc.mrope_frequencies`, if `impl` rotates by three coordinates.
    scale_base : float, optional
        As in `posenc.xpos`, if `impl` is xPos; with ``inputs=("q", "k")`` keys have the reciprocal factors.
    got, x : array, optional
        The result and its input, instead of `impl`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> def mine(x, positions):
    ...     angle = positions[:, None] * 10000.0 ** (-np.arange(0, 64, 2) / 64)
    ...     cos, sin = (np.tile(table, 2) for table in (np.cos(angle), np.sin(angle)))
    ...     return x * cos + np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * sin
    >>> report = posenc.check.rope(mine, dim=64, layout="interleaved")
    >>> print(report.causes[0].sentence)
    The tables of cos and sin have the order of pairs (i, i + 32), but the rotation has pairs (2 i, 2 i + 1).
    """
    r = rotary_dim or dim
    case = angles("rope", frequencies, r // 2 if r and axes in ("concat", "blocks") else r, seq_len, layer_type)
    case |= layouts("rope", layout or case["layout"], case, out_layout)
    case |= coordinates(case, axes, sections, interleaved)
    several, coordinate_count = case["axis"] is not None, 2 if case["of_axes"] is None else len(case["of_axes"])
    batched = "a number or an array (N,) or (batch, N)"
    accepted = ((2,), f"an array ({coordinate_count}, N)") if several else ((0, 1, 2), batched)
    least = max(case["width"], rotary_offset + case["rotary_dim"])
    width = dim or (np.shape(x)[-1] if x is not None else least)
    case |= {"width": width, "decay": scale_base, "rotary_offset": rotary_offset}

    def judged(got: object, given: Float64, where: Array, precision: str) -> Report:
        heads = given.shape[-3] if given.ndim > 2 else 1
        is_key = (np.arange(heads) >= 3)[:, None] & (len(inputs) == 2)
        of_x = {"x": given, "is_key": is_key, "positions": placed(where, given)}
        return judge(ROPE, got, {**case, **of_x}, precision)

    def placed(where: Array, x: Float64) -> Float64:
        """Several coordinates get the shape of x, and positions by row an axis for the heads."""
        at = where.astype(np.float64)
        if at.ndim == 2 and not several:
            return at[:, None]
        shape = (len(at), *x.shape[:-1])
        return np.broadcast_to(at.reshape(len(at), *[1] * (x.ndim - 2), -1), shape) if several else at

    def applied(xs: Sequence[Float64], where: Array, order: int = 1) -> tuple[list[Float64], str]:
        """Call the implementation with arrays (batch, heads, N, width)."""
        stored = np.float32 if dtype == "bfloat16" else np.dtype(dtype)
        given = [array(np.array(np.moveaxis(one, -2, seq_axis), stored, order="C")) for one in xs]
        arguments = [*given, converted(array, where)]
        return parts("rope", call("rope", impl, *arguments[::order], right=lambda: turned(xs, where)), len(xs))

    def turned(xs: Sequence[Float64], where: Array) -> list[Float64]:
        """The right result of `impl`."""
        sides = [{**case, "is_key": np.full((one.shape[-3], 1), side == 1)} for side, one in enumerate(xs)]
        found = [true_rotation(one, placed(where, one), of) for one, of in zip(xs, sides, strict=True)]
        return [np.moveaxis(one, -2, seq_axis) for one in found]

    def turned_back(found: Sequence[Float64]) -> list[Float64]:
        return [np.moveaxis(one, seq_axis, -2) if one.ndim == 4 else one for one in found]

    def probe_of(drawn: Sequence[Float64], side: int, places: Sequence[Array], precision: str) -> Probe:
        """The rotation of the queries or of the keys, with the other ones unchanged."""

        def measured_one(x: Float64, where: Array) -> Float64:
            return turned_back(applied([x if i == side else one for i, one in enumerate(drawn)], where)[0])[side]

        def right_one(x: Float64, where: Array) -> Float64:
            return true_rotation(x, placed(where, x), {**case, "is_key": np.full((x.shape[-3], 1), side == 1)})

        return Probe(measured_one, right_one, case, drawn[side], places, precision)

    def readings(drawn: Sequence[Float64], places: Sequence[Array], precision: str) -> Iterator[Reading]:
        if len(drawn) == 1:
            yield from read_rope(probe_of(drawn, 0, places, precision))
            return
        for side, name in enumerate("qk"):
            probe = probe_of(drawn, side, places, precision)
            other = [2 - x if i != side else x for i, x in enumerate(drawn)]
            if not np.allclose(
                probe.impl(probe.x, places[0]), probe_of(other, side, places, precision).impl(probe.x, places[0])
            ):
                yield Reading(
                    "arguments", f"The rotated {name} depends on {'qk'[1 - side]}; expected on {name} alone.", True
                )
                return
        queries, keys = (list(read_rope(probe_of(drawn, side, places, precision))) for side in range(2))
        for name, of in (("", queries),) if queries == keys else (("Of q: ", queries), ("Of k: ", keys)):
            yield from (one._replace(sentence=name + one.sentence) for one in of)

    def run(where: Array, before: Sequence[Array] = ()) -> Report:
        rows = len(where) if where.ndim == 2 and not several else 2
        drawn = [draw(rows, heads, where.shape[-1], width, dtype=dtype, seed=30 + i) for i, heads in enumerate((3, 2))]
        drawn = drawn[: len(inputs)]
        shapes = [np.moveaxis(one, -2, seq_axis).shape for one in drawn]

        def called(order: int) -> tuple[list[Float64], str]:
            return applied(drawn, where, order)

        try:
            found, precision = called(1)
            takes_them = [one.shape for one in found] == shapes
        except Exception:
            if not _fits(called, shapes):
                raise
            takes_them = False
        if not takes_them and _fits(called, shapes):
            order = ", ".join(["positions", *reversed(inputs)])
            raise TypeError(f"check.rope: impl takes ({order}); expected the positions last: pass a lambda")
        given = np.concatenate(drawn, -3).astype(np.float64)
        precision = coarser(dtype, precision)
        report = judged(np.concatenate(turned_back(found), -3), given, where, precision)
        places = [*before, where] if before or several or positions is not None else [where, FAR]
        if where.shape[-1] > READ_TOKENS:
            ends, middle = np.arange(READ_TOKENS // 4), np.linspace(0, where.shape[-1] - 1, READ_TOKENS // 2, dtype=int)
            some = np.unique(np.concatenate([ends, middle, where.shape[-1] - 1 - ends]))
            drawn, places = [one[..., some, :] for one in drawn], [where[..., some]]
        return with_readings(report, lambda: readings([one.astype(np.float64) for one in drawn], places, precision))

    if impl is None:
        given, precision = as_numbers(x, "rope")
        got, other_precision = as_numbers(got, "rope")
        where = places("rope", 24 if positions is None else positions, *accepted)
        given, precision = given.astype(np.float64), coarser(precision, other_precision)
        x4 = given.reshape(-1, *[1] * max(0, 3 - given.ndim), *given.shape[-3:]) if given.ndim < 4 else given
        stored = Probe(lambda *_: np.reshape(got, x4.shape), lambda *_: x4, case, x4, [where], precision)
        return with_readings(judged(got, given, where, precision), lambda: read_numbers(stored))
    if positions is not None:
        given = places("rope", positions, *accepted)
        if np.ndim(positions) == 0:  # of an implementation that takes no others
            return run(given)
        return further(run(given), lambda: run(given[..., ::-1], [given]), "the positions in reverse order")
    if several:
        return run(np.random.default_rng(SEED).integers(0, 24, (coordinate_count, 24)))
    by_length = case["rope_type"] in ("dynamic", "longrope")  # the positions themselves may then choose frequencies
    near_ones = np.arange(24)
    accepts = in_16_bits if by_length else lambda other: True
    return further(run(near_ones), lambda: run(FAR, [near_ones]), FAR_POSITIONS, accepts)


def _fits(called: Callable[[int], tuple[list[Float64], str]], shapes: list[tuple[int, ...]]) -> bool:
    """Return whether an implementation takes the positions first."""
    try:
        return [one.shape for one in called(-1)[0]] == shapes
    except Exception:
        return False


# ---- sinusoidal encodings ----


def _sine_bound(c: Case, wanted: Float64, u: float) -> Float64:
    error = np.repeat(rotation_error(c, c["positions"], u), 2, -1)[:, : c["dim"]]
    error = np.concatenate([error[:, 0::2], error[:, 1::2]], -1) if c["sine_layout"] == "half" else error
    return np.pad(error, ((0, 0), (0, c["dim"] - error.shape[-1])))  # the last column of tensor2tensor may be 0


def _true_table(c: Case) -> Float64:
    options = {name: c[name] for name in ("base", "order", "denominator")}
    of = {"layout": c["sine_layout"], "frequencies": c["given_w"], **options}
    return np.asarray(reference.sinusoidal(c["positions"], c["dim"], **of))


SINUSOID = Kind("sinusoid", _true_table, ("position", "channel"), _sine_bound, read=read_sinusoid)


def sinusoid(
    impl: object,
    dim: int | None = None,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
    positions: npt.ArrayLike | None = None,
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
) -> Report:
    """Check a sinusoidal encoding.

    Parameters
    ----------
    impl : callable or array
        ``impl(positions)`` returns the encoding, (N, dim); or the encoding itself.
    dim : int, optional
        Width of the encoding; by default two channels for each of `frequencies`.
    base, frequencies, layout, order, denominator
        As in `posenc.sinusoidal`.
    positions : int or array (N,), optional
        An int n means 0 .. n-1. By default 0 .. 23, and then 4073 .. 4096; with `frequencies` numbers from 0 to 1, so
        many that the angles show.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the computation. "float64" demands angles in float64.
    array : callable
        Converts the positions, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import posenc, posenc.check
    >>> report = posenc.check.sinusoid(posenc.sinusoidal(24, 64, layout="half"), 64)
    >>> print(report.causes[0].sentence)
    The sines and cosines have the layout half; expected interleaved.
    """
    order = choice("sinusoid", "order", order, "sincos", "cossin")
    choice("sinusoid", "layout", layout, "interleaved", "half")
    given_w = None if frequencies is None else np.array(frequencies, np.float64)
    if dim is None and given_w is None:
        raise ValueError("check.sinusoid: dim is None; expected a number, or frequencies")
    width = 2 * len(given_w) if dim is None and given_w is not None else dim or 0
    w: Any = given_w
    if w is None:
        w = np.asarray(reference.sinusoidal_frequencies(width, base=base, denominator=denominator))
    case: Case = {
        "w": w, "plain": w, "base": base, "rotary_dim": width, "width": width, "dim": width, "sine_layout": layout,
        "order": order, "denominator": denominator, "axis": None, "decay": None, "factor": 1.0, "scales": False,
        "keys": {} if given_w is not None else {"base": base}, "given_w": given_w, "rope_type": "default",
    }  # fmt: skip

    def run(where: Array) -> Report:
        of = {**case, "positions": where.astype(np.float64)}
        got = call("sinusoid", impl, converted(array, where), right=lambda: _true_table(of))
        return judge(SINUSOID, got, of, dtype)

    if positions is not None:
        return run(places("sinusoid", positions))
    if given_w is not None:
        count = int(np.clip(abs(given_w).max(initial=0), 24, 4096))  # the fastest angle grows by 1 from row to row
        return run((np.arange(count) + 0.618) / count)  # integers times 2 pi show nothing
    return further(run(np.arange(24)), (lambda: run(FAR)) if callable(impl) else None, FAR_POSITIONS)
