"""Private names of torch and transformers: where one is gone, only what needs it is refused."""

import os

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

BEGIN = """
import functools, importlib.util, inspect, os, pkgutil, sys, pytest, torch, transformers
import posenc_bridges, torch._dynamo

find, gone = pkgutil.resolve_name, []

def resolve_name(path):
    if path.endswith("." + gone[0]) or path.startswith(f"transformers.models.") and path.endswith(gone[0]):
        raise AttributeError(path)
    return find(path)

def without(name, library, test, *args):
    child = os.fork()
    if not child:
        try:
            gone.append(name)
            load(library)
            test(*args)
        except BaseException as error:
            print(name, repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.wait()[1] == 0, name

def load(library):
    # the list of a library, which finds all names but the one that is gone
    path = os.path.join(posenc_bridges.__path__[0], library, "_private.py")
    spec = importlib.util.spec_from_file_location(f"posenc_bridges.{library}._private", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    pkgutil.resolve_name = resolve_name if gone else find
    spec.loader.exec_module(module)
    pkgutil.resolve_name = find
    if gone and library == "torch":
        module.read = lambda thing, name: None if name == gone[0] else getattr(thing, name.rpartition(".")[2])
    return module
"""

OF_TORCH = """
def check(refusal):
    import posenc_bridges.torch as pt
    q, k, v = torch.randn(3, 2, 5, 8).requires_grad_()
    out = pt.attention(q, k, v)
    (gradient,) = torch.autograd.grad(out.sum(), q)
    theirs = torch.softmax(q @ k.mT / 8**0.5, -1) @ v
    torch.testing.assert_close(out, theirs)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs.sum(), q)[0])
    torch.testing.assert_close(torch.func.vmap(pt.attention)(*(one[None] for one in (q, k, v)))[0], out)
    torch.testing.assert_close(torch.compile(pt.attention, fullgraph=True, backend="eager")(q, k, v), out)
    if "nested" in refusal:
        jagged = torch.nested.nested_tensor([torch.randn(3, 2, 8)], layout=torch.jagged).transpose(1, 2)
        with pytest.raises(ValueError, match="expected a tensor|ragged axis"):
            pt.scaled_dot_product_attention(jagged, jagged, jagged)
    if "transformers" in refusal:
        with pytest.raises(ImportError, match=f"torch .* has no {gone[0]}; expected transformers"):
            import posenc_bridges.transformers

for name, refusal in load("torch").NAMES.items():
    without(name, "torch", check, refusal)
"""

OF_TRANSFORMERS = """
import posenc_bridges.torch
names = load("transformers")
inspect.getsource = functools.cache(inspect.getsource)  # each child would parse the files
for kind, methods in names.FAMILIES.items():
    inspect.getsource(names.look_up(kind, methods[0].partition(".")[0]))

def register():
    import posenc_bridges.transformers as bridge
    return bridge.register()

def small(**changes):
    sizes = dict(num_hidden_layers=2, vocab_size=99, hidden_size=32, intermediate_size=32, num_attention_heads=4)
    config = transformers.Gemma3TextConfig(**sizes, num_key_value_heads=2, head_dim=8, sliding_window=3)
    torch.manual_seed(0)
    return transformers.Gemma3ForCausalLM._from_config(config, **changes)

def without_family(kind, owner):
    missing = register()
    assert f"{kind}.{owner}" in missing and all(one.endswith(owner) for one in missing), missing
    module = sys.modules[f"transformers.models.{kind}.modeling_{kind}"]
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    model = [one for one in classes if issubclass(one, transformers.PreTrainedModel) and one.config_class][-1]
    message = f"^transformers: {model.__name__} is left out, because transformers .* has no {kind}.{owner}; expected "
    with torch.device("meta"), pytest.raises(NotImplementedError, match=message):
        model._from_config(model.config_class(), attn_implementation="posenc")
    check_model()

def check_model():
    ids = torch.arange(9)[None]
    ours, theirs = (small(attn_implementation=name)(ids).logits for name in ("posenc", "eager"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)

def without_mask():
    assert register() == (gone[0],)
    check_model()

def without_choice():
    with pytest.raises(ImportError, match=f"transformers .* has no {gone[0]}; expected transformers"):
        register()

def without_option():
    assert register() == ()
    check_model()

for kind, methods in names.FAMILIES.items():
    for method in methods:
        without(f".{method}", "transformers", without_family, kind, method)
for group, test in (("MASKS", without_mask), ("CHOICE", without_choice), ("OPTIONAL", without_option)):
    for name in getattr(names, group):
        without(name, "transformers", test)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each name is removed in a process of its own")
@pytest.mark.parametrize("program", [OF_TORCH, OF_TRANSFORMERS], ids=["torch", "transformers"])
def test_a_name_that_is_gone(run_python, program: str) -> None:
    done = run_python(BEGIN + program, timeout=600, warnings="ignore", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
