"""Positions of the tokens of text, images and videos, for `rope_nd`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import F32, F64, I64, Float64
from .._core_api.constants import LARGEST_POSITION
from .._core_api.door import door, fail, fail_value

Part: TypeAlias = int | Sequence[float]
"""A number of tokens of text, or a grid: (t, h, w) or (t, h, w, seconds)."""


class Style(NamedTuple):
    """The rules by which a family of models counts."""

    reads_seconds: bool = False
    """Time counts seconds. Otherwise it counts the steps of the grid."""
    splits_frames: bool = False
    """Each step of a video is a separate grid, behind the text of its timestamp."""
    is_fractional: bool = False
    """Time is not cut to integers."""


STYLES = {
    "qwen2_vl": Style(),
    "qwen2_5_vl": Style(reads_seconds=True),
    "qwen3_vl": Style(splits_frames=True),
    "qwen2_5_omni": Style(reads_seconds=True),
    "qwen3_omni": Style(reads_seconds=True, is_fractional=True),
}


class MropePositions(NamedTuple):
    """The positions of a sequence, and how to continue them."""

    positions: npt.NDArray[Any]
    """Time, height and width of each token, (3, N): int64, or float64 in the style "qwen3_omni"."""
    offset: float
    """The token with index i, from N on, has position ``i + offset``: `rope_deltas` of transformers."""
    end: float
    """The position of the next token, ``N + offset``: `start` of what follows."""


@door
def mrope_positions(
    parts: Iterable[Part],
    *,
    style: str,
    merge: int = 2,
    tokens_per_second: float | None = None,
    start: float = 0,
) -> MropePositions:
    """Return the positions of text, images and videos in models with M-RoPE.

    Text has equal coordinates b, b + 1, ...; token (i, j, k) of a grid has ``(b + time(i), b + j, b + k)``, where b is
    one more than the largest coordinate before. `rope_nd` takes the result.

    Parameters
    ----------
    parts : sequence of ints and grids
        The sequence in order. An int is that many tokens of text; the tokens that mark the begin and the end of an
        image are text, and so is audio. A grid is a tuple ``(t, h, w)``, in patches before they are merged, as a row of
        ``image_grid_thw`` or ``video_grid_thw``. An image has t = 1. A video whose time counts seconds is
        ``(t, h, w, seconds)``, with the seconds of a step, ``second_per_grid_ts``: temporal_patch_size / fps.
    style : {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2_5_omni", "qwen3_omni"}
        The family of models. Time counts the steps of the grid in Qwen2-VL, and seconds in Qwen2.5-VL and both Omni.
        In Qwen3-VL and Qwen3.5 each step of a video is a grid (1, h, w) behind the text of its timestamp.
    merge : int
        Patches that are merged along height and along width, ``spatial_merge_size``.
    tokens_per_second : number, optional
        Positions of a second: ``tokens_per_second`` of the vision_config of Qwen2.5-VL, ``position_id_per_seconds`` of
        Omni. Required for videos in the styles that count seconds, because checkpoints differ.
    start : number
        The position of the first token. An integer, except in the style "qwen3_omni".

    Returns
    -------
    MropePositions
        ``positions`` (3, N), ``offset`` and ``end``. The first decoded token has position ``end`` on all axes. Slice
        `positions` for a chunk of the sequence; for a later turn, pass its parts with ``start=end``.

    Raises
    ------
    TypeError, ValueError
        A part that is neither a number of tokens nor a grid, a height or width that `merge` does not divide, a video
        in one grid in the style "qwen3_vl", seconds in a style that does not read them, and no seconds or no
        `tokens_per_second` in a style that does.

    Notes
    -----
    Wang et al. 2024 (Qwen2-VL), section 2.1; Bai et al. 2025 (Qwen2.5-VL), section 2.1.2; get_rope_index in
    huggingface/transformers, src/transformers/models/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen2_5_omni and qwen3_omni_moe.
    Time is computed in float32, as there: ``step * seconds * tokens_per_second``, cut to an integer except in
    Qwen3-Omni. From 5.3 on, transformers lets the text after a video of the first two styles begin at b +
    max(h, w) / merge, although time may have passed this number; the authors' code, and this function, let it begin
    after the largest coordinate. Videos whose audio is interleaved with them (Omni) are not covered.

    Examples
    --------
    Three tokens, an image of 4 x 6 patches, and two tokens:

    >>> import posenc
    >>> found = posenc.mrope_positions([3, (1, 4, 6), 2], style="qwen2_vl")
    >>> found.positions
    array([[0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7],
           [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7],
           [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7]])
    >>> found.offset, found.end  # the first decoded token has index 11 and position 8
    (-3, 8)
    """
    read.choice("style", style, STYLES)
    rules, merge = STYLES[style], read.index("merge", merge, 1)
    if tokens_per_second is not None:
        if not rules.reads_seconds:
            fail_value(ValueError, "tokens_per_second", tokens_per_second, f"None: {style!r} does not count seconds")
        tokens_per_second = read.positive("tokens_per_second", tokens_per_second)
    end = read.number("start", start) if rules.is_fractional else read.index("start", start, -LARGEST_POSITION)
    if not _has_items(parts):
        fail(TypeError, "parts", f"type {type(parts).__name__}", "a sequence of numbers of tokens and of grids")
    dtype, total = (F64 if rules.is_fractional else I64), 0
    blocks: list[npt.NDArray[Any]] = [np.zeros((3, 0), dtype)]
    for i, part in enumerate(parts):
        t, h, w, step = _read_part(f"parts[{i}]", part, style, merge, tokens_per_second)
        total += max(t, 1) * h * w
        read.check_table_size(3 * total, parts=total)
        if t:
            block = np.indices((t, h, w)).reshape(3, -1).astype(dtype)
            time = np.arange(t, dtype=F32) * step[0] * step[1]
            block[0] = time.astype(dtype).repeat(h * w)
        else:
            block = np.broadcast_to(np.arange(w), (3, w))
        blocks.append(block + end)
        if block.size:
            end = blocks[-1].max().item() + 1
    positions = np.concatenate(blocks, axis=1)
    return MropePositions(positions, end - positions.shape[1], end)


def _has_items(value: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a value is a sequence. Text is none, and neither is an array without axes."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) > 0


def _read_part(
    name: str, part: object, style: str, merge: int, tokens_per_second: float | None
) -> tuple[int, int, int, Sequence[np.float32]]:
    """Return the steps, rows and columns of a part, and the two factors of its time. Text has 0 steps and a row."""
    rules, one = STYLES[style], np.float32(1)
    if not _has_items(part):
        return 0, 1, read.index(name, part, 0), (one, one)
    given: list[Any] = list(part)
    if len(given) not in (3, 4):
        fail(ValueError, name, f"{len(given)} numbers", "a grid (t, h, w), or (t, h, w, seconds)")
    t, h, w = (read.index(name, size, 1) for size in given[:3])
    if h % merge or w % merge:
        fail(ValueError, name, f"{h} x {w} patches", f"a height and a width that merge, {merge}, divides")
    if len(given) == 4 and not rules.reads_seconds:
        fail(ValueError, name, "seconds", f"(t, h, w): {style!r} does not count seconds")
    if t > 1 and rules.splits_frames:
        fail(ValueError, name, f"{t} steps", f"a grid (1, {h}, {w}) for each step, behind its timestamp, as in {style}")
    factors = one, one
    if t > 1 and rules.reads_seconds:
        if len(given) == 3:
            fail(ValueError, name, "no seconds", f"(t, h, w, seconds): time counts seconds in {style!r}")
        if tokens_per_second is None:
            fail_value(ValueError, "tokens_per_second", None, f"the number in the config, for the video {name}")
        factors = np.float32(read.positive(name, given[3])), np.float32(tokens_per_second)
    return t, h // merge, w // merge, factors


@door
def grid_positions(
    shape: Sequence[int],
    *,
    fps: float | None = None,
    compression: Sequence[int] = (1, 1, 1),
    centre: bool = False,
    unit: Sequence[float] = (1.0, 1.0, 1.0),
    causal: bool = False,
) -> Float64:
    """Return the positions of the patches of a video, for `rope_nd`.

    Patch i of an axis begins at ``i * compression``. Its position is this number, or the centre of the patch, over the
    length of the unit. Time is also divided by `fps`.

    Parameters
    ----------
    shape : (t, h, w)
        Numbers of patches, as the model sees them: latent frames, rows and columns over the patch size.
    fps : number, optional
        Frames per second. If it is given, time counts seconds, otherwise frames.
    compression : sequence of 3 ints
        Frames and pixels of a patch along each axis: the compression of the VAE times the patch size.
    centre : bool
        If True, the position of a patch is its centre, otherwise its begin.
    unit : sequence of 3 numbers
        What counts as 1 along each axis: seconds (frames, without `fps`) and pixels.
    causal : bool
        The first latent frame has one frame, as in causal VAEs: time begins at ``max(i * c + 1 - c, 0)``.

    Returns
    -------
    ndarray of float64, shape (3, t h w)
        Time, row and column of each patch, with the column changing fastest.

    Raises
    ------
    TypeError, ValueError
        Not three numbers, sizes and compressions that are no integers of at least 1, units or `fps` that are not
        positive.

    Notes
    -----
    - Wan 2.1 (rope_apply in wan/modules/model.py) and HunyuanVideo (get_nd_rotary_pos_embed in
      hyvideo/modules/posemb_layers.py): the indices, which the defaults give.
    - Cosmos-Predict (VideoRopePosition3DEmb): ``fps=fps, unit=(1 / 24, 1, 1)``, time in frames of a video with 24 of
      them in a second. Images have no `fps`.
    - LTX-Video (latent_to_pixel_coords; LTXVideoRotaryPosEmbed in diffusers): ``fps=fps, compression=(8, 32, 32),
      unit=(20, 2048, 2048)``, with ``causal=True`` if the config has causal_temporal_positioning. LTX-2 has
      ``centre=True`` as well. The angles of both are ``(2 p - 1) w`` for these positions p.

    Examples
    --------
    LTX-2, two latent frames of one patch each: the first is the first frame, the second the next eight.

    >>> import posenc
    >>> options = {"fps": 24, "compression": (8, 32, 32), "causal": True, "centre": True}
    >>> posenc.grid_positions((2, 1, 1), **options) * [[24], [1], [1]]
    array([[ 0.5,  5. ],
           [16. , 16. ],
           [16. , 16. ]])

    Wan, whose positions are indices:

    >>> w = posenc.axial_frequencies((44, 42, 42))
    >>> angles = posenc.grid_positions((3, 4, 6)).T @ w
    >>> angles.shape
    (72, 64)
    """
    sizes = [read.index("shape", n, 1) for n in _three("shape", shape)]
    sides = [read.index("compression", n, 1) for n in _three("compression", compression)]
    lengths = [read.positive("unit", length) for length in _three("unit", unit)]
    read.check_table_size(3 * sizes[0] * sizes[1] * sizes[2], shape=max(sizes))
    shift = 1 - sides[0] if read.flag("causal", causal) else 0
    is_centre, axes = read.flag("centre", centre), []
    for axis, (size, side) in enumerate(zip(sizes, sides, strict=True)):
        edges = np.arange(size + 1, dtype=F64) * side
        if axis == 0:
            edges = np.maximum(edges + shift, 0) / (1.0 if fps is None else read.positive("fps", fps))
        axes.append(((edges[:-1] + edges[1:]) / 2 if is_centre else edges[:-1]) / lengths[axis])
    return np.stack(np.meshgrid(*axes, indexing="ij")).reshape(3, -1)


def _three(name: str, values: Sequence[Any]) -> list[Any]:
    if not _has_items(values):
        fail(TypeError, name, f"type {type(values).__name__}", "three numbers, of time, height and width")
    found = list(values)
    if len(found) != 3:
        fail(ValueError, name, f"{len(found)} numbers", "three, of time, height and width")
    return found
