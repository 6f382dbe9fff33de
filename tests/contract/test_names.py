"""The names of posenc: those that are listed, and those that are shown."""

import inspect
import re

import pytest

import posenc

MODULES = ["analysis", "check", "plot", "reference"]


def test_dir_shows_the_public_names_and_the_documented_modules_alone():
    assert dir(posenc) == sorted([*posenc.__all__, *MODULES, "__version__"])


def test_every_listed_name_is_an_object_of_its_room():
    assert len(set(posenc.__all__)) == len(posenc.__all__)
    assert [name for name in posenc.__all__ if inspect.ismodule(getattr(posenc, name))] == []


def test_help_maps_every_public_name_by_topic():
    """Gradients are named by the rule that the text states: a function's name with _vjp, and its NamedTuple."""
    words = set(re.findall(r"\w+", posenc.__doc__))
    gradients = {name for name in posenc.__all__ if name.endswith(("_vjp", "Gradient"))}
    assert set(posenc.__all__) - gradients - words == set()
    assert set(MODULES) - words == set()


@pytest.mark.parametrize("bridge", ["autograd", "dask", "jax", "torch", "transformers"])
def test_the_name_of_a_bridge_leads_to_its_distribution(bridge):
    with pytest.raises(AttributeError, match=rf"'{bridge}'; expected posenc_bridges\.{bridge}, ") as caught:
        getattr(posenc, bridge)
    assert caught.value.name == bridge


def test_submodules_show_what_they_list():
    assert set(posenc.analysis.__all__) <= set(dir(posenc.analysis))
    assert posenc.reference.__all__
