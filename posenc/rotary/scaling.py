"""Frequencies of rotary embeddings, with every scaling by which a context is made longer."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._call import Float64, as_index, fail, one_of
from ..absolute.sinusoid import exact_frequencies

__all__ = ["RopeFrequencies", "rope_frequencies"]

ROPE_TYPES = ("default",)


class RopeFrequencies(NamedTuple):
    """What `rope_frequencies` returns: radians per position and two separate factors."""

    inv_freq: Float64
    """(dim // 2,) radians per position."""
    attention_factor: float
    """Multiplies cos and sin, so that rotated logits carry its square."""
    softmax_factor: float
    """Multiplies the scale of the logits; `rope` never applies it."""


def rope_frequencies(
    dim: int, *, base: float = 10000.0, rope_type: str = "default", seq_len: int | None = None, **keys: Any
) -> RopeFrequencies:
    """Rotary frequencies: ``inv_freq[k] = base**(-2k / dim)``.

    Parameters
    ----------
    dim : int
        Even number of rotated channels.
    base : float
        Positive; ``rope_theta`` in a checkpoint's config.
    rope_type : {"default"}
        The scaling; there is one so far, which scales nothing.
    seq_len : int, optional
        Length of the sequence; the default type does not depend on it.
    **keys
        ``max_position_embeddings`` and ``original_max_position_embeddings``, as a config has them, are allowed.

    Returns
    -------
    RopeFrequencies
        ``(inv_freq, attention_factor, softmax_factor)``; both factors are 1 for the default type.

    Raises
    ------
    TypeError
        A key that the type does not know.
    ValueError
        An odd `dim`, a base that is not positive, an unknown type.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 15.

    Examples
    --------
    >>> import posenc
    >>> posenc.rope_frequencies(8).inv_freq
    array([1.   , 0.1  , 0.01 , 0.001])
    """
    function = "rope_frequencies"
    if as_index(function, "dim", dim, 2) % 2:
        fail(ValueError, function, "dim", dim, "an even number of channels")
    one_of(function, "rope_type", rope_type, ROPE_TYPES)
    if seq_len is not None:
        as_index(function, "seq_len", seq_len, 0)
    for key in keys.keys() - {"max_position_embeddings", "original_max_position_embeddings"}:
        fail(TypeError, function, "keys", repr(key), f"only keys that rope_type {rope_type!r} knows")
    return RopeFrequencies(exact_frequencies(function, dim, base, "dim")[0].copy(), 1.0, 1.0)
