"""Attention of posenc for the models of Hugging Face transformers, as one more attention implementation.

>>> import posenc_bridges.transformers
>>> from transformers import AutoModelForCausalLM, LlamaConfig
>>> posenc_bridges.transformers.register()
()
>>> config = LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
>>> model = AutoModelForCausalLM.from_config(config, attn_implementation="posenc")
>>> model.config._attn_implementation
'posenc'

The page `bridges/docs/transformers.md` lists the models, and says what is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

try:
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    import posenc_bridges.torch  # noqa: F401 - its error names what is missing
except ImportError as error:
    raise ImportError(
        "posenc_bridges.transformers needs transformers, torch and ml_dtypes: "
        'pip install "transformers>=5.23" "torch>=2.12" ml_dtypes'
    ) from error

from ._private import MISSING, check_names

check_names()

from ._attention import attention_forward  # noqa: E402 - these import what is checked
from ._masks import make_mask  # noqa: E402
from ._modules import change  # noqa: E402

__all__ = ["register"]


def register(name: str = "posenc", *, precision: Literal["high", "low"] = "high") -> tuple[str, ...]:
    """Make posenc an attention implementation of transformers.

    Then ``attn_implementation=name`` runs a model's attention with `posenc_bridges.torch.attention`: forward, backward,
    training, prefill and decoding with any cache.

    Parameters
    ----------
    name : str
        Name of the implementation.
    precision : {"high", "low"}
        As in `posenc.attention`. Two names may have two precisions.

    Returns
    -------
    tuple of str
        Private names that posenc needs and the installed transformers does not have; none in transformers 5.24. The
        models that need them are left out, and refused by name.

    Notes
    -----
    Masks are handed over as structure: causal, window, segments, padding. No array of queries x keys is made for them,
    nor for the biases of T5 and of models of its kind. A mask with 4 axes, or one of the user's own functions, is used
    as it is. The attention modules of BLOOM, DeBERTa, Falcon, MPNet, MPT, SAM, Swin V2 and WavLM do not use
    transformers' interface and are replaced. Arguments that posenc does not know are a TypeError;
    ``output_attentions`` and other models that compute attention themselves are a NotImplementedError. Nothing falls
    back to another implementation.

    Examples
    --------
    >>> import posenc_bridges.transformers
    >>> from transformers import AutoModelForSeq2SeqLM, T5Config
    >>> posenc_bridges.transformers.register()
    ()
    >>> config = T5Config(d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4, vocab_size=99)
    >>> model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="posenc")
    """
    if precision not in ("high", "low"):
        raise ValueError(f"register: precision is {precision!r}; expected one of 'high', 'low'")
    AttentionInterface.register(name, partial(attention_forward, precision=precision))
    AttentionMaskInterface.register(name, make_mask)
    change(name)
    return tuple(f"{model_type}.{name}" for model_type, names in MISSING.items() for name in names)
