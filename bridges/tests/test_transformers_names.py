"""`register` with a transformers that has renamed a class: it names the class, and refuses the models that need it."""

import os

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

PROGRAM = """
import functools, inspect, os, sys, pytest, transformers
import posenc_bridges.transformers as bridge
from posenc_bridges.transformers import _modules, _private, _replaced

inspect.getsource = functools.cache(inspect.getsource)  # each child would parse the files
private = {kind: [*names] for kind, names in _replaced.OWN.items()}
private |= {kind: [f"{name}.compute_bias"] for kind, name in _modules.T5_KIND.items()}
[inspect.getsource(_private.look_up(kind, name.partition(".")[0])) for kind, names in private.items() for name in names]

bert = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, vocab_size=99))

def without(kind, owner):
    module = sys.modules[f"transformers.models.{kind}.modeling_{kind}"]
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    model = [one for one in classes if issubclass(one, transformers.PreTrainedModel) and one.config_class][-1]
    if owner:
        delattr(module, owner)
    else:  # the file has another name
        sys.modules |= {module.__name__: None, module.__name__ + "2": module}
        for one in classes:
            one.__module__ += "2"
    gone = bridge.register()
    assert gone == tuple(f"{kind}.{name}" for name in private[kind] if name.startswith(owner)), gone
    message = f"^transformers: {model.__name__} is left out, because transformers .* has no {gone[0]}; expected "
    with pytest.raises(NotImplementedError, match=message):
        model._from_config(model.config_class(), attn_implementation="posenc")
    bert.set_attn_implementation("posenc")
    assert bert(**bert.dummy_inputs)[0].isfinite().all()

for kind, names in private.items():
    for owner in {name.partition(".")[0] for name in names} | {""}:
        child = os.fork()
        if not child:
            without(kind, owner)
            os._exit(0)
        assert os.wait()[1] == 0, (kind, owner)
assert bridge.register() == ()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each name is removed in a process of its own")
def test_a_name_that_is_gone(run_python) -> None:
    done = run_python(PROGRAM, timeout=300, warnings="ignore", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
