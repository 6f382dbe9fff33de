"""Names of torch that are not public, each with what happens in a torch that does not have it."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from torch.autograd import forward_ad  # type: ignore[import-not-found, unused-ignore]

NAMES = {
    "_C._len_torch_dispatch_stack": "every call is a custom operator: it takes longer, and torch.func.grad refuses it",
    "autograd.forward_ad._current_level": "every call is a custom operator, as without the dispatch stack",
    "_C._functorch.peek_interpreter_stack": "every call makes the node that torch.func needs, which takes longer",
    "_C._vmapmode_increment_nesting": "torch refuses is_grads_batched",
    "_C._vmapmode_decrement_nesting": "torch refuses is_grads_batched",
    "_C._dispatch_key_parse": "torch refuses is_grads_batched",
    "_C._dispatch_keys": "torch refuses is_grads_batched",
    "_remove_batch_dim": "torch refuses is_grads_batched",
    "_add_batch_dim": "torch refuses is_grads_batched",
    "autograd._profiler_enabled": "the profiler does not show calls that nothing records",
    "utils._pytree.register_pytree_node": "torch.func.grad refuses RopeFrequencies as an argument",
    "SymInt.node": "lengths are fixed in graphs",
    "NestedTensor._ragged_idx": "scaled_dot_product_attention refuses nested tensors",
    "Tensor._make_wrapper_subclass": "posenc_bridges.transformers is not imported",
    "_C.DisableTorchFunctionSubclass": "posenc_bridges.transformers is not imported",
}


def find(name: str, instead: Any = None) -> Any:
    """Return an object of torch by its name, or `instead` if it is gone."""
    try:
        return resolve_name(f"torch.{name}")
    except (ImportError, AttributeError):
        return instead


def read(thing: object, name: str) -> Any:
    """Return an attribute of an object by its place in `NAMES`; None if it is gone."""
    return getattr(thing, name.rpartition(".")[2], None)


def _one() -> int:
    return 1


len_torch_dispatch_stack: Callable[[], int] = find("_C._len_torch_dispatch_stack", _one)
peek_interpreter_stack: Callable[[], object] = find("_C._functorch.peek_interpreter_stack", _one)
profiler_enabled: Callable[[], bool] = find("autograd._profiler_enabled", bool)
has_batches = None not in [find(name) for name, result in NAMES.items() if "is_grads_batched" in result]
_HAS_LEVEL = find("autograd.forward_ad._current_level") is not None


def forward_level() -> int:
    """Return the level of forward mode, -1 outside of it."""
    return forward_ad._current_level if _HAS_LEVEL else 0
